"""Pages in a table of SQL: one row each, written by one statement that names the version it replaces.

    id        hash of namespace and name
    version   counts the writes
    body      JSON

In the database that keeps the locks the table is made when it is first missed. In the user's own it is made
by `create_table`, or in the same way if the role may make tables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from fencelock.backends.bugs import BUGS, bug
from fencelock.connections import (
    MARK,
    MYSQL,
    Door,
    ask,
    ask_async,
    has,
    lacks_right,
    make_table,
    needs_table,
)
from fencelock.connections.steps import NOW, Steps, Work
from fencelock.errors import BackendUnavailable, ConfigurationError, FencelockError
from fencelock.runtime import clock
from fencelock.schedule.shelves.base import Page, Shelf

if TYPE_CHECKING:
    from fencelock.connections import Asyncio, Blocking

__all__ = ["TABLE", "SQLShelf", "closer", "connector", "create_table", "create_table_async"]

T = TypeVar("T")
TABLE = "fencelock_schedule"
NO_TABLE = f"there is no table {TABLE}"
LIMIT = 10.0
"""Seconds that a step on the locks' own database may take."""
COLUMNS = "(id CHAR(64) NOT NULL PRIMARY KEY, version BIGINT NOT NULL, body {text} NOT NULL)"


class NoTable(ConfigurationError):
    """The table is not there."""


def create_table(conn: Blocking) -> None:
    """Make the table `fencelock_schedule`, if it is not there. Commit afterwards.

    Only needed where the role that schedules use may not make tables.
    """
    ask(conn, lambda door: _create(door, TABLE))


async def create_table_async(conn: Asyncio) -> None:
    """Do the same as `create_table`, for asynchronous connections."""
    await ask_async(conn, lambda door: _create(door, TABLE))


async def _create(door: Door, table: str) -> None:
    schema = table.rpartition(".")[0]
    statements = []
    if schema:
        found = await door.run(f"SELECT 1 AS one FROM pg_namespace WHERE nspname = {MARK}", [schema])
        if not found.rows:
            statements.append(f"CREATE SCHEMA IF NOT EXISTS {door.quoted(schema, 'schema')}")
    columns = COLUMNS.format(text="LONGTEXT" if door.dialect == MYSQL else "TEXT")
    engine = " ENGINE=InnoDB DEFAULT CHARSET=utf8mb4" if door.dialect == MYSQL else ""
    statements.append(f"CREATE TABLE IF NOT EXISTS {door.table(table)} {columns}{engine}")
    await make_table(door, *statements)


class SQLShelf(Shelf):
    """Pages in a table, a step at a time."""

    def __init__(
        self, where: str, steps: Steps, table: str = TABLE, close: Callable[[], None] | None = None
    ) -> None:
        """Do steps on a table; `close` closes what connects, if the store made it."""
        self.where = where
        self._close = close
        self._steps = steps
        self._table = table

    async def read(self, key: str) -> Page:
        async def look(door: Door) -> Page:
            now = NOW[door.dialect]
            found = await door.run(
                f"SELECT version, body, {now} AS now FROM {door.table(self._table)} WHERE id = {MARK}", [key]
            )
            if found.row is None:
                return await empty(door)
            row = found.row
            return Page(str(row["body"]), int(row["version"]), float(row["now"]))

        async def empty(door: Door) -> Page:
            (row,) = (await door.run(f"SELECT {NOW[door.dialect]} AS now")).rows
            return Page(None, 0, float(row["now"]))

        try:
            return await self._step(look, look)  # without a transaction of its own
        except NoTable:
            return await self._step(empty, empty)  # who only looks makes no table

    async def write(self, key: str, text: str, version: int) -> bool:
        async def put(door: Door) -> bool:
            table = door.table(self._table)
            if version:
                statement = f"UPDATE {table} SET body = {MARK}, version = version + 1 WHERE id = {MARK}"
                done = await door.run(f"{statement} AND version = {MARK}", [text, key, version])
            elif door.dialect == MYSQL:
                done = await door.run(f"INSERT IGNORE INTO {table} VALUES ({MARK}, 1, {MARK})", [key, text])
            else:
                statement = f"INSERT INTO {table} (id, version, body) VALUES ({MARK}, 1, {MARK})"
                done = await door.run(f"{statement} ON CONFLICT (id) DO NOTHING", [key, text])
            return done.touched == 1

        try:
            return await self._step(put, None)
        except NoTable:
            await self._step(self._made, self._made)  # as a look: MySQL makes no table in a transaction
            return await self._step(put, None)

    async def close(self) -> None:
        if self._close is not None:
            await self._steps.call(self._close)

    async def _made(self, door: Door) -> bool:
        await _create(door, self._table)
        return True

    async def _step(self, work: Work[T], look: Work[T | None] | None) -> T:
        try:
            with needs_table(self._table, NO_TABLE):
                return await self._steps.do(work, look)
        except ConfigurationError as error:
            if str(error) == NO_TABLE:
                raise NoTable(NO_TABLE) from error
            raise
        except FencelockError:
            raise
        except BUGS as error:
            raise bug(self.where, "fencelock", error) from error
        except Exception as error:
            lacks = lacks_right(error)
            said = lacks or " ".join(str(error).split())[:200] or type(error).__name__
            raise BackendUnavailable(backend=self.where, detail=said, transient=not lacks) from error


def connector(backend: Any) -> tuple[Callable[[], Any], str] | None:
    """Return what connects to the database that keeps a backend's locks, and the table to use there."""
    if has(backend, "_store", "fencelock.backends.sqlite.store", "Store"):
        return _sqlite(backend), TABLE
    if has(backend, "_address", "fencelock.backends.postgres.address", "Address"):
        return _postgres(backend._address), f"{backend._address.schema}.{TABLE}"
    if has(backend, "_server", "fencelock.backends.mysql.server", "Server"):
        return _mysql(backend._server), f"{backend._prefix}schedule"
    return None


def closer(backend: Any) -> Callable[[], None] | None:
    """Return what closes the connection that `connector` leaves open in a backend, if it leaves one."""
    if has(backend, "_store", "fencelock.backends.sqlite.store", "Store"):
        close: Callable[[], None] = backend._store.close
        return close
    return None


def _sqlite(backend: Any) -> Callable[[], Any]:
    import sqlite3

    def connect() -> Any:
        backend._store.step(clock.now() + LIMIT, lambda db: None)  # the file is there, and is a lock file
        return sqlite3.connect(backend._path, timeout=LIMIT, isolation_level=None)

    return connect


def _postgres(address: Any) -> Callable[[], Any]:
    import psycopg

    parameters = {"connect_timeout": f"{LIMIT:.0f}", **address.parameters}
    return lambda: psycopg.connect(**parameters)


def _mysql(server: Any) -> Callable[[], Any]:
    import pymysql  # type: ignore[import-untyped]

    limits = {"read_timeout": LIMIT, "write_timeout": LIMIT}
    return lambda: pymysql.connect(**server.arguments(server.connect_timeout), **limits)
