"""The limit on Consul: a blocking socket, requests packed beforehand, one session for each section.

    pair   a key is acquired for the session, and released: two writes
    herd   the same, and whoever did not get it waits for a change of the key by a blocking query, then tries
           again, as `consul lock` does: everybody who waits is woken
    beat   a heartbeat of the session, and nothing else

No queue, no token; the session is long, since nobody renews it here, and has no lock delay.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from bench.peers import Make

__all__ = ["SESSION", "blocking", "place_of"]

SESSION = {"TTL": "3600s", "LockDelay": "0s", "Behavior": "delete"}
PATIENCE = "10s"


def place_of(url: str) -> tuple[str, int]:
    place = urlsplit(url)
    return place.hostname or "localhost", place.port or 8500


class Connection:
    """One connection that is kept, and a session."""

    def __init__(self, url: str) -> None:
        self.place = place_of(url)
        self.socket = socket.create_connection(self.place)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        made = self.send(self.pack("PUT", "/v1/session/create", json.dumps(SESSION)))
        self.session: str = json.loads(made[1])["ID"]

    def pack(self, method: str, path: str, body: str = "") -> bytes:
        head = f"{method} {path} HTTP/1.1\r\nHost: {self.place[0]}:{self.place[1]}\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()

    def send(self, packed: bytes) -> tuple[bytes, bytes]:
        """Make a call; return the head of its answer and the body."""
        self.socket.sendall(packed)
        while (split := self.buffer.find(b"\r\n\r\n")) < 0:
            self._receive()
        head = self.buffer[:split]
        end = split + 4 + number_in(head, b"Content-Length: ")
        while len(self.buffer) < end:
            self._receive()
        body, self.buffer = self.buffer[split + 4 : end], self.buffer[end:]
        return head, body

    def _receive(self) -> None:
        received = self.socket.recv(65536)
        if not received:
            raise ConnectionError("the server closed the connection")
        self.buffer += received

    def close(self) -> None:
        self.send(self.pack("PUT", f"/v1/session/destroy/{self.session}"))
        self.socket.close()


def number_in(head: bytes, name: bytes) -> int:
    """The number in a header; 0 if there is none."""
    return int(head.partition(name)[2].partition(b"\r")[0] or 0)


class Section:
    """The bare pair."""

    def __init__(self, url: str, name: str) -> None:
        self.connection = Connection(url)
        self.path = f"/v1/kv/raw/{name}"
        session = self.connection.session
        self.take = self.connection.pack("PUT", f"{self.path}?acquire={session}", "bench")
        self.give = self.connection.pack("PUT", f"{self.path}?release={session}", "bench")

    def __enter__(self) -> None:
        if not self.try_it():
            raise RuntimeError("it was held already")

    def try_it(self) -> bool:
        return self.connection.send(self.take)[1].startswith(b"true")

    def __exit__(self, *_: object) -> None:
        if not self.connection.send(self.give)[1].startswith(b"true"):
            raise RuntimeError("it was not held")


class HerdSection(Section):
    """The bare pair, waited for."""

    def __enter__(self) -> None:
        while not self.try_it():
            index = ""
            while True:
                head, body = self.connection.send(self.connection.pack("GET", f"{self.path}?{index}"))
                if b'"Session"' not in body:
                    break
                index = f"wait={PATIENCE}&index={number_in(head, b'X-Consul-Index: ')}"


class Heartbeat:
    """What keeps the session alive."""

    def __init__(self, url: str, name: str) -> None:
        self.connection = Connection(url)
        self.beat = self.connection.pack("PUT", f"/v1/session/renew/{self.connection.session}")

    def __enter__(self) -> None:
        if not self.connection.send(self.beat)[1].startswith(b"["):
            raise RuntimeError("the session was gone")

    def __exit__(self, *_: object) -> None:
        pass


KINDS = {"pair": Section, "herd": HerdSection, "beat": Heartbeat}


@contextmanager
def blocking(url: str, kind: str = "pair") -> Iterator[Make]:
    made: list[Any] = []

    def make(name: str) -> Any:
        made.append(KINDS[kind](url, name))
        return made[-1]

    yield make
    for section in made:
        section.connection.close()
