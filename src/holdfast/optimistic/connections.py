"""The user's own SQL connections, of many drivers, behind one face.

sqlite3, psycopg and PyMySQL, their asynchronous kin (psycopg's `AsyncConnection`, asyncmy), and connections
and sessions of SQLAlchemy in both flavours. A `Door` runs a statement and returns rows as dicts, whatever row
factory the connection has. The doors of blocking drivers never suspend, so that one coroutine serves both
flavours; an asynchronous connection of SQLAlchemy is used inside its own `run_sync`.

A statement is written with `MARK` for each value. A door writes it as its driver wants it; values are always
sent beside the statement, never in it. Names are quoted, and checked first.

Nothing here commits or rolls back, and errors of a driver are raised as they are.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from holdfast.errors import ConfigurationError, Unsupported
from holdfast.names import shown
from holdfast.runtime import blocking

if TYPE_CHECKING:
    import sqlite3

    from asyncmy import Connection as AsyncmyConnection
    from psycopg import AsyncConnection, Connection
    from pymysql.connections import Connection as PyMySQLConnection  # type: ignore[import-untyped]
    from sqlalchemy import Connection as SQLConnection
    from sqlalchemy.ext.asyncio import AsyncConnection as SQLAsyncConnection
    from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session

    Blocking = (
        sqlite3.Connection
        | Connection[Any]
        | PyMySQLConnection
        | SQLConnection
        | Session
        | scoped_session[Any]
    )
    Asyncio = (
        AsyncConnection[Any]
        | AsyncmyConnection
        | SQLAsyncConnection
        | AsyncSession
        | async_scoped_session[Any]
    )

__all__ = ["MARK", "Dialect", "Door", "Row", "ask", "ask_async", "is_a", "quoted", "table_name"]

Dialect = Literal["sqlite", "postgresql", "mysql"]
Row = dict[str, Any]
"""A row, by the names of its columns."""
T = TypeVar("T")

MARK = "\0"
"""Where a value goes. No name can contain it."""
LONGEST_NAME = 64
QUOTES: dict[str, str] = {"sqlite": '"', "postgresql": '"', "mysql": "`"}
DIALECTS: dict[str, Dialect] = {
    "sqlite": "sqlite",
    "postgresql": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
}
IN_TRANSACTION = 1
"""The flag of MySQL's protocol that a transaction is open."""


def ask(conn: Any, work: Callable[[Door], Coroutine[Any, Any, T]]) -> T:
    """Do some work on a blocking connection."""
    return blocking.run(work(blocking_door(conn)))


async def ask_async(conn: Any, work: Callable[[Door], Coroutine[Any, Any, T]]) -> T:
    """Do some work on an asynchronous connection."""
    found = async_door(conn)
    if isinstance(found, Door):
        return await work(found)
    result: T = await found.run_sync(lambda inner: blocking.run(work(SQLAlchemy(inner))))
    return result


def quoted(name: str, dialect: str, what: str) -> str:
    """Return a name as it stands in a statement."""
    if not isinstance(name, str) or not name or "\0" in name or len(name.encode()) > LONGEST_NAME:
        raise ConfigurationError(
            f"{what}={shown(name)} is no name: give 1 to {LONGEST_NAME} bytes, without NUL"
        )
    quote = QUOTES[dialect]
    return f"{quote}{name.replace(quote, quote * 2)}{quote}"


def table_name(table: str, dialect: str) -> str:
    """Return a table's name, with its schema if it has one, as it stands in a statement."""
    if not isinstance(table, str):
        raise ConfigurationError(f"table={shown(table)} is no name: give a string")
    parts = table.split(".")
    if len(parts) > 2:
        raise ConfigurationError(f"table={shown(table)} has too many dots: give 'table' or 'schema.table'")
    return ".".join(quoted(part, dialect, "table") for part in parts)


