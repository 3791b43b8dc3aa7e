"""Finding the door of a connection, and asking there. Blocking doors never suspend; see the package."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeVar

from fencelock.connections.door import Door
from fencelock.connections.drivers import MySQL, Psycopg, SQLAlchemy, SQLite, is_a
from fencelock.errors import ConfigurationError
from fencelock.names import shown
from fencelock.runtime import blocking

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

__all__ = ["ask", "ask_async", "blocking_door", "not_a_connection"]

T = TypeVar("T")
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
    # asyncmy closes a connection without awaiting, the others await.
    if is_a(conn, "asyncmy.connection", "Connection") or iscoroutinefunction(getattr(conn, "close", None)):
        return ConfigurationError(f"conn={shown(conn)} is asynchronous: {instead}")
    return ConfigurationError(f"conn={shown(conn)} is not {wanted}")
