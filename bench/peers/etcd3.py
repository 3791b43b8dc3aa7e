"""etcd3's Lock, over grpcio: no queue, no fencing token, no renewal.

Settings: its own; the client and the Lock object are kept. Every acquisition makes a new lease and leaves it
behind: they are revoked in the end, so that their expiry does not slow down whoever comes next. With the
newest protobuf that its generated messages work with, which is an implementation in Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from bench.peers import TTL, Make
from bench.peers.etcd_calls import place_of

__all__ = ["blocking"]


class Section:
    def __init__(self, lock: Any, leases: list[Any]) -> None:
        self.lock = lock
        self.leases = leases

    def __enter__(self) -> None:
        if not self.lock.acquire():
            raise RuntimeError("it was held already")
        self.leases.append(self.lock.lease)

    def __exit__(self, *_: object) -> None:
        if not self.lock.release():
            raise RuntimeError("it was not held")


@contextmanager
def blocking(url: str) -> Iterator[Make]:
    host, port = place_of(url)
    client = import_module("etcd3").client(host=host, port=port)
    leases: list[Any] = []
    yield lambda name: Section(client.lock(f"etcd3/{name}", ttl=TTL), leases)
    for lease in leases:
        lease.revoke()
    client.close()
