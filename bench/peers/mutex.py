"""The limit in memory: a mutex of the standard library for each name. It knows no owner, no token, no end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from bench.peers import AsyncMake, Make

__all__ = ["asynchronous", "blocking", "holding"]


@contextmanager
def blocking(url: str) -> Iterator[Make]:
    locks: dict[str, threading.Lock] = defaultdict(threading.Lock)
    yield lambda name: locks[name]


@asynccontextmanager
async def asynchronous(url: str, tasks: int) -> AsyncIterator[AsyncMake]:
    locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
    yield lambda name: locks[name]


@contextmanager
def holding(url: str, count: int) -> Iterator[Callable[[], object]]:
    """Set that many deadlines anew, in a dict: no more is left of a renewal where there is no server."""
    deadlines = {f"lease-{number}": 0.0 for number in range(count)}

    def renew() -> None:
        deadline = time.monotonic() + 300
        for name in deadlines:
            deadlines[name] = deadline

    yield renew