class Door(ABC):
    """A connection of some driver."""

    dialect: Dialect

    @abstractmethod
    async def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run a statement, and return the rows that it gives."""

    @abstractmethod
    def is_bare(self) -> bool:
        """Whether no transaction is open and none will be: every statement stands alone."""

    async def row(self, statement: str, values: Sequence[Any] = ()) -> Row | None:
        """Run a statement, and return the first row that it gives, if any."""
        found = await self.rows(statement, values)
        return found[0] if found else None


def _as_percent(statement: str) -> str:
    return statement.replace("%", "%%").replace(MARK, "%s")


def _rows(cursor: Any, found: Sequence[Any]) -> list[Row]:
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in found]


class SQLite(Door):
    """A `sqlite3.Connection`."""

    dialect = "sqlite"

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    def is_bare(self) -> bool:
        mode = getattr(self._conn, "autocommit", -1)  # Python 3.12; -1 leaves it to isolation_level
        alone = mode if isinstance(mode, bool) else self._conn.isolation_level is None
        return alone and not self._conn.in_transaction

    async def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        cursor = self._conn.cursor()
        cursor.row_factory = None  # whatever the connection's own is
        try:
            cursor.execute(statement.replace(MARK, "?"), tuple(values))
            return _rows(cursor, cursor.fetchall()) if cursor.description else []
        finally:
            cursor.close()


class Psycopg(Door):
    """A `psycopg.Connection`."""

    dialect = "postgresql"

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    def is_bare(self) -> bool:
        from psycopg.pq import TransactionStatus

        return bool(self._conn.autocommit) and self._conn.info.transaction_status == TransactionStatus.IDLE

    async def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        from psycopg import Cursor
        from psycopg.rows import tuple_row

        with Cursor(self._conn, row_factory=tuple_row) as cursor:
            cursor.execute(_as_percent(statement).encode(), tuple(values))
            return _rows(cursor, cursor.fetchall()) if cursor.description else []


class PsycopgTasks(Psycopg):
    """A `psycopg.AsyncConnection`."""

    async def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        from psycopg import AsyncCursor
        from psycopg.rows import tuple_row

        async with AsyncCursor(self._conn, row_factory=tuple_row) as cursor:
            await cursor.execute(_as_percent(statement).encode(), tuple(values))
            return _rows(cursor, await cursor.fetchall()) if cursor.description else []


class PyMySQL(Door):
    """A connection of PyMySQL."""

    dialect = "mysql"

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    def is_bare(self) -> bool:
        return bool(self._conn.get_autocommit()) and not self._conn.server_status & IN_TRANSACTION

    async def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        from pymysql.cursors import Cursor  # type: ignore[import-untyped]

        with self._conn.cursor(Cursor) as cursor:
            cursor.execute(_as_percent(statement), tuple(values))
            return _rows(cursor, cursor.fetchall()) if cursor.description else []


class Asyncmy(Door):
    """A connection of asyncmy."""

    dialect = "mysql"

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    def is_bare(self) -> bool:
        return bool(self._conn.get_autocommit()) and not self._conn.get_transaction_status()

    async def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        from asyncmy.cursors import Cursor

        async with self._conn.cursor(Cursor) as cursor:
            await cursor.execute(_as_percent(statement), tuple(values))
            return _rows(cursor, await cursor.fetchall()) if cursor.description else []


class SQLAlchemy(Door):
    """A connection of SQLAlchemy, or that of a session. Under asyncio it is used in `run_sync`."""

    def __init__(self, conn: Any) -> None:
        if hasattr(conn, "get_bind"):
            conn.flush()  # what the session has changed and not yet written comes first
            conn = conn.connection()
        self._conn = conn
        name = conn.dialect.name
        if name not in DIALECTS:
            raise Unsupported(capability="SQL", backend=name)
        self.dialect = DIALECTS[name]

    def is_bare(self) -> bool:
        level = self._conn.get_execution_options().get("isolation_level")
        level = level or getattr(self._conn.dialect, "_on_connect_isolation_level", None)
        return bool(level == "AUTOCOMMIT")

    async def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        result = self._conn.exec_driver_sql(self._written(statement), tuple(values))
        return [dict(row) for row in result.mappings()] if result.returns_rows else []

    def _written(self, statement: str) -> str:
        style = self._conn.dialect.paramstyle
        if style == "qmark":
            return statement.replace(MARK, "?")
        if style in {"format", "pyformat"}:
            return _as_percent(statement)
        head, *rest = statement.split(MARK)
        return head + "".join(f"${number}{part}" for number, part in enumerate(rest, 1))


def blocking_door(conn: Any) -> Door:
    """Return the door of a blocking connection. Raises `ConfigurationError`."""
    if is_a(conn, "sqlite3", "Connection"):
        return SQLite(conn)
    if is_a(conn, "psycopg", "Connection"):
        return Psycopg(conn)
    if is_a(conn, "pymysql.connections", "Connection"):
        return PyMySQL(conn)
    if is_a(conn, "sqlalchemy.orm.scoping", "scoped_session"):
        conn = conn()
    if is_a(conn, "sqlalchemy.engine.base", "Connection") or is_a(conn, "sqlalchemy.orm.session", "Session"):
        return SQLAlchemy(conn)
    if type(conn).__module__.startswith("asyncmy") or "async" in type(conn).__name__.lower():
        raise ConfigurationError(f"conn={shown(conn)} is asynchronous: use the function that ends in _async")
    raise ConfigurationError(
        f"conn={shown(conn)} is not a connection of sqlite3, psycopg or PyMySQL, "
        "nor a connection or session of SQLAlchemy"
    )


def async_door(conn: Any) -> Any:
    """Return the door of an asynchronous connection, or what of SQLAlchemy's has `run_sync`."""
    if is_a(conn, "psycopg", "AsyncConnection"):
        return PsycopgTasks(conn)
    if is_a(conn, "asyncmy.connection", "Connection"):
        return Asyncmy(conn)
    if is_a(conn, "sqlalchemy.ext.asyncio.scoping", "async_scoped_session"):
        conn = conn()
    if is_a(conn, "sqlalchemy.ext.asyncio.engine", "AsyncConnection"):
        return conn
    if is_a(conn, "sqlalchemy.ext.asyncio.session", "AsyncSession"):
        return conn
    raise ConfigurationError(
        f"conn={shown(conn)} is not an asynchronous connection of psycopg or asyncmy, "
        "nor one or a session of SQLAlchemy"
    )


def is_a(thing: Any, module: str, name: str) -> bool:
    """Whether it is of that class: one that was never imported has no instances."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(thing, getattr(loaded, name))
