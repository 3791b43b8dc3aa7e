"""What people write by hand with kazoo: an ephemeral znode is created, and deleted; nothing else.

Settings: one client with its own threads, started once; the session is as long as everybody's ttl.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from bench.peers import TTL, Make

__all__ = ["blocking", "started"]

ROOT = "/bench-kazoo"


class Section:
    def __init__(self, client: Any, name: str) -> None:
        self.client = client
        self.path = f"{ROOT}/{name}"

    def __enter__(self) -> None:
        self.client.create(self.path, ephemeral=True)

    def __exit__(self, *_: object) -> None:
        self.client.delete(self.path)


@contextmanager
def started(url: str) -> Iterator[Any]:
    client = import_module("kazoo.client").KazooClient(hosts=url.partition("://")[2], timeout=TTL)
    client.start()
    yield client
    client.stop()
    client.close()


@contextmanager
def blocking(url: str) -> Iterator[Make]:
    with started(url) as client:
        client.ensure_path(ROOT)
        yield lambda name: Section(client, name)
