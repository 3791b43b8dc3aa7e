"""Connections out of somebody else's pool: a SQLAlchemy engine on PyMySQL, or an async one on asyncmy.

A step checks a connection out, runs its one statement on the driver's own connection, and gives it back:
the engine rolls back what is open, which is nothing, since every procedure ends its transaction. A
connection that broke or was interrupted is invalidated, so the engine makes another. How many there
are, and how long one waits for one, is the engine's affair.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from fencelock.backends.mysql.failures import BACKEND, Unusable, closed, no_answer
from fencelock.backends.mysql.pool import Link, Pool, Rows
from fencelock.errors import BackendUnavailable, ConfigurationError
from fencelock.runtime import clock

__all__ = ["AsyncBorrowedPool", "BorrowedPool", "check_engine"]

T = TypeVar("T")
GOODBYE = 1.0
_graveyard: list[Any] = []


def check_engine(engine: Any) -> tuple[str, str]:
    """Return the flavour of a SQLAlchemy engine, `blocking` or `asyncio`, and its address."""
    core = getattr(engine, "sync_engine", engine)
    dialect, url = getattr(core, "dialect", None), getattr(core, "url", None)
    if dialect is None or url is None:
        raise ConfigurationError(f"{type(engine).__name__} is not a SQLAlchemy engine")
    flavours = {"pymysql": "blocking", "asyncmy": "asyncio"}
    if dialect.name not in {"mysql", "mariadb"} or dialect.driver not in flavours:
        raise ConfigurationError(
            f"the engine speaks {dialect.name}+{dialect.driver}: make one of mysql+pymysql:// "
            "for Client, or mysql+asyncmy:// for AsyncClient"
        )
    return flavours[dialect.driver], f"{url.host or 'localhost'}:{url.port or 3306}"


class BorrowedLink(Link):
    """A connection that an engine lent us."""

    __slots__ = ("driver", "lent")

    def __init__(self, lent: Any, driver: Any) -> None:
        self.used = True  # by whoever had it before
        self.lent = lent
        self.driver = driver

    async def query(self, statement: str, limit: float) -> Rows:
        from fencelock.backends.mysql.blocking import run_blocking

        driver = self.driver
        before = driver._read_timeout, driver._write_timeout
        try:
            return run_blocking(driver, statement, limit)
        finally:
            driver._read_timeout, driver._write_timeout = before

    def kill(self) -> None:
        self.driver._force_close()


class AsyncBorrowedLink(BorrowedLink):
    """The same under asyncio."""

    __slots__ = ()

    async def query(self, statement: str, limit: float) -> Rows:
        from fencelock.backends.mysql.nonblocking import run_async

        return await run_async(self.driver, statement, limit, abort=self.kill)

    def kill(self) -> None:
        if self.driver._transport is not None:
            self.driver._transport.abort()
        self.driver._connected = False


class BorrowedPool(Pool):
    """The pool of an `Engine`."""

    autocommits = False

    def __init__(self, engine: Any, label: str) -> None:
        self.engine = engine
        self.label = label
        self._closed = False

    async def take(self, deadline: float) -> BorrowedLink:
        if self._closed:
            raise closed()
        if clock.now() >= deadline:
            raise no_answer(self.label)
        try:
            lent = self.engine.connect()
        except Exception as error:
            raise _refused(self.label, error) from error
        return BorrowedLink(lent, lent.connection.driver_connection)

    async def give(self, link: BorrowedLink) -> None:
        link.lent.close()

    async def discard(self, link: BorrowedLink) -> None:
        link.kill()
        with suppress(Exception):
            link.lent.invalidate()
        with suppress(Exception):
            link.lent.close()

    async def renew(self) -> None:
        """Nothing to do: the engine finds out by itself, one by one."""

    async def close(self) -> None:
        self._closed = True

    def drop(self) -> None:
        # What SQLAlchemy asks of everyone who forks: a new pool, and the parent's is not touched.
        core = getattr(self.engine, "sync_engine", self.engine)
        _graveyard.append(core.pool)
        core.dispose(close=False)


class AsyncBorrowedPool(BorrowedPool):
    """The pool of an `AsyncEngine`.

    What it does is never cut short: a checkout that is cancelled in the middle would leave a connection
    that nobody has. It goes on as a task, and what it brings too late goes back.
    """

    def __init__(self, engine: Any, label: str) -> None:
        super().__init__(engine, label)
        self._errands: set[asyncio.Task[Any]] = set()

    async def take(self, deadline: float) -> AsyncBorrowedLink:
        if self._closed:
            raise closed()
        errand = self._begin(self._lend())
        in_time = False
        try:
            await asyncio.wait({errand}, timeout=max(0.0, deadline - clock.now()))
            in_time = errand.done()
        finally:
            if not in_time:
                errand.add_done_callback(self._too_late)
        if not in_time:
            raise no_answer(self.label)
        try:
            return errand.result()
        except Exception as error:
            raise _refused(self.label, error) from error

    async def _lend(self) -> AsyncBorrowedLink:
        lent = self.engine.connect()
        await lent.start()
        raw = await lent.get_raw_connection()
        return AsyncBorrowedLink(lent, raw.driver_connection)

    def _too_late(self, errand: asyncio.Task[AsyncBorrowedLink]) -> None:
        if not errand.cancelled() and errand.exception() is None:
            self._begin(errand.result().lent.close())

    async def give(self, link: BorrowedLink) -> None:
        await asyncio.shield(self._begin(link.lent.close()))

    async def discard(self, link: BorrowedLink) -> None:
        link.kill()
        await asyncio.shield(self._begin(self._write_off(link)))

    async def _write_off(self, link: BorrowedLink) -> None:
        with suppress(Exception):
            await link.lent.invalidate()
        with suppress(Exception):
            await link.lent.close()

    async def close(self) -> None:
        await super().close()
        while self._errands:
            _, late = await asyncio.wait(self._errands, timeout=GOODBYE)
            if late:
                return

    def _begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.ensure_future(work)
        self._errands.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, errand: asyncio.Task[Any]) -> None:
        self._errands.discard(errand)
        if not errand.cancelled():
            errand.exception()  # seen: whoever waited for it may have gone


def _refused(label: str, error: Exception) -> Exception:
    from fencelock.backends.mysql.failures import Kind, kind_of, said, unreachable

    origin = getattr(error, "orig", None)
    if origin is not None:
        told = Unusable(*origin.args)
        told.__cause__ = origin
        return unreachable(label, told) if kind_of(told) is Kind.BROKEN else said(label, told)
    words = " ".join(str(error).split())[:200]
    return BackendUnavailable(backend=BACKEND, detail=f"{label}: the engine gives no connection: {words}")
