"""What people write by hand with asyncpg: pg_try_advisory_lock and pg_advisory_unlock; nothing else.

Settings: a connection of its own, kept; asyncpg prepares and caches its statements by itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from bench.peers import AsyncMake

__all__ = ["asynchronous"]


class Section:
    def __init__(self, connection: Any, name: str) -> None:
        self.connection = connection
        self.key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)

    async def __aenter__(self) -> None:
        if not await self.connection.fetchval("SELECT pg_try_advisory_lock($1)", self.key):
            raise RuntimeError("it was held already")

    async def __aexit__(self, *_: object) -> None:
        if not await self.connection.fetchval("SELECT pg_advisory_unlock($1)", self.key):
            raise RuntimeError("it was not held")


@asynccontextmanager
async def asynchronous(url: str, tasks: int) -> AsyncIterator[AsyncMake]:
    library = import_module("asyncpg")
    connections = [await library.connect(url) for _ in range(tasks)]
    free = iter(connections)
    yield lambda name: Section(next(free), name)
    for connection in connections:
        await connection.close()
