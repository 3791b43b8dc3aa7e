"""A node, and how it is greeted: what every connection to it begins with.

A node that was restarted has broken all its connections, so it is enough to look at its memory once
for each connection, before anything is asked over it (see `greet.lua`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

import hiredis

from fencelock.backends.redis.server import Server
from fencelock.backends.redlock.commands import GREET, pack
from fencelock.backends.redlock.failures import Silence, broke, explain, no_connection, said
from fencelock.backends.redlock.keys import MEMORY
from fencelock.errors import ConfigurationError, FencelockError

__all__ = ["Greeting", "Hello", "Node", "Refused", "check_twins", "greeting"]

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
OWED = 1024

Greeting = Generator[Sequence[bytes], Sequence[Any], "Hello"]
"""Yields commands, is sent their replies, and returns what the node is."""


class Hello(NamedTuple):
    """What a node says of itself."""

    run: str
    is_member: bool


class Refused(Exception):
    """The node is there, but will not do."""

    def __init__(self, silence: Silence) -> None:
        super().__init__(silence.why)
        self.silence = silence


class Node:
    """One server, as all connections of a client know it."""

    def __init__(self, index: int, server: Server) -> None:
        self.index = index
        self.server = server
        self.label = server.label
        self.run = ""
        self.trouble = no_connection()
        """Why there is no connection, while there is none."""
        self.retry_at = 0.0
        self._pause = FIRST_PAUSE
        self._owed: deque[tuple[float, bytes]] = deque(maxlen=OWED)

    def is_due(self, now: float, needed: bool) -> bool:
        """Whether to connect now; sooner if there are too few without it."""
        return now >= self.retry_at - (self._pause - FIRST_PAUSE if needed else 0.0)

    def connected(self, hello: Hello) -> None:
        """A connection stands."""
        self.run = hello.run
        self.retry_at = 0.0
        self._pause = FIRST_PAUSE
        self.trouble = no_connection()

    def failed(self, silence: Silence, now: float) -> None:
        """A connection could not be made, or broke."""
        self.trouble = silence
        self.retry_at = now + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def explain(self, error: Exception) -> Silence:
        """Why connecting failed."""
        if isinstance(error, Refused):
            return error.silence
        if isinstance(error, FencelockError):
            return explain(self.label, error)
        return broke(self.label, error, greeted=False, tls=self.server.tls)

    def owe(self, call: bytes, until: float) -> None:
        """It cannot be reached and may have a lock that is to be given back."""
        self._owed.append((until, call))

    def owed(self, now: float) -> list[bytes]:
        """Return what was owed and has not expired there by itself."""
        calls = [call for until, call in self._owed if until > now]
        self._owed.clear()
        return calls


def greeting(node: Node, left_out: float) -> Greeting:
    """Ask whether a restart loses nothing there, then look at its memory."""
    appendonly, appendfsync = yield (
        pack("CONFIG", "GET", "appendonly"),
        pack("CONFIG", "GET", "appendfsync"),
    )
    durable = _setting(appendonly) == b"yes" and _setting(appendfsync) == b"always"
    call = GREET.call([MEMORY], b"1" if durable else b"0", b"%d" % (left_out * 1000))
    (answer,) = yield (GREET.in_full(call),)
    if isinstance(answer, hiredis.ReplyError):
        raise Refused(said(node.label, answer))
    if not isinstance(answer, list):
        raise Refused(Silence("it does not speak the Redis protocol", lasting=True))
    return Hello(answer[1].decode(), answer[0] == b"member")


def _setting(reply: Any) -> bytes | None:
    """Return a setting, or `None` where it may not be asked for: then nothing is taken for granted."""
    return reply[1] if isinstance(reply, list) and len(reply) == 2 else None


def check_twins(nodes: Sequence[Node]) -> None:
    """Raise if two nodes are one server."""
    seen: dict[str, Node] = {}
    for node in nodes:
        other = seen.setdefault(node.run, node) if node.run else node
        if other is not node:
            raise ConfigurationError(
                f"redlock: {other.label} and {node.label} are one server, and it would vote twice: "
                "give each server once"
            )
