"""SQL: one table for all names, on SQLite, PostgreSQL, MySQL and MariaDB.

    holdfast_crdt (name, author, seq, whole, body), one row for each record

Each call is one short transaction. On your own connection the table is made by `create_table()`, never
by itself, and there must be no transaction open: a call would commit it. With a URL the connection is
the exchange's own; it makes the table, and connects again after an error.
"""

from __future__ import annotations

import sqlite3
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from holdfast.backends import hide_password
from holdfast.crdt.exchange.base import Exchange, Record, record_from, said
from holdfast.errors import BackendUnavailable, ConfigurationError, HoldfastError
from holdfast.names import shown

__all__ = ["SQLExchange"]

T = TypeVar("T")
TABLE = "holdfast_crdt"
IN_TRANSACTION = 1  # SERVER_STATUS_IN_TRANS of MySQL's protocol
CREATE = f"""CREATE TABLE IF NOT EXISTS {TABLE} (
    name {{name}} NOT NULL,
    author VARCHAR(64) NOT NULL,
    seq BIGINT NOT NULL,
    whole SMALLINT NOT NULL,
    body {{body}} NOT NULL,
    PRIMARY KEY (name, author, seq, whole)
)"""
NOTHING = f"SELECT 1 FROM {TABLE} WHERE 1 = 0"
RECORDS = f"SELECT author, seq, whole FROM {TABLE} WHERE name = ?"
READ = f"SELECT body FROM {TABLE} WHERE name = ? AND author = ? AND seq = ? AND whole = ?"
WRITE = f"INSERT INTO {TABLE} (name, author, seq, whole, body) VALUES (?, ?, ?, ?, ?)"
REMOVE = f"DELETE FROM {TABLE} WHERE name = ? AND author = ? AND seq = ? AND whole = ?"


class Dialect(NamedTuple):
    """What differs from driver to driver."""

    name: str
    mark: str
    types: dict[str, str]
    missing: Callable[[Exception], bool]
    busy: Callable[[Any], bool]


SQLITE = Dialect(
    "sqlite",
    "?",
    {"name": "BLOB", "body": "BLOB"},
    lambda error: "no such table" in str(error),
    lambda conn: bool(conn.in_transaction),
)
POSTGRES = Dialect(
    "postgresql",
    "%s",
    {"name": "BYTEA", "body": "BYTEA"},
    lambda error: getattr(error, "sqlstate", None) == "42P01",
    lambda conn: 1 <= conn.info.transaction_status.value <= 3,  # 4 is a connection that is broken
)
MYSQL = Dialect(
    "mysql",
    "%s",
    {"name": "VARBINARY(512)", "body": "LONGBLOB"},
    lambda error: bool(error.args) and error.args[0] == 1146,
    lambda conn: bool(conn.server_status & IN_TRANSACTION),
)


