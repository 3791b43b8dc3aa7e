"""The user's own SQL connections, of many drivers, behind one face.

A `Door` stands for a connection of sqlite3, psycopg, PyMySQL or asyncmy, or for a connection or session of
SQLAlchemy. `ask` and `ask_async` find the door of a connection, and do some work there:

    found = ask(conn, lambda door: door.run(f"SELECT text FROM {door.table('notes')} WHERE id = {MARK}", [7]))
    found.rows[0]["text"]

A statement has `MARK` where a value goes; each door writes that as its driver wants it, and values go beside
the statement, never into it. `MARK` is NUL, the one character that no name has: a table may be called `a:b`,
`a?` or `%s`. Rows are dicts, whatever row factory the connection has.

The doors of blocking drivers never suspend, so one coroutine serves both flavours. An asynchronous connection
of SQLAlchemy is used inside its own `run_sync`.

Not promised: nothing here ends a transaction, nor flushes a session before `flush` is called, and the errors
of a driver are raised as they are, but for a table that is not there.
"""

from __future__ import annotations

import inspect
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

from holdfast.errors import ConfigurationError, Unsupported
from holdfast.names import shown
from holdfast.runtime import blocking

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

__all__ = [
    "LONGEST_WAIT",
    "MARK",
    "MYSQL",
    "POSTGRESQL",
    "SQLITE",
    "Answer",
    "Dialect",
    "Door",
    "Row",
    "SQLAlchemy",
    "ask",
    "ask_async",
    "blocking_door",
    "codes",
    "is_a",
    "lock_timeout",
    "make_table",
    "needs_table",
    "not_a_connection",
    "settled",
]

Dialect = Literal["sqlite", "postgresql", "mysql"]
SQLITE: Final = "sqlite"
POSTGRESQL: Final = "postgresql"
MYSQL: Final = "mysql"
Row = dict[str, Any]
"""A row, by the names of its columns."""
T = TypeVar("T")

MARK = "\0"
"""Where a value goes."""
LONGEST_NAME = 63
"""Bytes. PostgreSQL cuts off what is longer, and another name may begin with the same."""
QUOTES: dict[Dialect, str] = {SQLITE: "`", POSTGRESQL: '"', MYSQL: "`"}
"""SQLite takes "x" for a string where no column x is, and then compares with that; `x` is always a name."""
DIALECTS: dict[str, Dialect] = {SQLITE: SQLITE, POSTGRESQL: POSTGRESQL, MYSQL: MYSQL, "mariadb": MYSQL}
IN_TRANSACTION = 1
"""MySQL's SERVER_STATUS_IN_TRANS."""
BUSY = {1, 2, 3}
"""libpq's states of a transaction: at work, open, failed. 0 is none, 4 a connection that is broken."""
NO_TABLE = {"42P01", 1146}
"""PostgreSQL's and MySQL's codes for it. SQLite has words."""
ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(7453010313000001)"
"""CREATE TABLE IF NOT EXISTS fails in PostgreSQL if two do it at the same moment."""
LONGEST_WAIT = 2**31 - 1
"""Milliseconds: more than that `lock_timeout` does not take."""
WANTED = "a connection of sqlite3, psycopg or PyMySQL, nor a connection or session of SQLAlchemy"
WANTED_ASYNC = "an asynchronous connection of psycopg or asyncmy, nor one or a session of SQLAlchemy"


def ask(conn: Any, work: Callable[[Door], Coroutine[Any, Any, T]], *, wanted: str = WANTED) -> T:
    """Do some work on a blocking connection. Raises `ConfigurationError` for what is not `wanted`."""
    door = blocking_door(conn)
    if door is None:
        raise not_a_connection(conn, wanted)
    return blocking.run(work(door))


