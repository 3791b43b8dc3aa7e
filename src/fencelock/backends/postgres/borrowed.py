"""Bring your own: the connections of a psycopg pool, or of a SQLAlchemy engine.

A step borrows a connection for one statement and gives it back as it was: idle, outside of any
transaction, with nothing of fencelock's on it but prepared statements (`loans.py`). One on which something
went wrong is closed before it is given back, and its owner (`lenders.py`) replaces it. Those that waiters
listen and wait on are fencelock's own: they are dialled as the borrowed ones were, and closed with the
client. The user's pool never is.

After a fork a child must not use its parent's pool: it dials connections of its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict

from fencelock.backends.postgres.address import Address, identifier
from fencelock.backends.postgres.lenders import (
    EngineTasks,
    EngineThreads,
    PoolTasks,
    PoolThreads,
    TaskLender,
    ThreadLender,
)
from fencelock.backends.postgres.loans import BorrowedTasks, BorrowedThreads
from fencelock.backends.postgres.pools import TaskPool, ThreadPool
from fencelock.backends.postgres.wire import Source
from fencelock.errors import ConfigurationError
from fencelock.names import shown

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool, ConnectionPool
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from fencelock.backends.postgres import PostgresBackend

__all__ = ["from_engine", "from_pool"]

SHARED_POOLS = {"StaticPool", "SingletonThreadPool", "AssertionPool"}
"""SQLAlchemy's pools that lend one connection to several, or one only."""

B = TypeVar("B", bound="PostgresBackend")


def from_pool(
    cls: type[B], pool: ConnectionPool[Any] | AsyncConnectionPool[Any], schema: str = "fencelock"
) -> B:
    """Use the connections of a psycopg pool."""
    kinds: tuple[type, type]
    try:
        from psycopg_pool import AsyncConnectionPool, ConnectionPool

        kinds = ConnectionPool, AsyncConnectionPool
    except ModuleNotFoundError:
        kinds = type(None), type(None)
    if not isinstance(pool, kinds) or pool is None:
        raise ConfigurationError(f"pool={shown(pool)} is neither a ConnectionPool nor an AsyncConnectionPool")
    given = _parsed(pool.conninfo, pool.kwargs)
    address = Address(given, schema=identifier(schema, "from_pool()"))
    lender = PoolTasks(pool) if isinstance(pool, kinds[1]) else PoolThreads(pool)
    return cls(address, source=Borrowing(lender, address, given))


def from_engine(cls: type[B], engine: Engine | AsyncEngine, schema: str = "fencelock") -> B:
    """Use the connections of a SQLAlchemy engine."""
    try:
        from sqlalchemy import Engine
        from sqlalchemy.ext.asyncio import AsyncEngine
    except ModuleNotFoundError:
        raise ConfigurationError(f"engine={shown(engine)} is no engine of SQLAlchemy") from None
    if not isinstance(engine, Engine | AsyncEngine):
        raise ConfigurationError(f"engine={shown(engine)} is neither an Engine nor an AsyncEngine")
    dialect = engine.dialect
    if (dialect.name, dialect.driver) != ("postgresql", "psycopg"):
        raise ConfigurationError(
            f"the engine's driver is {dialect.name}+{dialect.driver}: fencelock needs postgresql+psycopg"
        )
    is_async = isinstance(engine, AsyncEngine)
    if dialect.is_async and not is_async:
        raise ConfigurationError("this is the inner engine of an AsyncEngine: give the AsyncEngine itself")
    if type(engine.pool).__name__ in SHARED_POOLS:
        raise ConfigurationError(
            f"the engine has a {type(engine.pool).__name__}, which does not lend each borrower a connection: "
            "use a QueuePool or a NullPool"
        )
    _, options = dialect.create_connect_args(engine.url)
    given = _parsed("", options)
    address = Address(given, schema=identifier(schema, "from_engine()"))
    lender = EngineTasks(engine) if is_async else EngineThreads(engine)
    return cls(address, source=Borrowing(lender, address, given))


class Borrowing:
    """Makes the source of a client: of borrowed connections, or in a forked child of its own."""

    def __init__(self, lender: ThreadLender | TaskLender, address: Address, given: Mapping[str, str]) -> None:
        self._lender = lender
        self._address = address
        self._given = given
        self._pid: int | None = None

    def __call__(self, flavour: str) -> Source:
        is_async = flavour == "asyncio"
        lender = self._lender
        if is_async != isinstance(lender, TaskLender):
            client, others = ("AsyncClient", "Client") if is_async else ("Client", "AsyncClient")
            raise ConfigurationError(f"{lender.what} goes with {others}: for {client} give {lender.twin}")
        if self._pid is not None and self._pid != os.getpid():
            return TaskPool(self._address) if is_async else ThreadPool(self._address)
        self._pid = os.getpid()
        if isinstance(lender, TaskLender):
            return BorrowedTasks(lender, self._address, self._given)
        return BorrowedThreads(lender, self._address, self._given)


def _parsed(conninfo: Any, options: Any) -> dict[str, str]:
    """Return the parameters of libpq in what a pool was made with. Functions are not asked."""
    keywords = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    text = conninfo if isinstance(conninfo, str) else ""
    given = options if isinstance(options, Mapping) else {}
    chosen = {key: value for key, value in given.items() if key in keywords and value is not None}
    try:
        found = conninfo_to_dict(text, **chosen)
    except psycopg.Error as error:
        raise ConfigurationError(
            f"the pool's conninfo is not understood by libpq: {type(error).__name__}"
        ) from None
    return {key: str(value) for key, value in found.items() if value is not None}
