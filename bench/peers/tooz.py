"""tooz: a Lock of its driver for the server's kind; no queue, no fencing token.

Settings: a started coordinator without its heartbeat thread; the lock object is kept. On Redis, where it
wraps redis-py's Lock, `lock_timeout` is as for everybody. On PostgreSQL and MySQL it holds session locks
and connects anew for each acquisition.
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
    options = f"?lock_timeout={TTL}&timeout={TTL}" if url.startswith("redis") else ""
    coordinator = coordination.get_coordinator(f"{url}{options}", b"bench")
    coordinator.start()
    yield lambda name: coordinator.get_lock(name.encode())
    coordinator.stop()
