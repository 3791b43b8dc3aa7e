"""A fence in your own transaction: one statement that compares and remembers, in a table beside your data.

    with pool.connection() as conn:                        # a transaction of yours
        fencing.admit(conn, "document:1", lease.token)     # StaleToken if a newer one was seen
        text = conn.execute("SELECT …")                    # read after it, not before
        conn.execute("UPDATE …")                           # commit or rollback goes for both

`holdfast_fences` has a row for each resource: its name and the newest token. The one statement inserts the
row, or sets it to the greater of both tokens, and tells what stands there now. It locks the row until the
transaction ends, so between the comparison and the commit nobody else gets past it: a newer holder waits, and
an older one finds the newer token when its turn has come.

Isolation levels. The statement looks at the newest row that is committed, whatever the level. PostgreSQL's
REPEATABLE READ and SERIALIZABLE, and MariaDB's snapshot isolation, raise the error of a conflict if
somebody was faster: nothing was let through, try the transaction again. SQLite says `database is locked` to a
transaction that has read before somebody else wrote: begin with BEGIN IMMEDIATE, or with `admit`.

On MySQL and MariaDB the newest token comes back as the statement's LAST_INSERT_ID: who wants that of an
INSERT of their own asks before.

Not promised: that a holder which sleeps in the middle of its transaction lets go of the row. Others wait
until the server ends it (`idle_in_transaction_session_timeout`, `wait_timeout`). A row stays until `forget`.
Errors of the driver are raised as they are, but for a table that is not there. It needs SQLite 3.35 or newer.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import ConfigurationError
from holdfast.fencing.doors import (
    MYSQL,
    POSTGRESQL,
    SQLITE,
    Done,
    Door,
    SQLAlchemy,
    async_door,
    blocking_door,
)
from holdfast.fencing.rule import check_resource, check_token, judge
from holdfast.names import shown
from holdfast.runtime import blocking

if TYPE_CHECKING:
    from holdfast.fencing.doors import Asyncio, Blocking

__all__ = [
    "TABLE",
    "admit",
    "admit_async",
    "create_table",
    "create_table_async",
    "forget",
    "forget_async",
    "newest",
    "newest_async",
]

T = TypeVar("T")

TABLE = "holdfast_fences"
"""What the table is called unless you say otherwise."""

ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(7453010313000001)"
"""CREATE TABLE IF NOT EXISTS fails in PostgreSQL if two do it at the same moment."""

CREATE = {
    POSTGRESQL: 'resource text COLLATE "C" PRIMARY KEY, fence bigint NOT NULL)',
    MYSQL: "resource VARBINARY(512) NOT NULL PRIMARY KEY, fence BIGINT NOT NULL) ENGINE=InnoDB",
    SQLITE: "resource TEXT NOT NULL PRIMARY KEY, fence INTEGER NOT NULL) WITHOUT ROWID",
}
ADMIT = {
    POSTGRESQL: "INSERT INTO {table} AS mark (resource, fence) "
    "VALUES (CAST(:resource AS text), CAST(:token AS bigint)) "
    "ON CONFLICT (resource) DO UPDATE SET fence = GREATEST(mark.fence, excluded.fence) RETURNING mark.fence",
    MYSQL: "INSERT INTO {table} (resource, fence) VALUES (UNHEX(:resource), :token) "
    "ON DUPLICATE KEY UPDATE fence = LAST_INSERT_ID(GREATEST(fence, :token))",
    SQLITE: "INSERT INTO {table} AS mark (resource, fence) VALUES (:resource, :token) "
    "ON CONFLICT (resource) DO UPDATE SET fence = max(mark.fence, excluded.fence) RETURNING fence",
}
NAMED = {
    POSTGRESQL: "resource = CAST(:resource AS text)",
    MYSQL: "resource = UNHEX(:resource)",  # bytes: no collation, no trailing spaces, no character set
    SQLITE: "resource = :resource",
}
IDENTIFIER = re.compile(r"[^\W\d][\w$]*")
NO_TABLE = {"42P01", 1146}
"""PostgreSQL's and MySQL's codes for it. SQLite has words."""


def create_table(conn: Blocking, *, table: str = TABLE) -> None:
    """Make the table of the fences, once, if it is not there. The commit is yours.

    MySQL and MariaDB commit by themselves when a table is made, so there it is refused while a
    transaction is open.

    Example:
        >>> import sqlite3
        >>> conn = sqlite3.connect(":memory:")
        >>> create_table(conn)
    """
    door = blocking_door(conn)
    blocking.run(_create(door, quoted(door, table)))


async def create_table_async(conn: Asyncio, *, table: str = TABLE) -> None:
    """Do the same as `create_table`, for asynchronous connections and sessions."""
    await through(conn, lambda door: _create(door, quoted(door, table)))


def admit(conn: Blocking, resource: str, token: int, *, table: str = TABLE) -> None:
    """Let `token` pass and remember it, in the transaction of `conn`; raise `StaleToken` if it is too old.

    `conn` is a connection of sqlite3, psycopg, PyMySQL or SQLAlchemy, or a session of the latter.

    Example:
        >>> import sqlite3
        >>> conn = sqlite3.connect(":memory:")
        >>> create_table(conn)
        >>> admit(conn, "document:1", 34)
        >>> admit(conn, "document:1", 33)
        Traceback (most recent call last):
        holdfast.errors.StaleToken: token 33 for 'document:1' is stale: 34 was seen already
    """
    check_resource(resource)
    check_token(token)
    blocking.run(admit_step(blocking_door(conn), resource, token, table))


async def admit_async(conn: Asyncio, resource: str, token: int, *, table: str = TABLE) -> None:
    """Do the same as `admit`, for asynchronous connections and sessions."""
    check_resource(resource)
    check_token(token)
    await through(conn, lambda door: admit_step(door, resource, token, table))


def newest(conn: Blocking, resource: str, *, table: str = TABLE) -> int:
    """Return the newest token that was seen, as the transaction of `conn` sees it; 0 if none was."""
    check_resource(resource)
    return blocking.run(_newest(blocking_door(conn), resource, table))


async def newest_async(conn: Asyncio, resource: str, *, table: str = TABLE) -> int:
    """Do the same as `newest`, for asynchronous connections and sessions."""
    check_resource(resource)
    return await through(conn, lambda door: _newest(door, resource, table))


def forget(conn: Blocking, resource: str, *, table: str = TABLE) -> None:
    """Forget a resource that is no more, in the transaction of `conn`: any token passes again."""
    check_resource(resource)
    blocking.run(_forget(blocking_door(conn), resource, table))


async def forget_async(conn: Asyncio, resource: str, *, table: str = TABLE) -> None:
    """Do the same as `forget`, for asynchronous connections and sessions."""
    check_resource(resource)
    await through(conn, lambda door: _forget(door, resource, table))


# The steps ----------------------------------------------------------------------------------


async def _create(door: Door, table: str) -> None:
    if door.dialect == MYSQL and door.in_transaction():
        raise ConfigurationError(
            "making a table would commit your transaction: commit it or roll it back before create_table"
        )
    if door.dialect == POSTGRESQL:
        await door.run(ONE_AT_A_TIME, {})
    await door.run(f"CREATE TABLE IF NOT EXISTS {table} ({CREATE[door.dialect]}", {})


async def admit_step(door: Door, resource: str, token: int, table: str, *, alone: bool = False) -> None:
    statement = ADMIT[door.dialect].format(table=quoted(door, table))
    if not alone:
        check_transaction(door)
    done = await _run(door, table, statement, {"resource": _key(door, resource), "token": token})
    if door.dialect == MYSQL:
        judge(resource, token, done.last_id)  # 0 if the row was inserted
    else:
        assert done.row is not None
        judge(resource, token, int(done.row[0]))


async def _newest(door: Door, resource: str, table: str) -> int:
    statement = f"SELECT fence FROM {quoted(door, table)} WHERE {NAMED[door.dialect]}"
    done = await _run(door, table, statement, {"resource": _key(door, resource)})
    return int(done.row[0]) if done.row is not None else 0


async def _forget(door: Door, resource: str, table: str) -> None:
    statement = f"DELETE FROM {quoted(door, table)} WHERE {NAMED[door.dialect]}"
    await _run(door, table, statement, {"resource": _key(door, resource)})


async def _run(door: Door, table: str, statement: str, values: dict[str, Any]) -> Done:
    try:
        return await door.run(statement, values)
    except Exception as error:
        if not _is_missing(error, table):
            raise
        raise ConfigurationError(
            f"there is no table {table!r} here: make it once with holdfast.fencing.create_table(conn)"
        ) from error


def _is_missing(error: BaseException, table: str) -> bool:
    for cause in (error, getattr(error, "orig", None), error.__cause__):
        code = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
        number = next(iter(getattr(cause, "args", ())), None)
        if code in NO_TABLE or (isinstance(number, int) and number in NO_TABLE):
            return True
        if str(cause) == f"no such table: {table}":
            return True
    return False


def _key(door: Door, resource: str) -> str:
    return resource.encode().hex() if door.dialect == MYSQL else resource


def check_transaction(door: Door) -> None:
    """Raise `ConfigurationError` where comparison and write would be two transactions."""
    if door.commits_at_once():
        raise ConfigurationError(
            "there is no transaction (autocommit), so a write after this would not belong to it: begin one"
        )


def quoted(door: Door, name: str, what: str = "table") -> str:
    """Return the name of a table or column as a statement has it: as it is stored, case and all."""
    parts = name.split(".") if isinstance(name, str) else [""]
    if not all(IDENTIFIER.fullmatch(part) for part in parts):
        raise ConfigurationError(f"{what}={shown(name)} is not a name: give letters, digits and underscores")
    mark = "`" if door.dialect == MYSQL else '"'
    return ".".join(f"{mark}{part}{mark}" for part in parts)


async def through(conn: Any, steps: Callable[[Door], Awaitable[T]]) -> T:
    """Take steps on an asynchronous connection, whatever it is made of."""
    door = async_door(conn)
    if isinstance(door, Door):
        return await steps(door)

    async def inside(inner: Any) -> T:
        return await steps(SQLAlchemy(inner))

    result: T = await door.run_sync(lambda inner: blocking.run(inside(inner)))
    return result
