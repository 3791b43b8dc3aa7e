"""The limit of a handoff on etcd: a queue of keys, oldest first; each watches the one before.

A key is put and the queue read in one transaction. Whoever is not the first watches from now on, and reads
the queue again if anything has happened in between: of what is past already, etcd tells ten times a second
only. Two connections, one of them to watch on. No token, no renewal, no time limit; a watch is left behind
by every wait.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.peers import Make
from bench.peers import etcd_calls as calls
from bench.peers.etcd_raw import DATA, END_STREAM, PING, SETTINGS, Connection, frame

__all__ = ["blocking"]

HEADER, REVISION, CREATED, EVENTS = 1, 3, 3, 11


class Eye(Connection):
    """A call that goes on: keys to watch one way, what happens to them the other."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.said = b""
        self.call_number = b""

    def watch(self, key: bytes) -> int:
        """Watch a key from now on; return the revision that is now."""
        head, body, message = self.pack(calls.WATCH, calls.watch(key))
        body, kind = body[:-5], body[-5:-1] + b"\0"  # it does not end here
        if self.call_number:
            self.socket.sendall(kind + self.call_number + message)
        else:
            self.call_number = self.number.to_bytes(4)
            self.socket.sendall(head + self.call_number + body + kind + self.call_number + message)
        while True:
            told = self.hear()
            if CREATED in told:
                header: dict[int, Any] = dict(calls.fields(told[HEADER]))
                return int(header[REVISION])

    def wait(self) -> None:
        """Wait until something has happened."""
        while EVENTS not in self.hear():
            pass

    def hear(self) -> dict[int, Any]:
        """Return the next message."""
        while len(self.said) < 5 or len(self.said) < (end := 5 + int.from_bytes(self.said[1:5])):
            kind, flags, _, payload = self._frame()
            if kind == DATA:
                self.said += payload
            elif kind in (SETTINGS, PING) and not flags & END_STREAM:
                self.socket.sendall(frame(kind, END_STREAM, 0, payload if kind == PING else b""))
        message, self.said = self.said[5:end], self.said[end:]
        return dict(calls.fields(message))

    def close(self) -> None:
        self.socket.close()


class Section:
    """A place in the queue."""

    def __init__(self, url: str, name: str) -> None:
        self.connection, self.eye = Connection(url), Eye(url)
        self.prefix, self.owner = f"queue/{name}/".encode(), os.urandom(8).hex()
        self.look = self.connection.pack(calls.RANGE, calls.look(self.prefix))
        self.numbers = itertools.count()
        self.key = b""

    def __enter__(self) -> None:
        connection = self.connection
        # Another key each time, so that what an old watch tells is not taken for news.
        self.key = self.prefix + f"{self.owner}-{next(self.numbers)}".encode()
        answer = connection.call(calls.TXN, calls.enter(self.key, self.prefix, connection.lease))
        revision, queue = entered(answer)
        while (place := queue.index(self.key)) > 0:
            if self.eye.watch(queue[place - 1]) == revision:
                self.eye.wait()
            revision, queue = queue_in(connection.send(self.look))

    def __exit__(self, *_: object) -> None:
        self.connection.call(calls.DELETE, calls.delete(self.key))


def entered(answer: bytes) -> tuple[int, list[bytes]]:
    """The revision and the queue, of a transaction that put a key and read."""
    header, *_, read = [value for number, value in calls.fields(answer) if number in (1, 3)]
    assert isinstance(header, bytes)
    assert isinstance(read, bytes)
    found: dict[int, Any] = dict(calls.fields(read))
    return int(dict(calls.fields(header))[REVISION]), queue_in(found[1])[1]


def queue_in(answer: bytes) -> tuple[int, list[bytes]]:
    """The revision and the keys, of a range that was read."""
    revision, keys = 0, []
    for number, value in calls.fields(answer):
        if isinstance(value, bytes):
            inner: dict[int, Any] = dict(calls.fields(value))
            if number == HEADER:
                revision = int(inner.get(REVISION, 0))
            elif number == 2:
                keys.append(inner[1])
    return revision, keys


@contextmanager
def blocking(url: str) -> Iterator[Make]:
    made: list[Section] = []

    def make(name: str) -> Section:
        made.append(Section(url, name))
        return made[-1]

    yield make
    for section in made:
        section.connection.close()
        section.eye.close()
