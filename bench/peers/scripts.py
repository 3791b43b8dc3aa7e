"""fencelock's own scripts over bare sockets: what is left of fencelock if its client cost nothing.

The same acquire and leave, the same queue, token and push, packed beforehand; a second socket listens. No
renewal, no loss, no time limit, nothing that another thread could share. What lies between this and
fencelock is Python; what lies between this and the limit is what the promises cost on the server and in
trips.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager

from bench.peers import TTL, Make
from bench.peers.raw import Connection, sections
from fencelock.backends.base import Origin, Request, patience
from fencelock.backends.redis.commands import ACQUIRE, LEAVE, pack, word
from fencelock.backends.redis.keys import Places
from fencelock.backends.redis.records import tail

__all__ = ["blocking"]


class Listening(Connection):
    """A connection, and another one that pushes come over."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.pushes = Connection(url)

    def close(self) -> None:
        self.pushes.close()
        super().close()


class Section:
    """The lock, on two connections of its own."""

    def __init__(self, url: str, name: str) -> None:
        listening = Listening(url)
        self.connection: Connection = listening
        self.pushes = listening.pushes
        owner, channel = os.urandom(16).hex(), b"fencelock:%b" % os.urandom(8).hex().encode()
        place = Places("scripts").find(name)
        request = Request(owner, name, "exclusive", 1, TTL, Origin("scripts", "localhost", os.getpid()), None)
        times = (b"%d" % (TTL * 1_000_000), b"%d" % (TTL * 1000), b"%d" % (patience(TTL) * 1e6))
        rest = tail(request, channel)
        self.take = b"".join(
            [ACQUIRE.head(2, 6), place.with_counter, *map(word, (owner.encode(), *times, rest, b"wait"))]
        )
        self.give = b"%b%b$32\r\n%b\r\n$16\r\n%%016d\r\n" % (LEAVE.head(1, 2), place.packed, owner.encode())
        for script in (ACQUIRE, LEAVE):
            self.connection.ask("SCRIPT", "LOAD", script.text)
        self.pushes.send(pack("SUBSCRIBE", channel))
        self.token = 0

    def __enter__(self) -> None:
        reply = self.connection.send(self.take)
        if reply.__class__ is not int:
            reply = reply[0]
            if int(self.pushes.receive()[2][33:]) != reply:
                raise RuntimeError("somebody else's turn")
        self.token = reply

    def __exit__(self, *_: object) -> None:
        if self.connection.send(self.give % self.token) != 1:
            raise RuntimeError("the lock was gone")


def blocking(url: str) -> AbstractContextManager[Make]:
    return sections(Section, url)
