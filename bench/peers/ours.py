"""holdfast, with everything on: queue, fencing token, renewal, loss detection. The lock object is kept.

`scheme` chooses another backend on the same server, `through` another way to it.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import holdfast
from bench.peers import TTL, AsyncMake, Make

__all__ = ["asynchronous", "blocking", "leases"]


def place(url: str, scheme: str | None, through: str | None) -> str:
    own, _, rest = (through or url).partition("://")
    return f"{scheme or own}://{rest}"


@contextmanager
def blocking(url: str, scheme: str | None = None, through: str | None = None) -> Iterator[Make]:
    with holdfast.Client(place(url, scheme, through)) as locks:
        yield lambda name: locks.lock(name, ttl=TTL)


@asynccontextmanager
async def asynchronous(
    url: str, tasks: int, scheme: str | None = None, through: str | None = None
) -> AsyncIterator[AsyncMake]:
    async with holdfast.AsyncClient(place(url, scheme, through)) as locks:
        yield lambda name: locks.lock(name, ttl=TTL)


@contextmanager
def leases(url: str, count: int) -> Iterator[Any]:
    """Hold that many leases, and renew them all, as the suite for the other backends does."""
    from bench.suites.leases import held, resident, sweep

    with held(url, 10) as locks:
        sweep(locks)  # what is imported and opened on first use is no part of the leases
    before, threads = resident(), threading.active_count()
    with held(url, count) as locks:
        grown, started = resident() - before, threading.active_count() - threads
        yield lambda sweeps: {
            "sweeps": [sweep(locks) for _ in range(sweeps)],
            "grown": grown,
            "threads": started,
        }
