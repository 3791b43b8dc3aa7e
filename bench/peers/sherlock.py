"""sherlock: RedisLock, two scripts and polling; no queue, no fencing token, no renewal.

Settings: the client is given, `expire` as for everybody, `timeout` and `retry_interval` by default 10 s and
0.1 s; the lock object is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from bench.peers import TTL, Make

__all__ = ["blocking"]


@contextmanager
def blocking(url: str) -> Iterator[Make]:
    client = import_module("redis").StrictRedis.from_url(url)
    library = import_module("sherlock")
    yield lambda name: library.RedisLock(f"sherlock:{name}", client=client, expire=TTL)
    client.close()
