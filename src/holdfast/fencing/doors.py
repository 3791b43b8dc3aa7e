"""Your own connections, behind one face: a statement goes in, what became of it comes out.

A `Door` stands for a connection of sqlite3, psycopg, PyMySQL, asyncmy or SQLAlchemy. Statements are written
once, with `:name` where a value goes; each door writes them as its driver wants them. The doors of blocking
drivers never suspend, so one coroutine serves both flavours. Under asyncio SQLAlchemy's is used in
`run_sync`.

Errors of the driver come out as they are.
"""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.errors import ConfigurationError, Unsupported
from holdfast.names import shown

if TYPE_CHECKING:
    import sqlite3

    import asyncmy.connection
    import psycopg
    import pymysql  # type: ignore[import-untyped]
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session

    Blocking = (
        sqlite3.Connection
        | psycopg.Connection[Any]
        | pymysql.Connection
        | Connection
        | Session
        | scoped_session[Any]
    )
    Asyncio = (
        psycopg.AsyncConnection[Any]
        | asyncmy.connection.Connection
        | AsyncConnection
        | AsyncSession
        | async_scoped_session[Any]
    )

__all__ = ["Done", "Door", "async_door", "blocking_door"]

POSTGRESQL, MYSQL, SQLITE = "postgresql", "mysql", "sqlite"
DIALECTS = {POSTGRESQL: POSTGRESQL, MYSQL: MYSQL, "mariadb": MYSQL, SQLITE: SQLITE}
IN_TRANSACTION = 1
"""MySQL's SERVER_STATUS_IN_TRANS."""

PLACE = re.compile(r":([a-z]\w*)")
WANTED = "a connection of sqlite3, psycopg, PyMySQL or SQLAlchemy, or a session of the latter"
WANTED_ASYNC = "an asynchronous connection of psycopg, asyncmy or SQLAlchemy, or an AsyncSession"


class Done(NamedTuple):
    """What a statement did: the first row it gave, the rows it touched, the id it left."""

    row: tuple[Any, ...] | None
    rows: int
    last_id: int


class Door(ABC):
    """A connection of some driver."""

    dialect: str

    @abstractmethod
    async def run(self, statement: str, values: Mapping[str, Any]) -> Done:
        """Run a statement, with `:name` where a value goes."""

    @abstractmethod
    def commits_at_once(self) -> bool:
        """Whether the next statement would be a transaction of its own."""

    def in_transaction(self) -> bool:
        """Whether a transaction is open at the server; asked on MySQL alone."""
        return False


class SQLite(Door):
    """A `sqlite3.Connection`."""

    dialect = SQLITE

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    async def run(self, statement: str, values: Mapping[str, Any]) -> Done:
        cursor = self._conn.cursor()
        try:
            cursor.row_factory = None
            cursor.execute(statement, values)
            # All rows: a statement that writes is not done before its last row was read.
            rows = cursor.fetchall() if cursor.description else []
            return Done(rows[0] if rows else None, cursor.rowcount, 0)
        finally:
            cursor.close()

    def commits_at_once(self) -> bool:
        return sqlite_commits_at_once(self._conn)


def sqlite_commits_at_once(conn: Any) -> bool:
    """Whether a connection of sqlite3, or one that looks like it, has no transaction and begins none."""
    if conn.in_transaction:
        return False
    return conn.isolation_level is None or getattr(conn, "autocommit", None) is True


class Psycopg(Door):
    """A `psycopg.Connection`."""

    dialect = POSTGRESQL

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    async def run(self, statement: str, values: Mapping[str, Any]) -> Done:
        from psycopg import Cursor
        from psycopg.rows import tuple_row

        with Cursor(self._conn, row_factory=tuple_row) as cursor:  # whatever the connection's own are
            cursor.execute(pyformat(statement).encode(), values)
            return Done(cursor.fetchone() if cursor.description else None, cursor.rowcount, 0)

    def commits_at_once(self) -> bool:
        return psycopg_commits_at_once(self._conn)


class PsycopgTasks(Door):
    """A `psycopg.AsyncConnection`."""

    dialect = POSTGRESQL

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    async def run(self, statement: str, values: Mapping[str, Any]) -> Done:
        from psycopg import AsyncCursor
        from psycopg.rows import tuple_row

        async with AsyncCursor(self._conn, row_factory=tuple_row) as cursor:
            await cursor.execute(pyformat(statement).encode(), values)
            return Done(await cursor.fetchone() if cursor.description else None, cursor.rowcount, 0)

    def commits_at_once(self) -> bool:
        return psycopg_commits_at_once(self._conn)


def psycopg_commits_at_once(conn: Any) -> bool:
    """Whether a connection of psycopg has no transaction and begins none."""
    from psycopg.pq import TransactionStatus

    return bool(conn.autocommit and conn.info.transaction_status == TransactionStatus.IDLE)


