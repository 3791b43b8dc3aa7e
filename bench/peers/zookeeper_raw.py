"""The limit on ZooKeeper: a blocking socket, Jute packed by hand, one session for each section.

    pair   an ephemeral znode is created, and deleted
    queue  the znode is sequential as well, and whoever is not the first watches the one before: the recipe,
           with the create and the first look sent together
    beat   a heartbeat of the session, and nothing else: a ping, which no other member is asked about

No token, no time limit; the session is long, since nobody renews it here.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from struct import pack, unpack_from
from typing import Any
from urllib.parse import urlsplit

from bench.peers import Make

__all__ = ["blocking"]

SESSION = 600_000
"""Milliseconds; the server may give less."""
CREATE, DELETE, EXISTS, CHILDREN, PING, CLOSE = 1, 2, 3, 8, 11, -11
EPHEMERAL, SEQUENTIAL = 1, 2
EVENT, PING_NUMBER = -1, -2
NO_NODE, NODE_EXISTS = -101, -110
ACL = pack("!ii", 1, 31) + pack("!i", 5) + b"world" + pack("!i", 6) + b"anyone"
HEAD = 20
"""Bytes of a reply before what it says: length, number, transaction, error."""
ROOT = "/bench-raw"


class Refused(Exception):
    """The server's error number."""

    def __init__(self, code: int) -> None:
        super().__init__(f"error {code}")
        self.code = code


def text(value: str) -> bytes:
    return pack("!i", len(value)) + value.encode()


def creation(path: str, flags: int) -> bytes:
    return pack("!i", CREATE) + text(path) + pack("!i", 0) + ACL + pack("!i", flags)


def deletion(path: str) -> bytes:
    return pack("!i", DELETE) + text(path) + pack("!i", -1)


def look(path: str) -> bytes:
    return pack("!i", CHILDREN) + text(path) + b"\0"


def watch(path: str) -> bytes:
    return pack("!i", EXISTS) + text(path) + b"\1"


class Connection:
    """One socket, one session."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self.socket = socket.create_connection((place.hostname or "localhost", place.port or 2181))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.number = 0
        hello = pack("!iqiqi", 0, 0, SESSION, 0, 16) + bytes(16) + b"\0"
        self.socket.sendall(pack("!i", len(hello)) + hello)
        self._packet()
        self.make(ROOT)

    def make(self, path: str) -> None:
        """Create what stays, unless it is there."""
        try:
            self.ask(creation(path, 0))
        except Refused as refused:
            if refused.code != NODE_EXISTS:
                raise

    def ask(self, request: bytes) -> bytes:
        self.send(request)
        return self.reply()

    def send(self, *requests: bytes) -> None:
        parts = []
        for request in requests:
            self.number += 1
            parts.append(pack("!ii", len(request) + 4, self.number) + request)
        self.socket.sendall(b"".join(parts))

    def reply(self) -> bytes:
        """Return the next reply; events in between are for nobody."""
        while True:
            packet = self._packet()
            number, _, error = unpack_from("!iqi", packet, 4)
            if number == EVENT:
                continue
            if error:
                raise Refused(error)
            return packet[HEAD:]

    def event(self) -> None:
        """Wait for what was watched."""
        if unpack_from("!i", self._packet(), 4)[0] != EVENT:
            raise RuntimeError("something else than an event came")

    def _packet(self) -> bytes:
        buffer = self.buffer
        while len(buffer) < 4 or len(buffer) < (end := 4 + int.from_bytes(buffer[:4])):
            received = self.socket.recv(65536)
            if not received:
                raise ConnectionError("the server closed the connection")
            buffer += received
        self.buffer = buffer[end:]
        return buffer[:end]

    def close(self) -> None:
        self.ask(pack("!i", CLOSE))
        self.socket.close()


class Section:
    """The bare pair."""

    def __init__(self, url: str, name: str) -> None:
        self.connection = Connection(url)
        self.take, self.give = creation(f"{ROOT}/{name}", EPHEMERAL), deletion(f"{ROOT}/{name}")

    def __enter__(self) -> None:
        self.connection.ask(self.take)

    def __exit__(self, *_: object) -> None:
        self.connection.ask(self.give)


class QueueSection:
    """The recipe."""

    def __init__(self, url: str, name: str) -> None:
        self.connection = Connection(url)
        self.parent = f"{ROOT}/{name}-queue"
        self.connection.make(self.parent)
        self.take, self.look = creation(f"{self.parent}/", EPHEMERAL | SEQUENTIAL), look(self.parent)
        self.own = ""

    def __enter__(self) -> None:
        connection = self.connection
        connection.send(self.take, self.look)
        self.own = connection.reply()[4:].decode()
        queue = names_in(connection.reply())
        own = self.own.rpartition("/")[2]
        while (place := queue.index(own)) > 0:
            try:
                connection.ask(watch(f"{self.parent}/{queue[place - 1]}"))
            except Refused as refused:
                if refused.code != NO_NODE:
                    raise
                # A watch on what is not there would tell when it comes: it never does, numbers only rise.
            else:
                connection.event()
            queue = names_in(connection.ask(self.look))

    def __exit__(self, *_: object) -> None:
        self.connection.ask(deletion(self.own))


def names_in(reply: bytes) -> list[str]:
    """The children, in the order of their numbers, which all have as many digits."""
    (count,), at, names = unpack_from("!i", reply), 4, []
    for _ in range(count):
        end = at + 4 + int.from_bytes(reply[at : at + 4])
        names.append(reply[at + 4 : end].decode())
        at = end
    return sorted(names)


class Heartbeat:
    """What keeps the session alive."""

    def __init__(self, url: str, name: str) -> None:
        self.connection = Connection(url)
        self.beat = pack("!iii", 8, PING_NUMBER, PING)

    def __enter__(self) -> None:
        self.connection.socket.sendall(self.beat)
        self.connection.reply()

    def __exit__(self, *_: object) -> None:
        pass


KINDS = {"pair": Section, "queue": QueueSection, "beat": Heartbeat}


@contextmanager
def blocking(url: str, kind: str = "pair") -> Iterator[Make]:
    made: list[Any] = []

    def make(name: str) -> Any:
        made.append(KINDS[kind](url, name))
        return made[-1]

    yield make
    for section in made:
        section.connection.close()
