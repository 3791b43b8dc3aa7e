"""Steps: a few statements in a transaction of their own, on a connection that a function makes.

    steps = steps_for(connect, is_async=False)
    found = await steps.do(lambda door: door.run("SELECT 1 AS one"))

A connection is made for each step by the user's function, and closed after it; with a pool, that is a loan.
The step commits, or rolls back if it raises. In the asyncio flavour blocking connections may be used on
threads. The blocking steps never suspend.

Not promised: that a step whose commit raised was not done. Write them so that they can be done again.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from fencelock.connections.asking import ask, ask_async
from fencelock.connections.door import MYSQL, POSTGRESQL, SQLITE, Dialect, Door
from fencelock.connections.drivers import settled
from fencelock.runtime import blocking

__all__ = ["NOW", "AsyncSteps", "BlockingSteps", "Steps", "ThreadedSteps", "Work", "begun", "steps_for"]

T = TypeVar("T")
BEGIN: dict[Dialect, str] = {SQLITE: "BEGIN IMMEDIATE", POSTGRESQL: "BEGIN", MYSQL: "START TRANSACTION"}
NOW: dict[Dialect, str] = {
    SQLITE: "((julianday('now') - 2440587.5) * 86400.0)",
    POSTGRESQL: "extract(epoch from clock_timestamp())::float8",
    MYSQL: "(UNIX_TIMESTAMP(SYSDATE(6)) + 0e0)",
}
"""The server's time in seconds since 1970, as an expression."""

Work = Callable[[Door], Coroutine[Any, Any, T]]


class Steps(ABC):
    """Does one step at a time."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect

    @abstractmethod
    async def do(self, work: Work[T], look: Work[T | None] | None = None) -> T:
        """Do some work in a transaction; not if `look`, before it, has the answer already."""

    async def call(self, function: Callable[[], None]) -> None:
        """Call what may block where the steps are done."""
        function()


class BlockingSteps(Steps):
    """Steps over blocking connections."""

    async def do(self, work: Work[T], look: Work[T | None] | None = None) -> T:
        conn = self._connect()
        try:
            try:
                result = ask(conn, lambda door: begun(door, work, look))
            except BaseException:
                with suppress(Exception):  # the first error tells more
                    conn.rollback()
                raise
            conn.commit()
            return result
        finally:
            if hasattr(conn, "close"):
                conn.close()


class ThreadedSteps(BlockingSteps):
    """The same under asyncio: each step on a thread."""

    async def do(self, work: Work[T], look: Work[T | None] | None = None) -> T:
        step = super().do
        return await asyncio.to_thread(lambda: blocking.run(step(work, look)))

    async def call(self, function: Callable[[], None]) -> None:
        await asyncio.to_thread(function)


class AsyncSteps(Steps):
    """The same, over asynchronous connections."""

    async def do(self, work: Work[T], look: Work[T | None] | None = None) -> T:
        conn = await settled(self._connect())
        try:
            try:
                result = await ask_async(conn, lambda door: begun(door, work, look))
            except BaseException:
                with suppress(Exception):
                    await settled(conn.rollback())
                raise
            await settled(conn.commit())
            return result
        finally:
            close = getattr(conn, "ensure_closed", None) or conn.close
            await settled(close())


def steps_for(connect: Callable[[], Any], *, is_async: bool, threads: bool = False) -> Steps:
    """Return the steps of a flavour; with `threads` the connections are blocking ones all the same."""
    if is_async and not threads:
        return AsyncSteps(connect)
    return ThreadedSteps(connect) if is_async else BlockingSteps(connect)


async def begun(door: Door, work: Work[T], look: Work[T | None] | None) -> T:
    """Look, then work; in a transaction also where the connection would commit each statement."""
    known = await look(door) if look is not None else None
    if known is not None:
        return known
    if door.commits_at_once():
        await door.run(BEGIN[door.dialect])
    return await work(door)
