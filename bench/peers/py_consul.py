"""py-consul, which has no lock: its calls to acquire a key for a session, and to release it.

Settings: its own; the client and the session are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from bench.peers import Make
from bench.peers.consul_raw import place_of

__all__ = ["blocking"]

SESSION = 3600
"""Seconds: nobody renews it here."""


class Section:
    def __init__(self, client: Any, name: str, session: str) -> None:
        self.kv = client.kv
        self.key = f"py-consul/{name}"
        self.session = session

    def __enter__(self) -> None:
        if not self.kv.put(self.key, "bench", acquire=self.session):
            raise RuntimeError("it was held already")

    def __exit__(self, *_: object) -> None:
        if not self.kv.put(self.key, "bench", release=self.session):
            raise RuntimeError("it was not held")


@contextmanager
def blocking(url: str) -> Iterator[Make]:
    host, port = place_of(url)
    client = import_module("consul").Consul(host=host, port=port)
    session = client.session.create(behavior="delete", ttl=SESSION, lock_delay=0)
    yield lambda name: Section(client, name, session)
    client.session.destroy(session)
