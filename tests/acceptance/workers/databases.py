"""What the tests of SQL have in common: connections by URL, of any driver, and a few statements."""

from __future__ import annotations

import sqlite3
from typing import Any, Literal
from urllib.parse import urlsplit


def login(url: str) -> dict[str, Any]:
    """Return what PyMySQL and asyncmy want to know."""
    parts = urlsplit(url)
    return {
        "host": parts.hostname,
        "port": parts.port,
        "user": parts.username,
        "password": parts.password or "",
        "database": parts.path.strip("/"),
    }


def connected(url: str, *, autocommit: bool = False) -> Any:
    """Return a connection of the driver itself."""
    if url.startswith("sqlite:"):
        level: Literal["DEFERRED"] | None = None if autocommit else "DEFERRED"
        return sqlite3.connect(urlsplit(url).path, timeout=60, isolation_level=level)
    if url.startswith("postgresql:"):
        import psycopg

        return psycopg.connect(url, autocommit=autocommit)
    import pymysql  # type: ignore[import-untyped]

    return pymysql.connect(autocommit=autocommit, **login(url))


async def connected_async(url: str, *, autocommit: bool = False) -> Any:
    """Return an asynchronous connection of the driver itself."""
    if url.startswith("postgresql:"):
        import psycopg

        return await psycopg.AsyncConnection.connect(url, autocommit=autocommit)
    import asyncmy

    return await asyncmy.connect(autocommit=autocommit, **login(url))


def engine_url(url: str, *, is_async: bool = False) -> str:
    """Return the URL for SQLAlchemy."""
    if url.startswith("sqlite:"):
        return f"sqlite:///{urlsplit(url).path}"
    if url.startswith("postgresql:"):
        return url.replace("postgresql:", "postgresql+psycopg:")
    parts = urlsplit(url)
    return parts._replace(scheme="mysql+asyncmy" if is_async else "mysql+pymysql").geturl()


def asked(conn: Any, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """Run a statement, with ? for each value."""
    if not isinstance(conn, sqlite3.Connection):
        statement = statement.replace("?", "%s")
    cursor = conn.cursor()
    try:
        if values:
            cursor.execute(statement, values)
        else:
            cursor.execute(statement)
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []
    finally:
        cursor.close()


def done(url: str, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements, each for itself; return what the last one found."""
    conn = connected(url, autocommit=True)
    try:
        found: list[tuple[Any, ...]] = []
        for statement in statements:
            found = asked(conn, statement)
        return found
    finally:
        conn.close()