class PyMySQL(Door):
    """A `pymysql.Connection`."""

    dialect = MYSQL

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    async def run(self, statement: str, values: Mapping[str, Any]) -> Done:
        from pymysql.cursors import Cursor  # type: ignore[import-untyped]

        with self._conn.cursor(Cursor) as cursor:
            cursor.execute(pyformat(statement), values)
            row = cursor.fetchone() if cursor.description else None
            return Done(row, cursor.rowcount, cursor.lastrowid or 0)

    def commits_at_once(self) -> bool:
        return bool(self._conn.get_autocommit()) and not self.in_transaction()

    def in_transaction(self) -> bool:
        return mysql_in_transaction(self._conn)


class AsyncMy(Door):
    """A connection of asyncmy."""

    dialect = MYSQL

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    async def run(self, statement: str, values: Mapping[str, Any]) -> Done:
        from asyncmy.cursors import Cursor

        async with self._conn.cursor(Cursor) as cursor:
            await cursor.execute(pyformat(statement), values)
            row = await cursor.fetchone() if cursor.description else None
            return Done(row, cursor.rowcount, cursor.lastrowid or 0)

    def commits_at_once(self) -> bool:
        return bool(self._conn.get_autocommit()) and not self.in_transaction()

    def in_transaction(self) -> bool:
        return mysql_in_transaction(self._conn)


def mysql_in_transaction(conn: Any) -> bool:
    """Whether the server said last that a transaction is open."""
    if hasattr(conn, "get_transaction_status"):  # asyncmy
        return bool(conn.get_transaction_status())
    return bool((getattr(conn, "server_status", 0) or 0) & IN_TRANSACTION)


def pyformat(statement: str) -> str:
    """Return a statement with `%(name)s` where a value goes."""
    return PLACE.sub(r"%(\1)s", statement.replace("%", "%%"))


class SQLAlchemy(Door):
    """A connection of SQLAlchemy, or that of a session."""

    def __init__(self, conn: Any) -> None:
        self._conn = conn.connection() if hasattr(conn, "get_bind") else conn
        name = self._conn.dialect.name
        if name not in DIALECTS:
            raise Unsupported(capability="fencing", backend=name)
        self.dialect = DIALECTS[name]

    async def run(self, statement: str, values: Mapping[str, Any]) -> Done:
        from sqlalchemy import BigInteger, bindparam, text

        # What is a number here is a token as a rule, and needs 64 bits where the driver writes the type.
        wide = [bindparam(name, type_=BigInteger) for name, value in values.items() if type(value) is int]
        result = self._conn.execute(text(statement).bindparams(*wide), dict(values))
        if result.returns_rows:
            rows = result.all()
            return Done(tuple(rows[0]) if rows else None, result.rowcount, 0)
        return Done(None, result.rowcount, result.lastrowid or 0 if self.dialect == MYSQL else 0)

    def commits_at_once(self) -> bool:
        began = None if self._conn.in_transaction() else self._conn.begin()  # as the statement would
        found = self._driver_commits_at_once()
        if found and began is not None:
            began.rollback()
        return found

    def _driver_commits_at_once(self) -> bool:
        raw: Any = self._conn.connection.driver_connection
        if self.dialect == SQLITE:
            return sqlite_commits_at_once(raw)
        if self.dialect == MYSQL:
            autocommit = raw.get_autocommit() if hasattr(raw, "get_autocommit") else False
            return bool(autocommit) and not mysql_in_transaction(raw)
        return bool(getattr(self._conn.connection.dbapi_connection, "autocommit", False))

    def in_transaction(self) -> bool:
        return mysql_in_transaction(self._conn.connection.driver_connection)


def blocking_door(conn: Any) -> Door:
    """Return the door for a connection of a blocking driver."""
    for module, name, door in (
        ("sqlite3", "Connection", SQLite),
        ("psycopg", "Connection", Psycopg),
        ("pymysql.connections", "Connection", PyMySQL),
    ):
        if is_a(conn, module, name):
            return door(conn)
    if is_a(conn, "sqlalchemy.orm.scoping", "scoped_session"):
        conn = conn()
    if is_a(conn, "sqlalchemy.engine.base", "Connection") or is_a(conn, "sqlalchemy.orm.session", "Session"):
        return SQLAlchemy(conn)
    if "async" in f"{type(conn).__module__}.{type(conn).__name__}".lower():
        raise ConfigurationError(f"conn={shown(conn)} is asynchronous: use the function that ends in _async")
    raise ConfigurationError(f"conn={shown(conn)} is not {WANTED}")


def async_door(conn: Any) -> Any:
    """Return the door for an asynchronous connection, or what of SQLAlchemy's has a `run_sync`."""
    if is_a(conn, "psycopg", "AsyncConnection"):
        return PsycopgTasks(conn)
    if is_a(conn, "asyncmy.connection", "Connection"):
        return AsyncMy(conn)
    if is_a(conn, "sqlalchemy.ext.asyncio.scoping", "async_scoped_session"):
        conn = conn()
    if is_a(conn, "sqlalchemy.ext.asyncio.engine", "AsyncConnection"):
        return conn
    if is_a(conn, "sqlalchemy.ext.asyncio.session", "AsyncSession"):
        return conn
    raise ConfigurationError(f"conn={shown(conn)} is not {WANTED_ASYNC}")


def is_a(thing: Any, module: str, name: str) -> bool:
    """Whether it is of that class: one that was never imported has no instances."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(thing, getattr(loaded, name))
