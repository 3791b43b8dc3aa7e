"""aioredlock, asyncio only: no queue, no fencing token.

Settings: `lock_timeout` is given, so that no watchdog task is started for each lock; its pool of 100
connections; it makes a lock object for each acquisition. Several nodes are several URLs, with spaces between.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from bench.peers import TTL, AsyncMake

__all__ = ["asynchronous"]


class AsyncSection:
    def __init__(self, manager: Any, name: str) -> None:
        self.manager = manager
        self.name = f"aioredlock:{name}"

    async def __aenter__(self) -> None:
        self.lock = await self.manager.lock(self.name, lock_timeout=TTL)
        if not self.lock.valid:
            raise RuntimeError("not acquired")

    async def __aexit__(self, *_: object) -> None:
        await self.manager.unlock(self.lock)


@asynccontextmanager
async def asynchronous(url: str, tasks: int) -> AsyncIterator[AsyncMake]:
    manager = import_module("aioredlock").Aioredlock(url.split())
    yield lambda name: AsyncSection(manager, name)
    await manager.destroy()
