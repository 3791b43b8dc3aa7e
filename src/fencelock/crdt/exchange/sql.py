"""SQL: one table for all names, on SQLite, PostgreSQL, MySQL and MariaDB.

    fencelock_crdt (name, author, seq, whole, body), one row for each record

Each call is one short transaction. On your own connection the table is made by `create_table()`, never
by itself, and there must be no transaction open: a call would commit it. Of your engine of SQLAlchemy each
call takes a connection for as long as it lasts. With a URL the connection is the exchange's own; it makes
the table, and connects again after an error.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import unquote

from fencelock.backends.url import hide_password, split
from fencelock.connections import (
    MARK,
    MYSQL,
    POSTGRESQL,
    SQLITE,
    Dialect,
    Door,
    SQLAlchemy,
    blocking_door,
    is_a,
    lacks_right,
    make_table,
    needs_table,
    not_a_connection,
)
from fencelock.crdt.exchange.base import Exchange, Record, record_from, said
from fencelock.errors import BackendUnavailable, ConfigurationError, FencelockError
from fencelock.runtime import blocking, locks

__all__ = ["SQLExchange"]

T = TypeVar("T")
TABLE = "fencelock_crdt"
NO_TABLE = f"the table {TABLE} is missing: call SQLExchange(conn).create_table() once"
CREATE = f"""CREATE TABLE IF NOT EXISTS {TABLE} (
    name {{name}} NOT NULL,
    author VARCHAR(64) NOT NULL,
    seq BIGINT NOT NULL,
    whole SMALLINT NOT NULL,
    body {{body}} NOT NULL,
    PRIMARY KEY (name, author, seq, whole)
)"""
TYPES: dict[Dialect, dict[str, str]] = {
    SQLITE: {"name": "BLOB", "body": "BLOB"},
    POSTGRESQL: {"name": "BYTEA", "body": "BYTEA"},
    MYSQL: {"name": "VARBINARY(512)", "body": "LONGBLOB"},
}
ONE = f"name = {MARK} AND author = {MARK} AND seq = {MARK} AND whole = {MARK}"
NOTHING = f"SELECT 1 FROM {TABLE} WHERE 1 = 0"
RECORDS = f"SELECT author, seq, whole FROM {TABLE} WHERE name = {MARK}"
READ = f"SELECT body FROM {TABLE} WHERE {ONE}"
WRITE = (
    f"INSERT INTO {TABLE} (name, author, seq, whole, body) VALUES ({MARK}, {MARK}, {MARK}, {MARK}, {MARK})"
)
REMOVE = f"DELETE FROM {TABLE} WHERE {ONE}"

Work = Callable[[Door], Coroutine[Any, Any, T]]


class SQLExchange(Exchange):
    """Records in a table of your database, through your own connection or engine.

    Example:
        >>> import sqlite3
        >>> conn = sqlite3.connect(":memory:")
        >>> exchange = SQLExchange(conn)
        >>> exchange.create_table()
        >>> exchange.records("stock")
        []
        >>> conn.close()
    """

    def __init__(self, conn: Any) -> None:
        """Use your connection of sqlite3, psycopg or PyMySQL, or engine of SQLAlchemy; it stays yours."""
        self._engine = conn if is_a(conn, "sqlalchemy.engine.base", "Engine") else None
        self._door: Door | None = None if self._engine is not None else _door_of(conn)
        self._dialect: str = conn.dialect.name if self._door is None else self._door.dialect
        self._conn: Any = conn
        self._connect: Callable[[], Any] | None = None
        self._lock = locks.lock()

    @classmethod
    def from_url(cls, url: str) -> SQLExchange:
        """Return an exchange that connects by itself; no I/O happens before it is used."""
        made = cls.__new__(cls)
        made._dialect, made._connect = _from_url(url)
        made._door = made._conn = made._engine = None
        made._lock = locks.lock()
        return made

    def create_table(self) -> None:
        """Make the table, if it is not there."""
        self._run(_create)

    def records(self, name: str) -> list[Record]:
        answer = self._run(lambda door: door.run(RECORDS, [name.encode()]))
        found = (Record(str(row["author"]), int(row["seq"]), bool(row["whole"])) for row in answer.rows)
        return [record for record in found if record_from(record.label()) is not None]

    def read(self, name: str, records: Sequence[Record]) -> dict[Record, bytes]:
        async def look(door: Door) -> dict[Record, bytes]:
            found = {}
            for record in records:
                row = (await door.run(READ, _key(name, record))).row
                if row is not None:
                    found[record] = bytes(row["body"])
            return found

        return self._run(look) if records else {}

    def write(self, name: str, record: Record, body: bytes, replaced: Sequence[Record]) -> None:
        async def put(door: Door) -> None:
            await door.run(WRITE, (*_key(name, record), body))
            for old in replaced:
                await door.run(REMOVE, _key(name, old))

        self._run(put)

    def remove(self, name: str, records: Sequence[Record]) -> None:
        async def drop(door: Door) -> None:
            for record in records:
                await door.run(REMOVE, _key(name, record))

        if records:
            self._run(drop)

    def close(self) -> None:
        with self._lock:
            if self._connect is not None:
                self._drop_connection()

    def _run(self, work: Work[T]) -> T:
        """Do something in one transaction."""
        with self._lock:
            try:
                with needs_table(TABLE, NO_TABLE):
                    return self._step(work)
            except FencelockError:
                raise
            except Exception as error:
                lacks = lacks_right(error)
                raise BackendUnavailable(
                    backend=self._dialect, detail=lacks or said(error), transient=not lacks
                ) from error

    def _step(self, work: Work[T]) -> T:
        if self._engine is not None:
            with self._engine.begin() as conn:
                return blocking.run(work(SQLAlchemy(conn)))
        try:
            if self._door is None and self._connect is not None:
                self._conn = self._connect()
                self._door = _door_of(self._conn)
                self._ensure_table()
            assert self._door is not None
            if self._door.in_transaction():
                raise ConfigurationError(
                    "the connection is in a transaction: end it first, an exchange makes its own"
                )
            return self._committed(work)
        except BaseException:
            if self._connect is not None:
                self._drop_connection()
            raise

    def _committed(self, work: Work[T]) -> T:
        assert self._door is not None
        try:
            result = blocking.run(work(self._door))
            self._conn.commit()
        except BaseException:
            with suppress(Exception):  # the first error is the one to tell
                self._conn.rollback()
            raise
        return result

    def _ensure_table(self) -> None:
        """Make the table if it is not there: who may not make tables can use one that is."""
        try:
            with needs_table(TABLE, NO_TABLE):
                self._committed(lambda door: door.run(NOTHING))
        except ConfigurationError:
            self._committed(_create)

    def _drop_connection(self) -> None:
        conn, self._conn, self._door = self._conn, None, None
        if conn is not None:
            with suppress(Exception):
                conn.close()

    def __repr__(self) -> str:
        return f"<SQLExchange {self._dialect}>"


async def _create(door: Door) -> None:
    await make_table(door, CREATE.format(**TYPES[door.dialect]))


def _key(name: str, record: Record) -> tuple[Any, ...]:
    return name.encode(), record.author, record.seq, int(record.whole)


def _door_of(conn: Any) -> Door:
    door = blocking_door(conn)
    if door is None or isinstance(door, SQLAlchemy):  # a session's commit would write what it has pending
        raise not_a_connection(
            conn,
            "a connection of sqlite3, psycopg or PyMySQL, nor an engine of SQLAlchemy",
            "give a blocking one, AsyncReplica uses it on a thread",
        )
    return door


def _from_url(url: str) -> tuple[Dialect, Callable[[], Any]]:
    scheme = split(url).scheme
    try:
        if scheme == "sqlite":
            return SQLITE, _sqlite(url)
        if scheme in {"postgresql", "postgres"}:
            import psycopg

            return POSTGRESQL, lambda: psycopg.connect(url, connect_timeout=5)
        import pymysql  # type: ignore[import-untyped]

        from fencelock.backends.mysql.server import OPTIONS, Server, options_of

        server = Server(url, options_of(url, OPTIONS))
        limits = {"read_timeout": 30, "write_timeout": 30, "autocommit": False}
        return MYSQL, lambda: pymysql.connect(**{**server.arguments(server.connect_timeout), **limits})
    except ModuleNotFoundError as error:
        extra = "postgres" if scheme.startswith("postgres") else "mysql"
        raise ConfigurationError(
            f"{scheme}:// needs the package {error.name!r}: pip install 'fencelock[{extra}]'"
        ) from error


def _sqlite(url: str) -> Callable[[], Any]:
    parts = split(url)
    path = unquote(parts.path)
    if parts.authority or parts.query or not path.strip("/"):
        raise ConfigurationError(f"{hide_password(url)!r} names no file: write sqlite:///absolute/path.db")
    return lambda: sqlite3.connect(path, timeout=10, check_same_thread=False)
