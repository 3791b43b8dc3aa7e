"""How steps reach the database: a connection for each who works, kept, and made anew when it breaks.

A step is a coroutine at a door. On PostgreSQL and MySQL it runs on a connection in AUTOCOMMIT that its owner
keeps, so one statement is one round trip; a step that needs a transaction says BEGIN itself. On SQLite each
step is a transaction on a connection of the pool: nothing is gained by keeping one there, and in memory there
may be only one.

The asyncio flavour enters SQLAlchemy's own `run_sync`, so that one form of each step serves both.

Whatever a driver raises becomes a `BackendError`: `BackendUnavailable` where asking again may help.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from fencelock.connections import MYSQL, SQLITE, Door, SQLAlchemy, codes, is_a, lacks_right
from fencelock.errors import BackendError, BackendUnavailable, ConfigurationError, FencelockError
from fencelock.extras import refuse_old
from fencelock.names import shown
from fencelock.runtime import blocking, locks

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

__all__ = ["AsyncLink", "BlockingLink", "Link", "check_engine", "shortage", "translated"]

T = TypeVar("T")
Work = Callable[[Door], Coroutine[Any, Any, T]]
AUTOCOMMIT = {"isolation_level": "AUTOCOMMIT"}
AGAIN = {1205, 1213, "40001", "40P01", "55P03"}
"""Codes of a wait that was too long, a deadlock, a serialization failure."""


def check_engine(engine: Any, *, is_async: bool) -> None:
    """Raise `ConfigurationError` for what is no engine of that flavour."""
    own, other = ("AsyncEngine", "Engine") if is_async else ("Engine", "AsyncEngine")
    tables = {"Engine": "Table", "AsyncEngine": "AsyncTable"}
    places = {"Engine": "sqlalchemy.engine.base", "AsyncEngine": "sqlalchemy.ext.asyncio.engine"}
    if is_a(engine, places[own], own):
        refuse_old("jobs", "fencelock.jobs")
        if type(engine.pool).__name__ == "SingletonThreadPool":
            raise ConfigurationError(
                f"engine={shown(engine)} has a database for each thread: give a file, or StaticPool"
            )
        return
    if is_a(engine, places[other], other):
        raise ConfigurationError(f"engine={shown(engine)} is of the other flavour: use {tables[other]}")
    try:
        import sqlalchemy  # noqa: F401
    except ImportError:
        raise ConfigurationError(
            "fencelock.jobs needs the package 'sqlalchemy': pip install 'fencelock[jobs]'"
        ) from None
    raise ConfigurationError(
        f"engine={shown(engine)} is no {own} of SQLAlchemy: give what create_engine made"
    )


def shortage(engine: Any, concurrency: int) -> str | None:
    """Return what to say of a pool that has too few connections for that many jobs at a time."""
    pool = engine.pool
    extra = getattr(pool, "_max_overflow", None)
    if extra is None or extra < 0:
        return None
    # Each slot keeps one and the keeper another; `finish` takes one more. On SQLite nobody keeps one.
    needed = (1 if engine.dialect.name == SQLITE else 2) * concurrency + 1
    most = pool.size() + extra
    if pool.size() == 0 or most >= needed:
        return None
    return (
        f"the engine has at most {most} connections, {concurrency} jobs at a time may need {needed}: "
        f"create_engine(…, pool_size={needed})"
    )


class Link(ABC):
    """A way to the database for one who works there. Its steps come one after the other."""

    @abstractmethod
    async def step(self, work: Work[T], *, whole: bool = False) -> T:
        """Do a step. With `whole` its statements are one transaction."""

    @abstractmethod
    async def close(self) -> None:
        """Give the connection back."""


class BlockingLink(Link):
    """A link of threads. None of its methods suspends."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._conn: Connection | None = None
        self._mutex = locks.lock()

    async def step(self, work: Work[T], *, whole: bool = False) -> T:
        with self._mutex, translated(self._engine):
            if self._engine.dialect.name == SQLITE:
                with self._engine.begin() as conn:
                    return blocking.run(work(SQLAlchemy(conn)))
            if self._conn is None:
                self._conn = self._engine.connect().execution_options(**AUTOCOMMIT)
            try:
                return _stepped(self._conn, work, whole)
            except BaseException:
                conn, self._conn = self._conn, None  # it may be broken, or in the middle of something
                with suppress(Exception):
                    conn.invalidate()
                    conn.close()
                raise

    async def close(self) -> None:
        with self._mutex:
            conn, self._conn = self._conn, None
            if conn is not None:
                with suppress(Exception):  # it is given up anyway
                    conn.close()


class AsyncLink(Link):
    """A link of tasks."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._conn: AsyncConnection | None = None
        self._mutex = asyncio.Lock()

    async def step(self, work: Work[T], *, whole: bool = False) -> T:
        async with self._mutex:
            with translated(self._engine):
                if self._engine.dialect.name == SQLITE:
                    async with self._engine.begin() as conn:
                        return await conn.run_sync(_stepped, work, False)
                if self._conn is None:
                    self._conn = await (await self._engine.connect()).execution_options(**AUTOCOMMIT)
                try:
                    return await self._conn.run_sync(_stepped, work, whole)
                except BaseException:
                    kept, self._conn = self._conn, None
                    await _thrown_away(kept)
                    raise

    async def close(self) -> None:
        async with self._mutex:
            conn, self._conn = self._conn, None
            if conn is not None:
                with suppress(Exception):  # it is given up anyway
                    await asyncio.shield(conn.close())


async def _thrown_away(conn: AsyncConnection) -> None:
    async def away() -> None:
        with suppress(Exception):
            await conn.invalidate()
            await conn.close()

    await asyncio.shield(away())


def _stepped(conn: Connection, work: Work[T], whole: bool) -> T:
    door = SQLAlchemy(conn)
    if not whole:
        return blocking.run(work(door))
    blocking.run(door.run("START TRANSACTION" if door.dialect == MYSQL else "BEGIN"))
    found = blocking.run(work(door))
    blocking.run(door.run("COMMIT"))
    return found


@contextmanager
def translated(engine: Any) -> Iterator[None]:
    """Turn what SQLAlchemy and its drivers raise into errors of ours, in one line, without a password."""
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError

    try:
        yield
    except FencelockError:
        raise
    except SQLAlchemyError as error:
        cause = getattr(error, "orig", None) or error
        detail = " ".join(str(cause).split())[:300] or type(cause).__name__
        name = f"the jobs' database ({engine.dialect.name})"
        if lacks := lacks_right(error):
            raise BackendUnavailable(backend=name, detail=lacks, transient=False) from error
        if isinstance(error, DBAPIError) and not _may_pass(error):
            raise BackendError(backend=name, detail=detail) from error
        raise BackendUnavailable(backend=name, detail=detail) from error
    except OSError as error:  # asynchronous drivers do not wrap what connecting raises
        raise BackendUnavailable(backend="the jobs' database", detail=str(error)) from error


def _may_pass(error: Any) -> bool:
    from sqlalchemy.exc import InterfaceError, OperationalError

    if error.connection_invalidated or AGAIN & codes(error):
        return True
    told = str(error.orig).lower()
    return isinstance(error, InterfaceError | OperationalError) and "no such" not in told
