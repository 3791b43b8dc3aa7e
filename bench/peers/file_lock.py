"""filelock, blocking and asyncio: flock on a file for each name, polled; no queue, no token, no lease.

Settings: its own poll interval of 0.05 s; the object is kept, or with `new` made for each acquisition. With
asyncio it takes a thread of a pool for each step.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import urlsplit

import filelock

from bench.peers import AsyncMake, Make

__all__ = ["asynchronous", "blocking"]


class New:
    """An object for each acquisition."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> None:
        self.lock = filelock.FileLock(self.path)
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


def path(url: str, name: str) -> str:
    return f"{urlsplit(url).path}.{name}.lock"


@contextmanager
def blocking(url: str, new: bool = False) -> Iterator[Make]:
    def make(name: str) -> Any:
        return New(path(url, name)) if new else filelock.FileLock(path(url, name))

    yield make


@asynccontextmanager
async def asynchronous(url: str, tasks: int) -> AsyncIterator[AsyncMake]:
    yield lambda name: filelock.AsyncFileLock(path(url, name))
