"""What people write by hand with asyncmy: GET_LOCK and RELEASE_LOCK; nothing else.

Settings: a connection of its own and its cursor are kept, with autocommit.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from bench.peers import AsyncMake
from bench.peers.mysql_raw import place

__all__ = ["asynchronous"]


class Section:
    def __init__(self, connection: Any, name: str) -> None:
        self.cursor = connection.cursor()
        self.name = name

    async def __aenter__(self) -> None:
        await self._ask("SELECT GET_LOCK(%s, 0)")

    async def __aexit__(self, *_: object) -> None:
        await self._ask("SELECT RELEASE_LOCK(%s)")

    async def _ask(self, statement: str) -> None:
        await self.cursor.execute(statement, (self.name,))
        if await self.cursor.fetchone() != (1,):
            raise RuntimeError("it was held already, or not held")


@asynccontextmanager
async def asynchronous(url: str, tasks: int) -> AsyncIterator[AsyncMake]:
    library = import_module("asyncmy")
    connections = [await library.connect(**place(url)) for _ in range(tasks)]
    free = iter(connections)
    yield lambda name: Section(next(free), name)
    for connection in connections:
        await connection.ensure_closed()
