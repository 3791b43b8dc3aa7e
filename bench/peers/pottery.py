"""pottery: Redlock and AIORedlock; no queue, no fencing token, no renewal of its own.

Settings: one client for all locks; `auto_release_time` as for everybody; the lock object is kept. It asks
its nodes through a thread pool that is made for each call, even if there is but one node. asyncio with a
pool of connections that is as large as there are tasks. Several nodes are several URLs, with spaces between.
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
    redis = import_module("redis").Redis
    clients = {redis.from_url(node) for node in url.split()}
    yield lambda name: library.Redlock(key=name, masters=clients, auto_release_time=TTL)
    for client in clients:
        client.close()


@asynccontextmanager
async def asynchronous(url: str, tasks: int) -> AsyncIterator[AsyncMake]:
    library = import_module("pottery")
    redis = import_module("redis.asyncio").Redis
    clients = {redis.from_url(node, max_connections=tasks + 1) for node in url.split()}
    yield lambda name: library.AIORedlock(key=name, masters=clients, auto_release_time=TTL)
    for client in clients:
        await client.aclose()
