"""What etcd says when something is wrong, in fencelock's words. Never a password.

`BackendUnavailable` is what may pass: no connection, no leader, an election. It is not transient where
asking again in a second cannot help: a wrong password, a missing right, a server that is no etcd.
"""

from __future__ import annotations

from enum import Enum

from fencelock.backends import RIGHTS
from fencelock.backends.etcd.protocol import Status
from fencelock.errors import BackendUnavailable
from fencelock.net.failures import Failures

__all__ = ["BACKEND", "FAILURES", "Kind", "kind_of", "said"]

BACKEND = "etcd"
LONGEST = 200

NO_SUCH_LEASE = "requested lease not found"
NO_ETCD = "it does not speak etcd's protocol: is this the port for clients?"
FAILURES = Failures(BACKEND, NO_ETCD)
PASSING_CODES = {1, 2, 4, 8, 10, 14}
"""Cancelled, unknown, too late, exhausted, aborted, unavailable: gRPC's numbers."""
LASTING = {
    "authentication failed": "the user name or the password is wrong",
    "permission denied": "this user may not do that: it needs readwrite on the prefixes of its keys, "
    f"or read to look (see {RIGHTS})",
    "user name is empty": "it asks for a user: write etcd://USER:PASSWORD@…",
    "user name not found": "it asks for a user: write etcd://USER:PASSWORD@…",
    "authentication is not enabled": "it has no users: leave out the user and the password",
    "database space exceeded": "its space is used up (quota-backend-bytes): compact, defragment, disarm",
    "request is too large": "the record is larger than it takes (max-request-bytes)",
    "not supported for learner": "it is a learner: give the addresses of voting members",
}
PASSING = {
    "no leader": "it has no leader: too few of its members are up, or it elects one",
    "leader changed": "its leader has changed",
    "request timed out": "it found no agreement in time: too few of its members are up",
    "too many requests": "it is overloaded",
    "server stopped": "it is stopping",
    "raft: stopped": "it is stopping",
}


class Kind(Enum):
    """What to do about a failure."""

    ELSEWHERE = "elsewhere"  # another member may answer, or the same one soon
    LEASE = "lease"  # the lease is gone
    LOGIN = "login"  # the token has expired: authenticate again
    COMPACTED = "compacted"  # the revision is gone: read anew
    FINAL = "final"  # it will say the same tomorrow


def kind_of(error: Status) -> Kind:
    """Return what to do about a refusal."""
    detail = error.detail
    if NO_SUCH_LEASE in detail:
        return Kind.LEASE
    if "invalid auth token" in detail or "auth revision" in detail:
        return Kind.LOGIN
    if "compacted" in detail:
        return Kind.COMPACTED
    if (
        error.code not in PASSING_CODES
        or any(words in detail for words in LASTING)
        or "HTTP status" in detail
    ):
        return Kind.FINAL
    return Kind.ELSEWHERE


def said(label: str, error: Status) -> BackendUnavailable:
    """Return a refusal in one line."""
    detail = " ".join(error.detail.split())
    transient = kind_of(error) is Kind.ELSEWHERE
    meaning = next((told for words, told in {**LASTING, **PASSING}.items() if words in detail), None)
    if meaning is None:
        meaning = NO_ETCD if "HTTP status" in detail or "unknown service" in detail else detail[:LONGEST]
    return FAILURES.unavailable(f"{label}: {meaning}", transient=transient)
