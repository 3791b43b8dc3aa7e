"""A gate whose marks are in the table of fences: for the HTTP middleware, and for whoever wants turns.

    gate = SQLGate(engine.begin)
    with gate.turn("document:1", token) as conn:       # a transaction; nobody else has a turn until it ends
        conn.execute(…)

It opens transactions by the function that you give it. `admit` is one. `turn` is two: the first writes the
token down for good, the second locks the row of the resource for the block, in all processes, and keeps a
connection in use. So the mark stays if the block fails or the process dies: what it did elsewhere may be
there, and nobody older may follow it. What the block did over its own connection is rolled back then.

Not promised: more than `table.py` says.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from typing import Any

from fencelock.connections import ask, ask_async
from fencelock.errors import ConfigurationError
from fencelock.fencing.rule import check_resource, check_token
from fencelock.fencing.table import TABLE, admit_step
from fencelock.names import shown

__all__ = ["AsyncSQLGate", "SQLGate"]


class SQLGate:
    """A gate whose marks are in the table of fences. `connect()` gives a transaction, as `engine.begin` does.

    What it gives is a context manager: entered, a connection or session; left, committed or rolled back.
    """

    def __init__(self, connect: Callable[[], AbstractContextManager[Any]], *, table: str = TABLE) -> None:
        if not callable(connect):
            raise ConfigurationError(f"connect={shown(connect)} cannot be called: give engine.begin, say")
        self._connect = connect
        self._table = table

    def admit(self, resource: str, token: int) -> None:
        """Let `token` pass and remember it, in a transaction of its own, or raise `StaleToken`."""
        check_resource(resource)
        check_token(token)
        with self._connect() as conn:
            ask(conn, lambda door: admit_step(door, resource, token, self._table, alone=True))

    @contextmanager
    def turn(self, resource: str, token: int) -> Iterator[Any]:
        """Let `token` pass, and nobody else until the block ends; give the connection."""
        self.admit(resource, token)
        with self._connect() as conn:
            ask(conn, lambda door: admit_step(door, resource, token, self._table))
            yield conn


class AsyncSQLGate:
    """Does the same as `SQLGate`, over asynchronous connections or sessions."""

    def __init__(
        self, connect: Callable[[], AbstractAsyncContextManager[Any]], *, table: str = TABLE
    ) -> None:
        if not callable(connect):
            raise ConfigurationError(f"connect={shown(connect)} cannot be called: give engine.begin, say")
        self._connect = connect
        self._table = table

    async def admit(self, resource: str, token: int) -> None:
        """Let `token` pass and remember it, in a transaction of its own, or raise `StaleToken`."""
        check_resource(resource)
        check_token(token)
        async with self._connect() as conn:
            await ask_async(conn, lambda door: admit_step(door, resource, token, self._table, alone=True))

    @asynccontextmanager
    async def turn(self, resource: str, token: int) -> AsyncIterator[Any]:
        """Let `token` pass, and nobody else until the block ends; give the connection."""
        await self.admit(resource, token)
        async with self._connect() as conn:
            await ask_async(conn, lambda door: admit_step(door, resource, token, self._table))
            yield conn
