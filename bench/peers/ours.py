"""fencelock, with everything on: queue, fencing token, renewal, loss detection. The lock object is kept.

`scheme` chooses another backend on the same server, `through` another way to it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import fencelock
from bench.peers import TTL, AsyncMake, Make

__all__ = ["asynchronous", "blocking", "holding"]


def place(url: str, scheme: str | None, through: str | None) -> str:
    own, _, rest = (through or url).partition("://")
    return f"{scheme or own}://{rest}"


@contextmanager
def blocking(url: str, scheme: str | None = None, through: str | None = None) -> Iterator[Make]:
    with fencelock.Client(place(url, scheme, through)) as locks:
        yield lambda name: locks.lock(name, ttl=TTL)


@asynccontextmanager
async def asynchronous(
    url: str, tasks: int, scheme: str | None = None, through: str | None = None
) -> AsyncIterator[AsyncMake]:
    async with fencelock.AsyncClient(place(url, scheme, through)) as locks:
        yield lambda name: locks.lock(name, ttl=TTL)


@contextmanager
def holding(url: str, count: int) -> Iterator[Callable[[], object]]:
    """Hold that many leases, and renew them all as the renewer does."""
    from bench.suites.leases import held, sweep

    with held(url, count, f"lease-{os.getpid()}-{count}") as locks:
        yield lambda: sweep(locks)
