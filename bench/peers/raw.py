"""The limit: a raw blocking socket, commands packed beforehand, replies parsed by hiredis.

The pair is the least that a lock on one Redis can do: `SET NX PX`, and compare-and-delete in a script.
No queue, no token, no renewal, no time limit.
"""

from __future__ import annotations

import gc
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol
from urllib.parse import urlsplit

import hiredis

from bench.peers import TTL, Make
from bench.peers.drills import at_length

__all__ = ["Connection", "blocking", "holding", "pipeline", "sections"]

RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"
RENEW = """
local renewed = 0
for _, key in ipairs(KEYS) do
  if redis.call('get', key) == ARGV[1] then renewed = renewed + redis.call('pexpire', key, ARGV[2]) end
end
return renewed
"""
OWNER = "0123456789abcdef"
CHUNK = 100


def pack(*words: str | int) -> bytes:
    packed: bytes = hiredis.pack_command(words)  # type: ignore[arg-type]  # its stub knows one word only
    return packed


class Connection:
    """One socket, and the replies that come from it, in order."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self.socket = socket.create_connection((place.hostname or "localhost", place.port or 6379))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = hiredis.Reader()

    def ask(self, *words: str | int) -> Any:
        return self.send(pack(*words))

    def send(self, packed: bytes) -> Any:
        """Send a packed command; return its reply."""
        self.socket.sendall(packed)
        return self.receive()

    def receive(self) -> Any:
        """Return the next reply."""
        reader = self.reader
        reply = reader.gets()
        while reply is False:
            received = self.socket.recv(65536)
            if not received:
                raise ConnectionError("the server closed the connection")
            reader.feed(received)
            reply = reader.gets()
        if isinstance(reply, hiredis.ReplyError):
            raise reply
        return reply

    def close(self) -> None:
        self.socket.close()


class Section:
    """The bare pair on a connection of its own."""

    def __init__(self, url: str, name: str) -> None:
        self.connection = Connection(url)
        self.take, self.give = _pair(self.connection, name)

    def __enter__(self) -> None:
        if self.connection.send(self.take) != b"OK":
            raise RuntimeError("the key was there already")

    def __exit__(self, *_: object) -> None:
        if self.connection.send(self.give) != 1:
            raise RuntimeError("the key was gone")


def _pair(connection: Connection, name: str) -> tuple[bytes, bytes]:
    script = connection.ask("SCRIPT", "LOAD", RELEASE).decode()
    take = pack("SET", f"raw:{name}", OWNER, "NX", "PX", TTL * 1000)
    return take, pack("EVALSHA", script, 1, f"raw:{name}", OWNER)


class Connected(Protocol):
    """A section with a connection of its own."""

    connection: Connection

    def __enter__(self) -> Any: ...
    def __exit__(self, *_: object) -> None: ...


@contextmanager
def sections(kind: Callable[[str, str], Connected], url: str) -> Iterator[Make]:
    """Give what makes such sections, and close their connections in the end."""
    made: list[Connected] = []

    def make(name: str) -> Any:
        made.append(kind(url, name))
        return made[-1]

    yield make
    for section in made:
        section.connection.close()


def blocking(url: str) -> AbstractContextManager[Make]:
    return sections(Section, url)


@contextmanager
def pipeline(url: str, tasks: int) -> Iterator[Any]:
    """As many pairs at a time as there are tasks: all takes in one send, then all gives."""
    connection = Connection(url)
    pairs = [_pair(connection, f"task-{number}") for number in range(tasks)]
    takes, gives = b"".join(take for take, _ in pairs), b"".join(give for _, give in pairs)

    def run(count: int) -> float:
        gc.collect()
        started = time.perf_counter()
        for _ in range(rounds := max(1, count // tasks)):
            for batch, wanted in ((takes, b"OK"), (gives, 1)):
                connection.socket.sendall(batch)
                if any(connection.receive() != wanted for _ in range(tasks)):
                    raise RuntimeError("a key was there already, or gone")
        return (time.perf_counter() - started) * count / (rounds * tasks)

    yield at_length(run)
    connection.close()


@contextmanager
def holding(url: str, count: int) -> Iterator[Callable[[], object]]:
    """Renew that many bare keys, a hundred in each script."""
    connection = Connection(url)
    script = connection.ask("SCRIPT", "LOAD", RENEW).decode()
    names = [f"raw:lease-{number}" for number in range(count)]
    for name in names:
        connection.ask("SET", name, OWNER, "PX", 300_000)

    def renew() -> None:
        renewed = 0
        for start in range(0, count, CHUNK):
            chunk = names[start : start + CHUNK]
            renewed += connection.ask("EVALSHA", script, len(chunk), *chunk, OWNER, 300_000)
        if renewed != count:
            raise RuntimeError(f"of {count} keys {renewed} were there")

    yield renew
    for start in range(0, count, CHUNK):
        connection.ask("DEL", *names[start : start + CHUNK])
    connection.close()
