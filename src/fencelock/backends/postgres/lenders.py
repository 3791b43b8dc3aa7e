"""Who lends connections: psycopg's pools and SQLAlchemy's engines. See `borrowed.py`.

A lender is asked for a connection until a deadline, and gets it back as it was, or closed.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import psycopg

from fencelock.runtime import clock, locks
from fencelock.runtime.threads import launch

__all__ = [
    "EngineTasks",
    "EngineThreads",
    "Loan",
    "PoolTasks",
    "PoolThreads",
    "TaskLender",
    "ThreadLender",
    "errors",
]


class Loan(NamedTuple):
    """A borrowed connection: psycopg's own, and what its owner wants to have back for it."""

    raw: Any
    ticket: Any


def errors() -> tuple[type[Exception], ...]:
    """What owners of connections raise when they have none."""
    found: list[type[Exception]] = [psycopg.Error, OSError]
    with suppress(ModuleNotFoundError):
        from sqlalchemy.exc import SQLAlchemyError

        found.append(SQLAlchemyError)
    return tuple(found)


class ThreadLender(ABC):
    """Whose connections they are, for threads."""

    what: str
    twin: str

    @abstractmethod
    def lend(self, deadline: float) -> Loan:
        """Lend a connection, or raise one of `errors()`."""

    @abstractmethod
    def take_back(self, loan: Loan) -> None:
        """Take a connection back that is as it was."""

    @abstractmethod
    def write_off(self, loan: Loan) -> None:
        """Take one back that is closed."""


class PoolThreads(ThreadLender):
    """A `psycopg_pool.ConnectionPool`."""

    what, twin = "a ConnectionPool", "an AsyncConnectionPool"

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    def lend(self, deadline: float) -> Loan:
        raw = self._pool.getconn(deadline - clock.now())
        return Loan(raw, raw)

    def take_back(self, loan: Loan) -> None:
        self._pool.putconn(loan.ticket)

    def write_off(self, loan: Loan) -> None:
        self._pool.putconn(loan.ticket)


class EngineThreads(ThreadLender):
    """A SQLAlchemy `Engine`.

    Its pool waits, and connects, for as long as the engine was told to and not for as long as a step has.
    So a thread does both. Where a connection lies ready, and is not pinged first, there is no need.
    """

    what, twin = "an Engine", "an AsyncEngine"

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._gate = locks.rlock()  # a signal handler may borrow in the middle

    def lend(self, deadline: float) -> Loan:
        fairy = self._ready(deadline)
        if fairy is None:
            fairy = Errand(self._engine.raw_connection).result(deadline)
        return Loan(fairy.driver_connection, fairy)

    def _ready(self, deadline: float) -> Any:
        pool = self._engine.pool
        count = getattr(pool, "checkedin", None)
        if count is None or getattr(pool, "_pre_ping", True):
            return None
        if not self._gate.acquire(timeout=max(0.0, deadline - clock.now())):
            raise TimeoutError
        try:  # one at a time: what lies ready is not taken by another thread of ours in between
            return self._engine.raw_connection() if count() > 0 else None
        finally:
            self._gate.release()

    def take_back(self, loan: Loan) -> None:
        loan.ticket.close()

    def write_off(self, loan: Loan) -> None:
        loan.ticket.invalidate()


class Errand:
    """A connection that a thread fetches; if it comes too late, it goes back."""

    def __init__(self, fetch: Callable[[], Any]) -> None:
        self._fetch = fetch
        self._lock = locks.lock()
        self._done = threading.Event()
        self._late = False
        self._fairy: Any = None
        self._error: BaseException | None = None
        launch(threading.Thread(target=self._run, name="fencelock-checkout", daemon=True))

    def _run(self) -> None:
        try:
            self._fairy = self._fetch()
        except BaseException as error:  # noqa: BLE001 - raised again by whoever waits
            self._error = error
        with self._lock:
            self._done.set()
        if self._late and self._fairy is not None:
            self._fairy.close()

    def result(self, deadline: float) -> Any:
        try:
            self._done.wait(max(0.0, deadline - clock.now()))
        finally:
            with self._lock:
                self._late = not self._done.is_set()
        if self._late:
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._fairy


class TaskLender(ABC):
    """Whose connections they are, for tasks."""

    what: str
    twin: str

    @abstractmethod
    async def lend(self, deadline: float) -> Loan:
        """Lend a connection, or raise one of `errors()`."""

    @abstractmethod
    async def take_back(self, loan: Loan) -> None:
        """Take a connection back that is as it was."""

    @abstractmethod
    async def write_off(self, loan: Loan) -> None:
        """Take one back that is closed."""


class PoolTasks(TaskLender):
    """A `psycopg_pool.AsyncConnectionPool`."""

    what, twin = "an AsyncConnectionPool", "a ConnectionPool"

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    async def lend(self, deadline: float) -> Loan:
        raw = await self._pool.getconn(deadline - clock.now())
        return Loan(raw, raw)

    async def take_back(self, loan: Loan) -> None:
        await self._pool.putconn(loan.ticket)

    async def write_off(self, loan: Loan) -> None:
        await self._pool.putconn(loan.ticket)


class EngineTasks(TaskLender):
    """A SQLAlchemy `AsyncEngine`."""

    what, twin = "an AsyncEngine", "an Engine"

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    async def lend(self, deadline: float) -> Loan:
        async with asyncio.timeout(deadline - clock.now()):
            fairy = await self._engine.raw_connection()
        return Loan(fairy.driver_connection, fairy)

    async def take_back(self, loan: Loan) -> None:
        await _in_greenlet(loan.ticket.close)

    async def write_off(self, loan: Loan) -> None:
        await _in_greenlet(loan.ticket.invalidate)


async def _in_greenlet(function: Callable[[], Any]) -> None:
    from sqlalchemy.util import greenlet_spawn

    await greenlet_spawn(function)
