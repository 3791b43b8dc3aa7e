"""pottery: Redlock and AIORedlock on one node; no queue, no fencing token, no renewal of its own.

Settings: one client for all locks; `auto_release_time` as for everybody; the lock object is kept. It asks
its nodes through a thread pool that is made for each call, even if there is but one node. asyncio with a
pool of connections that is as large as there are tasks.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module

from bench.peers import TTL, AsyncMake, Make

__all__ = ["asynchronous", "blocking"]


@contextmanager
def blocking(url: str) -> Iterator[Make]:
    library = import_module("pottery")
    client = import_module("redis").Redis.from_url(url)
    yield lambda name: library.Redlock(key=name, masters={client}, auto_release_time=TTL)
    client.close()


@asynccontextmanager
async def asynchronous(url: str, tasks: int) -> AsyncIterator[AsyncMake]:
    library = import_module("pottery")
    client = import_module("redis.asyncio").Redis.from_url(url, max_connections=tasks + 1)
    yield lambda name: library.AIORedlock(key=name, masters={client}, auto_release_time=TTL)
    await client.aclose()
