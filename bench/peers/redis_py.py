"""redis-py's own Lock, blocking and asyncio: no queue, no fencing token, no renewal.

Settings: hiredis is installed, which redis-py uses by itself; the Lock object is kept and entered again;
blocking with the default pool, where a thread finds a free connection; asyncio with a pool that is
as large as there are tasks, so that nobody waits for a connection. `sleep` is its interval of polling,
0.1 s by default.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module

from bench.peers import TTL, AsyncMake, Make

__all__ = ["asynchronous", "blocking", "holding"]

SLEEP = 0.1


@contextmanager
def blocking(url: str, sleep: float = SLEEP) -> Iterator[Make]:
    client = import_module("redis").Redis.from_url(url)
    yield lambda name: client.lock(f"redis-py:{name}", timeout=TTL, sleep=sleep)
    client.close()


@asynccontextmanager
async def asynchronous(url: str, tasks: int, sleep: float = SLEEP) -> AsyncIterator[AsyncMake]:
    client = import_module("redis.asyncio").Redis.from_url(url, max_connections=tasks + 1)
    yield lambda name: client.lock(f"redis-py:{name}", timeout=TTL, sleep=sleep)
    await client.aclose()


@contextmanager
def holding(url: str, count: int) -> Iterator[Callable[[], object]]:
    """Renew that many in turn, each by its own `reacquire`: there is nothing that renews several."""
    client = import_module("redis").Redis.from_url(url)
    locks = [client.lock(f"redis-py:lease-{number}", timeout=300) for number in range(count)]
    for lock in locks:
        lock.acquire()

    def renew() -> None:
        for lock in locks:
            lock.reacquire()

    yield renew
    for lock in locks:
        lock.release()
    client.close()