async def ask_async(
    conn: Any, work: Callable[[Door], Coroutine[Any, Any, T]], *, wanted: str = WANTED_ASYNC
) -> T:
    """Do the same as `ask`, on an asynchronous connection."""
    if is_a(conn, "psycopg", "AsyncConnection"):
        return await work(Psycopg(conn))
    if is_a(conn, "asyncmy.connection", "Connection"):
        return await work(MySQL(conn))
    if is_a(conn, "sqlalchemy.ext.asyncio.scoping", "async_scoped_session"):
        conn = conn()
    for module, name in (("engine", "AsyncConnection"), ("session", "AsyncSession")):
        if is_a(conn, f"sqlalchemy.ext.asyncio.{module}", name):
            result: T = await conn.run_sync(lambda inner: blocking.run(work(SQLAlchemy(inner))))
            return result
    raise ConfigurationError(f"conn={shown(conn)} is not {wanted}")


class Answer(NamedTuple):
    """What a statement did: the rows it gave, how many it touched, and MySQL's LAST_INSERT_ID after it."""

    rows: list[Row]
    touched: int = 0
    last_id: int = 0

    @property
    def row(self) -> Row | None:
        """The first of its rows, if any."""
        return self.rows[0] if self.rows else None


# The doors ------------------------------------------------------------------------------------


class Door(ABC):
    """A connection of some driver."""

    dialect: Dialect
    advice = "begin one"

    @abstractmethod
    async def run(self, statement: str, values: Sequence[Any] = ()) -> Answer:
        """Run a statement that has `MARK` for each value."""

    @abstractmethod
    def in_transaction(self) -> bool:
        """Whether a transaction is open at the server, as far as the driver has heard."""

    @abstractmethod
    def autocommits(self) -> bool:
        """Whether nobody begins a transaction before the next statement."""

    def commits_at_once(self) -> bool:
        """Whether the next statement would be a transaction of its own."""
        return self.autocommits() and not self.in_transaction()

    def check_transaction(self, otherwise: str) -> None:
        """Raise `ConfigurationError` where no transaction would hold statements together."""
        if self.commits_at_once():
            raise ConfigurationError(f"there is no transaction (autocommit), so {otherwise}: {self.advice}")

    def flush(self) -> None:
        """Write what a session has changed. For who looks at the user's rows; a lock comes before writes."""

    def quoted(self, name: str, what: str) -> str:
        """Return a name as a statement has it: as it is stored, case and all."""
        try:
            fits = isinstance(name, str) and MARK not in name and 0 < len(name.encode()) <= LONGEST_NAME
        except UnicodeEncodeError:  # a lone surrogate
            fits = False
        if not fits:
            raise ConfigurationError(
                f"{what}={shown(name)} is no name: give 1 to {LONGEST_NAME} bytes of UTF-8, without NUL"
            )
        quote = QUOTES[self.dialect]
        return f"{quote}{name.replace(quote, quote * 2)}{quote}"

    def table(self, name: str) -> str:
        """Return a table's name, with its schema if it has one, as a statement has it."""
        parts = name.split(".") if isinstance(name, str) else [name]
        if len(parts) > 2:
            raise ConfigurationError(f"table={shown(name)} has too many dots: give 'table' or 'schema.table'")
        return ".".join(self.quoted(part, "table") for part in parts)


class Driver(Door):
    """A connection that a driver has made. Both flavours: what is to be awaited, is."""

    style = "format"

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    @abstractmethod
    def _cursor(self) -> Any:
        """Return a cursor that gives tuples, whatever rows the connection makes for its owner."""

    async def run(self, statement: str, values: Sequence[Any] = ()) -> Answer:
        cursor = await settled(self._cursor())
        try:
            await settled(cursor.execute(written(statement, self.style), tuple(values)))
            # All rows: in SQLite a statement that writes is not done before its last row was read.
            found = await settled(cursor.fetchall()) if cursor.description else ()
            names = [column[0] for column in cursor.description or ()]
            rows = [dict(zip(names, row, strict=True)) for row in found]
            return Answer(rows, cursor.rowcount, cursor.lastrowid or 0 if self.dialect == MYSQL else 0)
        finally:
            await settled(cursor.close())


