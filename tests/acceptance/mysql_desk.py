"""What the tests on MariaDB share: a client of either flavour behind one face, and questions to the server.

`server` is a member of a group of tools/servers. Questions go over a connection of their own, as another
user than the one that the locks use, so that what is left of the latter is easy to see.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pymysql  # type: ignore[import-untyped]
import pymysql.constants.ER  # type: ignore[import-untyped]
from crew import wait_until
from redis_desk import FLAVOURS, AsyncDesk, Desk, desk_for, proxied

__all__ = [
    "FLAVOURS",
    "AsyncDesk",
    "Desk",
    "ask",
    "connected",
    "cut",
    "desk_for",
    "getlock",
    "nothing_left",
    "ours",
    "proxied",
    "residue",
    "tables_locked",
]


@contextmanager
def connected(server: Any, database: str | None = "fencelock") -> Iterator[Any]:
    """A connection as root."""
    connection = pymysql.connect(
        host=server.host,
        port=server.port,
        user="root",
        password="",
        database=database,
        autocommit=True,
        connect_timeout=10,
        read_timeout=30,
        ssl_disabled=True,
    )
    try:
        yield connection
    finally:
        connection.close()


def ask(server: Any, *statements: str, database: str | None = "fencelock") -> Any:
    """Return what the server answers to the last of these."""
    with connected(server, database) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return cursor.fetchall()


@contextmanager
def tables_locked(server: Any) -> Iterator[None]:
    """Let every step wait for its tables."""
    with connected(server) as connection, connection.cursor() as cursor:
        cursor.execute("LOCK TABLES fencelock_buckets WRITE, fencelock_tokens WRITE")
        yield


def getlock(url: str) -> str:
    """Return the same URL for the other form."""
    return urlunsplit(urlsplit(url)._replace(scheme="mysql+getlock"))


def ours(server: Any) -> list[int]:
    """Return the ids of the connections of the locks' user."""
    rows = ask(server, "SELECT ID FROM information_schema.PROCESSLIST WHERE USER <> 'root' AND ID > 0")
    return sorted(row[0] for row in rows)


def cut(server: Any, number: int) -> None:
    """End a connection, if it is still there."""
    try:
        ask(server, f"KILL {number}")
    except pymysql.err.OperationalError as error:
        assert error.args[0] == pymysql.constants.ER.NO_SUCH_THREAD, error


def residue(server: Any) -> int:
    """Return how many requests the table has, live or not."""
    return int(ask(server, "SELECT COUNT(*) FROM fencelock_queue")[0][0])


def nothing_left(server: Any) -> None:
    """Fail unless nobody is connected, so no user lock is held, and no transaction is open."""
    wait_until(lambda: not ours(server), "every connection is closed", 10)
    assert ask(server, "SELECT COUNT(*) FROM information_schema.INNODB_TRX") == ((0,),)
