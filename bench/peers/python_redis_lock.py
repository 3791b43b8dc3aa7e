"""python-redis-lock: a signal list wakes one waiter, which then competes; no fencing token.

Settings: `expire` as for everybody; without `auto_renewal`, which would start a thread for each
acquisition; the Lock object is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from bench.peers import TTL, Make

__all__ = ["blocking"]


@contextmanager
def blocking(url: str) -> Iterator[Make]:
    library = import_module("redis_lock")
    client = import_module("redis").StrictRedis.from_url(url)
    yield lambda name: library.Lock(client, name, expire=TTL)
    client.close()
