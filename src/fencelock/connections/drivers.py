"""The doors: one for each driver, and one for SQLAlchemy, which is asked through the driver that it uses."""

from __future__ import annotations

import inspect
import sys
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from fencelock.connections.door import MARK, MYSQL, POSTGRESQL, SQLITE, Answer, Dialect, Door
from fencelock.errors import Unsupported

__all__ = ["MySQL", "Psycopg", "SQLAlchemy", "SQLite", "has", "is_a", "is_redis_client", "settled"]

DIALECTS: dict[str, Dialect] = {SQLITE: SQLITE, POSTGRESQL: POSTGRESQL, MYSQL: MYSQL, "mariadb": MYSQL}
IN_TRANSACTION = 1
"""MySQL's SERVER_STATUS_IN_TRANS."""
BUSY = {1, 2, 3}
"""libpq's states of a transaction: at work, open, failed. 0 is none, 4 a connection that is broken."""


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


def is_a(thing: Any, module: str, name: str) -> bool:
    """Whether it is of that class: one that was never imported has no instances."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(thing, getattr(loaded, name))


def has(thing: Any, attribute: str, module: str, name: str) -> bool:
    """Whether it has an attribute of that class: so have subclasses, and wrappers that pass attributes on."""
    return is_a(getattr(thing, attribute, None), module, name)


def is_redis_client(thing: Any, flavour: str) -> bool:
    """Whether it is a client of redis-py, of the flavour `redis` or `redis.asyncio`."""
    return is_a(thing, f"{flavour}.client", "Redis") or is_a(thing, f"{flavour}.cluster", "RedisCluster")


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
