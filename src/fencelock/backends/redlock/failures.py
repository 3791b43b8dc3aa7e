"""Why a node did not vote, in words, and the error that tells of all of them."""

from __future__ import annotations

from collections.abc import Mapping

import hiredis

from fencelock.backends.redis import failures as redis
from fencelock.errors import BackendUnavailable, FencelockError, QuorumNotReached

__all__ = [
    "BACKEND",
    "Silence",
    "TooFewNodes",
    "broke",
    "explain",
    "late",
    "left_out",
    "no_connection",
    "said",
]

BACKEND = "redlock"
ADVICE = {
    "redis:// instead of rediss://": "tls=no",
    "write rediss://": "write ?tls=yes",
    "redis://": "redlock://",
}


class Silence:
    """A node did not vote. `lasting`: asking again in a second cannot help."""

    __slots__ = ("lasting", "why")

    def __init__(self, why: str, *, lasting: bool = False) -> None:
        self.why = why
        self.lasting = lasting

    def __repr__(self) -> str:
        return f"<Silence {self.why!r}>"


class TooFewNodes(QuorumNotReached, BackendUnavailable):
    """Fewer nodes than a quorum answered: `QuorumNotReached`, and as unavailable as a backend can be.

    It is both, so that whoever waits for the lock rides out a short outage here as on every backend.
    """

    def __init__(self, *, backend: str, votes: Mapping[str, str], transient: bool = True) -> None:
        super().__init__(backend=backend, votes=votes)
        self.transient = transient


def late() -> Silence:
    """The time was over before the answer was there."""
    return Silence("no answer in time")


def no_connection() -> Silence:
    """It is being connected to."""
    return Silence("no connection yet")


def left_out() -> Silence:
    """It lost its memory, or has none yet."""
    return Silence("left out: it lost its memory")


def broke(label: str, error: Exception, *, greeted: bool = True, tls: bool = False) -> Silence:
    """The connection failed, perhaps before a word was said."""
    if isinstance(error, hiredis.ProtocolError):
        return Silence("it does not speak the Redis protocol", lasting=True)
    silence = explain(label, redis.unreachable(label, error))
    if isinstance(error, ConnectionResetError) and not greeted and not tls:
        silence.why += " (does it expect TLS? then write ?tls=yes)"
    return silence


def said(label: str, error: Exception) -> Silence:
    """The node answered with an error."""
    return explain(label, redis.said(label, str(error)))


def explain(label: str, error: FencelockError) -> Silence:
    """What the single server's errors say, without what they begin with."""
    if isinstance(error, BackendUnavailable):
        return Silence(_here(error.detail.removeprefix(f"{label}: ")), lasting=not error.transient)
    return Silence(_here(str(error)), lasting=True)


def _here(advice: str) -> str:
    """Say what to write in a URL of this scheme instead of the single server's."""
    for there, here in ADVICE.items():
        advice = advice.replace(there, here)
    return advice
