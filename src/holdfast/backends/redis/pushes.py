"""Pushes: one listening connection for each client, however many of its requests wait.

A script that admits a waiter publishes "g", its owner and its token on its client's channel; force release
publishes "x". A push counts only for the token that the waiter stood in the queue with when it was
last told to wait: a push from before an expiry, still on its way, means nothing.

A push may come before the reply that tells to wait, over the other connection; so pushes for
owners that are not known yet are kept for a while. Pushes are lost while the connection is down:
`wait` then listens anew and answers "nothing", and the waiter looks for itself. It does the same
when another server has taken over: a stopped primary does not hang up.

What both flavours have in common is here; `listening.py` and `subscription.py` are the two.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from holdfast.backends.redis.failures import BACKEND
from holdfast.backends.redis.server import Server
from holdfast.errors import BackendUnavailable

__all__ = ["Early", "Listener", "Lost", "no_pushes", "read"]

EARLY = 1024
Lost = Callable[[str, str], None]


class Early:
    """Pushes for owners that nobody waits for yet, the latest so many."""

    def __init__(self) -> None:
        self._tokens: dict[str, int] = {}

    def put(self, owner: str, token: int) -> None:
        if len(self._tokens) >= EARLY:
            self._tokens.clear()  # they cost latency, not liveness
        self._tokens[owner] = token

    def take(self, owner: str) -> int | None:
        return self._tokens.pop(owner, None) if self._tokens else None


def read(message: Any) -> tuple[str, str, int] | None:
    """Return kind, owner and token of a push; `None` for what else a subscription says."""
    if not isinstance(message, list) or message[0] != b"message":
        return None
    text = message[2].decode("ascii", "replace")
    return text[0], text[1:33], int(text[33:])


def no_pushes(server: Server, why: object = "no pushes", *, transient: bool = True) -> BackendUnavailable:
    """The server cannot be listened to, or will not have it."""
    return BackendUnavailable(backend=BACKEND, detail=f"{server.label}: {why}", transient=transient)


class Listener(ABC):
    """Pushes for all who wait in one client."""

    def __init__(self, lost: Lost) -> None:
        self._lost = lost
        self._early = Early()
        self._server: Server | None = None
        """Whom it listens to, or last did."""

    @abstractmethod
    async def wait(self, owner: str, token: int, deadline: float) -> bool:
        """Return whether the request was pushed a grant under this token, by the deadline."""

    @abstractmethod
    def granted(self, owner: str, token: int) -> None:
        """A grant was pushed: tell whoever waits for it, or keep it for who will."""

    @abstractmethod
    async def close(self) -> None:
        """Stop listening."""

    @abstractmethod
    def drop(self) -> None:
        """In a forked child: the parent goes on listening."""

    def deliver(self, message: Any) -> None:
        """Pass a push on."""
        push = read(message)
        if push is None:
            return
        kind, owner, token = push
        if kind == "x":
            self._lost(owner, "it was force-released")
        else:
            self.granted(owner, token)