class SQLite(Driver):
    """A `sqlite3.Connection`."""

    dialect = SQLITE
    style = "qmark"

    def _cursor(self) -> Any:
        cursor = self._conn.cursor()
        cursor.row_factory = None
        return cursor

    def in_transaction(self) -> bool:
        return bool(self._conn.in_transaction)

    def autocommits(self) -> bool:
        mode = getattr(self._conn, "autocommit", None)  # from Python 3.12 on; a number leaves it to the other
        return mode if isinstance(mode, bool) else self._conn.isolation_level is None


class Psycopg(Driver):
    """A `psycopg.Connection` or `AsyncConnection`."""

    dialect = POSTGRESQL

    def _cursor(self) -> Any:
        from psycopg import AsyncConnection, AsyncCursor, Cursor
        from psycopg.rows import tuple_row

        kind: Any = AsyncCursor if isinstance(self._conn, AsyncConnection) else Cursor
        return kind(self._conn, row_factory=tuple_row)

    def in_transaction(self) -> bool:
        info = getattr(self._conn, "info", None)  # none in drivers that only SQLAlchemy knows
        return info is not None and info.transaction_status in BUSY

    def autocommits(self) -> bool:
        return bool(self._conn.autocommit)


class MySQL(Driver):
    """A connection of PyMySQL or asyncmy."""

    dialect = MYSQL

    def _cursor(self) -> Any:
        if is_a(self._conn, "asyncmy.connection", "Connection"):
            from asyncmy.cursors import Cursor

            return self._conn.cursor(Cursor)
        from pymysql.cursors import Cursor as Plain  # type: ignore[import-untyped]

        return self._conn.cursor(Plain)

    def in_transaction(self) -> bool:
        if hasattr(self._conn, "get_transaction_status"):  # asyncmy
            return bool(self._conn.get_transaction_status())
        return bool(getattr(self._conn, "server_status", 0) & IN_TRANSACTION)

    def autocommits(self) -> bool:
        return bool(self._conn.get_autocommit())


DRIVERS: dict[Dialect, Callable[[Any], Driver]] = {SQLITE: SQLite, POSTGRESQL: Psycopg, MYSQL: MySQL}


class SQLAlchemy(Door):
    """A connection of SQLAlchemy, or that of a session."""

    advice = "begin one that is not AUTOCOMMIT"

    def __init__(self, conn: Any) -> None:
        self._session = conn if hasattr(conn, "get_bind") else None
        self._conn = conn.connection() if self._session is not None else conn
        name = self._conn.dialect.name
        if name not in DIALECTS:
            raise Unsupported(capability="SQL", backend=name)
        self.dialect = DIALECTS[name]

    async def run(self, statement: str, values: Sequence[Any] = ()) -> Answer:
        # As the driver has it. With `text` each value would get a type by what it is in Python, and where the
        # driver writes types that is INTEGER for a token of 64 bits.
        words = written(statement, self._conn.dialect.paramstyle)
        result = self._conn.exec_driver_sql(words, tuple(values))
        try:
            rows = [dict(row) for row in result.mappings()] if result.returns_rows else []
            with_id = self.dialect == MYSQL and not result.returns_rows
            return Answer(rows, result.rowcount, result.lastrowid or 0 if with_id else 0)
        finally:
            result.close()

    def flush(self) -> None:
        if self._session is not None:
            self._session.flush()

    def in_transaction(self) -> bool:
        driver = self._conn.connection.driver_connection
        if hasattr(driver, "is_in_transaction"):  # asyncpg
            return bool(driver.is_in_transaction())
        return DRIVERS[self.dialect](driver).in_transaction()

    def autocommits(self) -> bool:
        pooled = self._conn.connection
        if self.dialect == POSTGRESQL:  # asyncpg's own connection does not know it
            return bool(pooled.dbapi_connection.autocommit)
        return DRIVERS[self.dialect](pooled.driver_connection).autocommits()

    def commits_at_once(self) -> bool:
        # The driver is asked, not the engine's options: an event may have set autocommit behind their back,
        # or begin a transaction by a statement. So begin first, as the next statement would.
        began = None if self._conn.in_transaction() else self._conn.begin()
        found = super().commits_at_once()
        if found and began is not None:
            began.rollback()
        return found


