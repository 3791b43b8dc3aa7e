"""redlock-py, blocking only: asks its nodes one after the other; no queue, no fencing token, no renewal.

Settings: its own; the manager is kept. Several nodes are several URLs, with spaces between.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from bench.peers import TTL, Make

__all__ = ["blocking"]


class Section:
    def __init__(self, manager: Any, name: str) -> None:
        self.manager = manager
        self.name = f"redlock-py:{name}"

    def __enter__(self) -> None:
        self.lock = self.manager.lock(self.name, TTL * 1000)
        if not self.lock:
            raise RuntimeError("not acquired")

    def __exit__(self, *_: object) -> None:
        self.manager.unlock(self.lock)


@contextmanager
def blocking(url: str) -> Iterator[Make]:
    manager = import_module("redlock").Redlock(url.split())
    yield lambda name: Section(manager, name)
