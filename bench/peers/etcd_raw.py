"""The limit on etcd: a blocking socket, HTTP/2 frames packed by hand, and a lease that is kept.

    pair     the key is put if it is not there, and deleted if it is ours
    service  the lock service in the server: one call that waits, in the order of coming, and one that leaves
    beat     a heartbeat of the lease, and nothing else

Headers are sent without compression and answers are told by their messages, so no state is kept but the
number of the call. No queue of its own, no token, no renewal, no time limit.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.peers import Make
from bench.peers import etcd_calls as calls

__all__ = ["LEASE", "Connection", "blocking"]

LEASE = 600
"""Seconds: nobody renews it here."""
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
HEAD = 9
LARGE = b"\0\4" + ((1 << 31) - 1).to_bytes(4)
ROOM = (1 << 31) - 1 - 65535
"""Bytes that the server may send in a call, and in all; never used up here."""


def frame(kind: int, flags: int, call: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + call.to_bytes(4) + payload


def headers(path: str, authority: str) -> bytes:
    """HPACK without its table: names by their number where they have one, values as they are."""

    def text(value: str) -> bytes:
        return bytes([len(value)]) + value.encode()

    return b"".join(
        [
            b"\x83\x86\x04",  # :method POST, :scheme http, :path
            text(path),
            b"\x01" + text(authority),
            b"\x00" + text("te") + text("trailers"),
            b"\x0f\x10" + text("application/grpc"),  # content-type
        ]
    )


class Connection:
    """One socket, one call at a time, and a lease."""

    def __init__(self, url: str) -> None:
        self.host, self.port = calls.place_of(url)
        self.socket = socket.create_connection((self.host, self.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.number = 1
        self.socket.sendall(HELLO + frame(SETTINGS, 0, 0, LARGE) + frame(WINDOW, 0, 0, ROOM.to_bytes(4)))
        self.lease = calls.new_id()
        self.call(calls.GRANT, calls.grant(self.lease, LEASE))

    def pack(self, path: str, message: bytes) -> tuple[bytes, bytes, bytes]:
        """A call without its number, which belongs between the parts."""
        head = frame(HEADERS, END_HEADERS, 0, headers(path, f"{self.host}:{self.port}"))
        body = frame(DATA, END_STREAM, 0, b"\0" + len(message).to_bytes(4) + message)
        return head[:5], head[HEAD:] + body[:5], body[HEAD:]

    def call(self, path: str, message: bytes) -> bytes:
        return self.send(self.pack(path, message))

    def send(self, packed: tuple[bytes, bytes, bytes]) -> bytes:
        """Make a call; return the one message of its answer."""
        number = self.number.to_bytes(4)
        self.number += 2
        self.socket.sendall(number.join(packed))
        answer = b""
        while True:
            kind, flags, call, payload = self._frame()
            if kind == DATA:
                answer += payload
            elif kind in (SETTINGS, PING) and not flags & ACK:
                self.socket.sendall(frame(kind, ACK, 0, payload if kind == PING else b""))
                continue
            elif kind in (RESET, GOAWAY):
                raise ConnectionError("the server broke off the call")
            if flags & END_STREAM and kind in (DATA, HEADERS) and call == number:
                if not answer:
                    raise RuntimeError("the server refused the call")
                return answer[5:]

    def _frame(self) -> tuple[int, int, bytes, bytes]:
        buffer = self.buffer
        while len(buffer) < HEAD or len(buffer) < (end := HEAD + int.from_bytes(buffer[:3])):
            received = self.socket.recv(65536)
            if not received:
                raise ConnectionError("the server closed the connection")
            buffer += received
        self.buffer = buffer[end:]
        return buffer[3], buffer[4], buffer[5:HEAD], buffer[HEAD:end]

    def close(self) -> None:
        self.call(calls.REVOKE, calls.named(self.lease))
        self.socket.close()


class Section:
    """The bare pair."""

    def __init__(self, url: str, name: str) -> None:
        self.connection = Connection(url)
        key, owner = f"raw/{name}".encode(), os.urandom(8).hex().encode()
        self.take = self.connection.pack(calls.TXN, calls.take(key, owner, self.connection.lease))
        self.give = self.connection.pack(calls.TXN, calls.give(key, owner))

    def __enter__(self) -> None:
        if not calls.is_done(self.connection.send(self.take)):
            raise RuntimeError("the key was there already")

    def __exit__(self, *_: object) -> None:
        if not calls.is_done(self.connection.send(self.give)):
            raise RuntimeError("the key was gone")


class ServiceSection:
    """The server's own lock."""

    def __init__(self, url: str, name: str) -> None:
        self.connection = Connection(url)
        self.take = self.connection.pack(
            calls.LOCK, calls.lock(f"raw/{name}".encode(), self.connection.lease)
        )
        self.key = b""

    def __enter__(self) -> None:
        self.key = calls.key_in(self.connection.send(self.take))

    def __exit__(self, *_: object) -> None:
        self.connection.call(calls.UNLOCK, calls.unlock(self.key))


class Heartbeat:
    """What keeps the lease alive."""

    def __init__(self, url: str, name: str) -> None:
        self.connection = Connection(url)
        self.beat = self.connection.pack(calls.KEEP_ALIVE, calls.named(self.connection.lease))

    def __enter__(self) -> None:
        self.connection.send(self.beat)

    def __exit__(self, *_: object) -> None:
        pass


KINDS = {"pair": Section, "service": ServiceSection, "beat": Heartbeat}


@contextmanager
def blocking(url: str, kind: str = "pair") -> Iterator[Make]:
    made: list[Any] = []

    def make(name: str) -> Any:
        made.append(KINDS[kind](url, name))
        return made[-1]

    yield make
    for section in made:
        section.connection.close()