def blocking_door(conn: Any) -> Door | None:
    """Return the door of a blocking connection, if it is one."""
    for module, door in (("sqlite3", SQLite), ("psycopg", Psycopg), ("pymysql.connections", MySQL)):
        if is_a(conn, module, "Connection"):
            return door(conn)
    if is_a(conn, "sqlalchemy.orm.scoping", "scoped_session"):
        conn = conn()
    if is_a(conn, "sqlalchemy.engine.base", "Connection") or is_a(conn, "sqlalchemy.orm.session", "Session"):
        return SQLAlchemy(conn)
    return None


def not_a_connection(
    conn: Any, wanted: str, instead: str = "use the function that ends in _async"
) -> ConfigurationError:
    """Return what to say of something that has no door, or not the right one."""
    if "async" in f"{type(conn).__module__}.{type(conn).__name__}".lower():
        return ConfigurationError(f"conn={shown(conn)} is asynchronous: {instead}")
    return ConfigurationError(f"conn={shown(conn)} is not {wanted}")


def is_a(thing: Any, module: str, name: str) -> bool:
    """Whether it is of that class: one that was never imported has no instances."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(thing, getattr(loaded, name))


async def settled(found: Any) -> Any:
    """Return what a driver's function gave, or what it has promised."""
    return await found if inspect.isawaitable(found) else found


def written(statement: str, style: str) -> str:
    """Return a statement in one of the styles that PEP 249 has, or as PostgreSQL's own protocol has it."""
    if style == "qmark":
        return statement.replace(MARK, "?")
    if style in {"format", "pyformat"}:
        return statement.replace("%", "%%").replace(MARK, "%s")
    head, *rest = statement.split(MARK)
    return head + "".join(f"${number}{part}" for number, part in enumerate(rest, 1))


# What statements have in common ---------------------------------------------------------------


def codes(error: BaseException) -> set[str | int]:
    """Return the codes of a driver's error, also of one that SQLAlchemy has wrapped."""
    found: set[str | int] = set()
    for cause in (error, getattr(error, "orig", None)):
        found.update(getattr(cause, field, None) or "" for field in ("sqlstate", "pgcode"))
        found.update(code for code in getattr(cause, "args", ())[:1] if isinstance(code, int))
    return found


@contextmanager
def needs_table(table: str, otherwise: str) -> Iterator[None]:
    """Turn the error that a table is not there into one clear line."""
    try:
        yield
    except Exception as error:
        told = str(error).lower()
        missing = NO_TABLE & codes(error) or "no such table" in told
        if missing and table.rpartition(".")[2].lower() in told:
            raise ConfigurationError(otherwise) from error
        raise


async def make_table(door: Door, *statements: str) -> None:
    """Run statements that make a table if it is not there. Any number may do so at the same time."""
    if door.dialect == MYSQL and door.in_transaction():
        raise ConfigurationError(
            "making a table would commit your transaction: commit it or roll it back before create_table"
        )
    if door.dialect == POSTGRESQL:
        await door.run(ONE_AT_A_TIME)
    for statement in statements:
        await door.run(statement)


@asynccontextmanager
async def lock_timeout(door: Door, seconds: float) -> AsyncIterator[None]:
    """Wait for locks of PostgreSQL no longer than that, behind a savepoint: the transaction can go on.

    Rolling back to the savepoint undoes the setting, releasing the savepoint does not.
    """
    limit = max(1, min(LONGEST_WAIT, math.ceil(seconds * 1000)))
    await door.run("SAVEPOINT holdfast")
    try:
        (old,) = (await door.run("SELECT current_setting('lock_timeout') AS old")).rows
        setting = f"SELECT set_config('lock_timeout', {MARK}, true)"
        await door.run(setting, [f"{limit}ms"])
        yield
        await door.run(setting, [old["old"]])
    except BaseException:
        with suppress(Exception):  # the first error tells more
            await door.run("ROLLBACK TO SAVEPOINT holdfast")
            await door.run("RELEASE SAVEPOINT holdfast")
        raise
    await door.run("RELEASE SAVEPOINT holdfast")
