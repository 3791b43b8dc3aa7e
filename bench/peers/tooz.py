"""tooz: its Redis driver, which wraps redis-py's Lock; no queue, no fencing token.

Settings: a started coordinator without its heartbeat thread, `lock_timeout` as for everybody; the lock
object is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from bench.peers import TTL, Make

__all__ = ["blocking"]


@contextmanager
def blocking(url: str) -> Iterator[Make]:
    coordination = import_module("tooz.coordination")
    coordinator = coordination.get_coordinator(f"{url}?lock_timeout={TTL}&timeout={TTL}", b"bench")
    coordinator.start()
    yield lambda name: coordinator.get_lock(name.encode())
    coordinator.stop()