class SQLExchange(Exchange):
    """Records in a table of your database, through your own connection.

    Example:
        >>> import sqlite3
        >>> exchange = SQLExchange(sqlite3.connect(":memory:"))
        >>> exchange.create_table()
        >>> exchange.records("stock")
        []
    """

    def __init__(self, conn: Any) -> None:
        """Use a connection of sqlite3, psycopg or PyMySQL; it stays yours to close."""
        self._dialect = _dialect_of(conn)
        self._conn: Any = conn
        self._connect: Callable[[], Any] | None = None
        self._lock = threading.Lock()

    @classmethod
    def from_url(cls, url: str) -> SQLExchange:
        """Return an exchange that connects by itself; no I/O happens before it is used."""
        made = cls.__new__(cls)
        made._dialect, made._connect = _from_url(url)
        made._conn = None
        made._lock = threading.Lock()
        return made

    def create_table(self) -> None:
        """Make the table, if it is not there."""
        self._run(lambda cursor: cursor.execute(CREATE.format(**self._dialect.types)))

    def records(self, name: str) -> list[Record]:
        def ask(cursor: Any) -> Any:
            cursor.execute(self._words(RECORDS), (name.encode(),))
            return _plain_rows(cursor)

        rows = (Record(str(author), int(seq), bool(whole)) for author, seq, whole in self._run(ask))
        return [row for row in rows if record_from(row.label()) is not None]

    def read(self, name: str, records: Sequence[Record]) -> dict[Record, bytes]:
        def ask(cursor: Any) -> dict[Record, bytes]:
            found = {}
            for record in records:
                cursor.execute(self._words(READ), _key(name, record))
                for (body,) in _plain_rows(cursor):
                    found[record] = bytes(body)
            return found

        return self._run(ask) if records else {}

    def write(self, name: str, record: Record, body: bytes, replaced: Sequence[Record]) -> None:
        def put(cursor: Any) -> None:
            cursor.execute(self._words(WRITE), (*_key(name, record), body))
            for old in replaced:
                cursor.execute(self._words(REMOVE), _key(name, old))

        self._run(put)

    def remove(self, name: str, records: Sequence[Record]) -> None:
        def drop(cursor: Any) -> None:
            for record in records:
                cursor.execute(self._words(REMOVE), _key(name, record))

        if records:
            self._run(drop)

    def close(self) -> None:
        with self._lock:
            if self._connect is not None:
                self._drop_connection()

    def _words(self, statement: str) -> str:
        return statement.replace("?", self._dialect.mark)

    def _run(self, work: Callable[[Any], T]) -> T:
        """Do something in one transaction."""
        with self._lock:
            try:
                return self._step(work)
            except HoldfastError:
                raise
            except Exception as error:
                if self._dialect.missing(error):
                    raise ConfigurationError(
                        f"the table {TABLE} is missing: call SQLExchange(conn).create_table() once"
                    ) from error
                raise BackendUnavailable(backend=self._dialect.name, detail=said(error)) from error

    def _step(self, work: Callable[[Any], T]) -> T:
        try:
            if self._conn is None and self._connect is not None:
                self._conn = self._connect()
                self._ensure_table()
            if self._dialect.busy(self._conn):
                raise ConfigurationError(
                    "the connection is in a transaction: end it first, an exchange makes its own"
                )
            return self._committed(work)
        except BaseException:
            if self._connect is not None:
                self._drop_connection()
            raise

    def _committed(self, work: Callable[[Any], T]) -> T:
        cursor = self._cursor()
        try:
            result = work(cursor)
            self._conn.commit()
        except BaseException:
            with suppress(Exception):  # the first error is the one to tell
                self._conn.rollback()
            raise
        finally:
            with suppress(Exception):
                cursor.close()
        return result

    def _ensure_table(self) -> None:
        """Make the table if it is not there: who may not make tables can use one that is."""
        if self._has_table():
            return
        try:
            self._committed(lambda cursor: cursor.execute(CREATE.format(**self._dialect.types)))
        except Exception:
            # Of two that create at once PostgreSQL may let one fail: then the table is there.
            if not self._has_table():
                raise

    def _has_table(self) -> bool:
        try:
            self._committed(lambda cursor: cursor.execute(NOTHING))
        except Exception as error:
            if self._dialect.missing(error):
                return False
            raise
        return True

    def _cursor(self) -> Any:
        """Return a cursor that gives tuples, whatever rows the connection makes for its owner."""
        if self._dialect is POSTGRES:
            from psycopg import Cursor
            from psycopg.rows import tuple_row

            return Cursor(self._conn, row_factory=tuple_row)
        if self._dialect is MYSQL:
            from pymysql.cursors import Cursor as Plain  # type: ignore[import-untyped]

            return self._conn.cursor(Plain)
        cursor = self._conn.cursor()
        cursor.row_factory = None
        return cursor

    def _drop_connection(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            with suppress(Exception):
                conn.close()

    def __repr__(self) -> str:
        return f"<SQLExchange {self._dialect.name}>"


def _plain_rows(cursor: Any) -> Sequence[tuple[Any, ...]]:
    rows: Sequence[tuple[Any, ...]] = cursor.fetchall()
    return rows


def _key(name: str, record: Record) -> tuple[Any, ...]:
    return name.encode(), record.author, record.seq, int(record.whole)


def _dialect_of(conn: Any) -> Dialect:
    if isinstance(conn, sqlite3.Connection):
        return SQLITE
    for module, attribute, dialect in (
        ("psycopg", "Connection", POSTGRES),
        ("pymysql.connections", "Connection", MYSQL),
    ):
        loaded = sys.modules.get(module)  # one that was never imported has no instances
        if loaded is not None and isinstance(conn, getattr(loaded, attribute)):
            return dialect
    if "async" in f"{type(conn).__module__}.{type(conn).__name__}".lower():
        raise ConfigurationError(
            f"conn={shown(conn)} is asynchronous: give a blocking one, AsyncReplica uses it on a thread"
        )
    raise ConfigurationError(f"conn={shown(conn)} is not a connection of sqlite3, psycopg or PyMySQL")


def _from_url(url: str) -> tuple[Dialect, Callable[[], Any]]:
    scheme = urlsplit(url).scheme
    try:
        if scheme == "sqlite":
            return SQLITE, _sqlite(url)
        if scheme in {"postgresql", "postgres"}:
            import psycopg

            return POSTGRES, lambda: psycopg.connect(url, connect_timeout=5)
        import pymysql  # type: ignore[import-untyped]

        from holdfast.backends.mysql.server import OPTIONS, Server, options_of

        server = Server(url, options_of(url, OPTIONS))
        limits = {"read_timeout": 30, "write_timeout": 30, "autocommit": False}
        return MYSQL, lambda: pymysql.connect(**{**server.arguments(server.connect_timeout), **limits})
    except ModuleNotFoundError as error:
        extra = "postgres" if scheme.startswith("postgres") else "mysql"
        raise ConfigurationError(
            f"{scheme}:// needs the package {error.name!r}: pip install 'holdfast[{extra}]'"
        ) from error


def _sqlite(url: str) -> Callable[[], Any]:
    from urllib.parse import unquote

    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.netloc or parts.query or not path.strip("/"):
        raise ConfigurationError(f"{hide_password(url)!r} names no file: write sqlite:///absolute/path.db")
    return lambda: sqlite3.connect(path, timeout=10, check_same_thread=False)
