"""What people write by hand with psycopg 3: pg_try_advisory_lock and pg_advisory_unlock; nothing else.

Settings: a connection of its own, kept, with autocommit; psycopg prepares by itself what it has run a few
times. The C implementation is installed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg

from bench.peers import AsyncMake, Make
from bench.peers.postgres_raw import key_of

__all__ = ["asynchronous", "blocking"]

TAKE, GIVE = "SELECT pg_try_advisory_lock(%s)", "SELECT pg_advisory_unlock(%s)"


class Section:
    def __init__(self, connection: Any, name: str) -> None:
        self.connection = connection
        self.values = (key_of(name),)

    def __enter__(self) -> None:
        _must(self.connection.execute(TAKE, self.values).fetchone())

    def __exit__(self, *_: object) -> None:
        _must(self.connection.execute(GIVE, self.values).fetchone())


class AsyncSection(Section):
    async def __aenter__(self) -> None:
        cursor = await self.connection.execute(TAKE, self.values)
        _must(await cursor.fetchone())

    async def __aexit__(self, *_: object) -> None:
        cursor = await self.connection.execute(GIVE, self.values)
        _must(await cursor.fetchone())


def _must(row: Any) -> None:
    if row != (True,):
        raise RuntimeError("it was held already, or not held")


@contextmanager
def blocking(url: str) -> Iterator[Make]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield lambda name: Section(connection, name)


@asynccontextmanager
async def asynchronous(url: str, tasks: int) -> AsyncIterator[AsyncMake]:
    connections = [await psycopg.AsyncConnection.connect(url, autocommit=True) for _ in range(tasks)]
    free = iter(connections)
    yield lambda name: AsyncSection(next(free), name)
    for connection in connections:
        await connection.close()
