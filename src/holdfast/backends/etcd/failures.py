"""What etcd and gRPC say when something is wrong, in holdfast's words. Never a password.

`BackendUnavailable` is what may pass: no connection, no leader, an election. It is not transient where
asking again in a second cannot help: a wrong password, a missing right, a server that is no etcd.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import grpc

from holdfast.errors import BackendUnavailable

__all__ = ["BACKEND", "Kind", "closed", "kind_of", "no_answer", "said"]

BACKEND = "etcd"
LONGEST = 200

NO_SUCH_LEASE = "requested lease not found"
LASTING = {
    "authentication failed": "the user name or the password is wrong",
    "permission denied": "this user may not read and write the keys of its locks: grant it both on the prefix",
    "user name is empty": "it asks for a user: write etcd://USER:PASSWORD@…",
    "user name not found": "it asks for a user: write etcd://USER:PASSWORD@…",
    "authentication is not enabled": "it has no users: leave out the user and the password",
    "database space exceeded": "its space is used up (quota-backend-bytes): compact, defragment and disarm it",
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


def kind_of(error: Any) -> Kind:
    """Return what to do about an error of gRPC's."""
    code, detail = error.code(), str(error.details() or "")
    if NO_SUCH_LEASE in detail:
        return Kind.LEASE
    if "invalid auth token" in detail or "auth revision" in detail:
        return Kind.LOGIN
    if "compacted" in detail:
        return Kind.COMPACTED
    if any(words in detail for words in LASTING):
        return Kind.FINAL
    passing = {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.CANCELLED,
    }
    if code in passing and not _is_no_etcd(detail) and "certificate" not in detail.lower():
        return Kind.ELSEWHERE
    return Kind.FINAL


def said(label: str, error: Any) -> BackendUnavailable:
    """Return an error of gRPC's in one line."""
    detail = " ".join(str(error.details() or "").split())
    transient = kind_of(error) is Kind.ELSEWHERE
    for words, meaning in {**LASTING, **PASSING}.items():
        if words in detail:
            return BackendUnavailable(backend=BACKEND, detail=f"{label}: {meaning}", transient=transient)
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return no_answer(label)
    if _is_no_etcd(detail):
        meaning = "it does not speak etcd's protocol: is this the client port, and is TLS on or off on both sides?"
    elif "certificate" in detail.lower() or "ssl" in detail.lower() or "handshake" in detail.lower():
        meaning = f"no TLS connection: {_reason(detail)}"
    elif "refused" in detail.lower():
        meaning = "connection refused"
    elif "name resolution" in detail.lower() or "dns" in detail.lower():
        meaning = "no such host"
    else:
        meaning = _reason(detail) or error.code().name.lower().replace("_", " ")
    return BackendUnavailable(backend=BACKEND, detail=f"{label}: {meaning}", transient=transient)


def _is_no_etcd(detail: str) -> bool:
    return "Trying to connect an http1.x server" in detail or "unknown service" in detail or "HTTP status" in detail


def _reason(detail: str) -> str:
    _, _, last = detail.rpartition("Failed to connect to remote host: ")
    return last[:LONGEST]


def no_answer(label: str) -> BackendUnavailable:
    """No answer by the deadline."""
    return BackendUnavailable(backend=BACKEND, detail=f"{label}: no answer in time")


def closed() -> BackendUnavailable:
    """The client was closed meanwhile."""
    return BackendUnavailable(backend=BACKEND, detail="the client is closed")
