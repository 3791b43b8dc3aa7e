"""A fence in your own transaction: one statement that compares and remembers, in a table beside your data.

    with pool.connection() as conn:                        # a transaction of yours
        fencing.admit(conn, "document:1", lease.token)     # StaleToken if a newer one was seen
        text = conn.execute("SELECT …")                    # read after it, not before
        conn.execute("UPDATE …")                           # commit or rollback goes for both

`fencelock_fences` has a row for each resource: its name and the newest token. The one statement inserts the
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

from typing import TYPE_CHECKING, Any

from fencelock.connections import (
    MARK,
    MYSQL,
    POSTGRESQL,
    SQLITE,
    Answer,
    Dialect,
    Door,
    ask,
    ask_async,
    make_table,
    needs_table,
)
from fencelock.fencing.rule import check_resource, check_token, judge

if TYPE_CHECKING:
    from fencelock.connections import Asyncio, Blocking

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

TABLE = "fencelock_fences"
"""What the table is called unless you say otherwise."""
NOT_TOGETHER = "a write after this would not belong to it"

COLUMNS: dict[Dialect, str] = {
    POSTGRESQL: '(resource text COLLATE "C" PRIMARY KEY, fence bigint NOT NULL)',
    MYSQL: "(resource VARBINARY(512) NOT NULL PRIMARY KEY, fence BIGINT NOT NULL) ENGINE=InnoDB",
    SQLITE: "(resource TEXT NOT NULL PRIMARY KEY, fence BIGINT NOT NULL) WITHOUT ROWID",
}
ADMIT: dict[Dialect, str] = {
    POSTGRESQL: "INSERT INTO {table} AS mark (resource, fence) "
    f"VALUES (CAST({MARK} AS text), CAST({MARK} AS bigint)) "
    "ON CONFLICT (resource) DO UPDATE SET fence = GREATEST(mark.fence, excluded.fence) RETURNING mark.fence",
    MYSQL: f"INSERT INTO {{table}} (resource, fence) VALUES (UNHEX({MARK}), {MARK}) "
    f"ON DUPLICATE KEY UPDATE fence = LAST_INSERT_ID(GREATEST(fence, {MARK}))",
    SQLITE: f"INSERT INTO {{table}} AS mark (resource, fence) VALUES ({MARK}, {MARK}) "
    "ON CONFLICT (resource) DO UPDATE SET fence = max(mark.fence, excluded.fence) RETURNING fence",
}
NAMED: dict[Dialect, str] = {
    POSTGRESQL: f"resource = CAST({MARK} AS text)",
    MYSQL: f"resource = UNHEX({MARK})",  # bytes: no collation, no trailing spaces, no character set
    SQLITE: f"resource = {MARK}",
}


def create_table(conn: Blocking, *, table: str = TABLE) -> None:
    """Make the table of the fences, once, if it is not there. The commit is yours.

    MySQL and MariaDB commit by themselves when a table is made, so there it is refused while a
    transaction is open.

    Example:
        >>> import sqlite3
        >>> conn = sqlite3.connect(":memory:")
        >>> create_table(conn)
        >>> conn.close()
    """
    ask(conn, lambda door: _create(door, table))


async def create_table_async(conn: Asyncio, *, table: str = TABLE) -> None:
    """Do the same as `create_table`, for asynchronous connections and sessions."""
    await ask_async(conn, lambda door: _create(door, table))


def admit(conn: Blocking, resource: str, token: int, *, table: str = TABLE) -> None:
    """Let `token` pass and remember it, in the transaction of `conn`; raise `StaleToken` if it is too old.

    `conn` is a connection of sqlite3, psycopg, PyMySQL or SQLAlchemy, or a session of the latter.

    Example:
        >>> import sqlite3
        >>> conn = sqlite3.connect(":memory:")
        >>> create_table(conn)
        >>> admit(conn, "document:1", 1794966437913934)
        >>> admit(conn, "document:1", 1794966437913933)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        fencelock.errors.StaleToken: token 1794966437913933 for 'document:1' is stale: ...934 was seen already
        >>> conn.close()
    """
    check_resource(resource)
    check_token(token)
    ask(conn, lambda door: admit_step(door, resource, token, table))


async def admit_async(conn: Asyncio, resource: str, token: int, *, table: str = TABLE) -> None:
    """Do the same as `admit`, for asynchronous connections and sessions."""
    check_resource(resource)
    check_token(token)
    await ask_async(conn, lambda door: admit_step(door, resource, token, table))


def newest(conn: Blocking, resource: str, *, table: str = TABLE) -> int:
    """Return the newest token that was seen, as the transaction of `conn` sees it; 0 if none was."""
    check_resource(resource)
    return ask(conn, lambda door: _newest(door, resource, table))


async def newest_async(conn: Asyncio, resource: str, *, table: str = TABLE) -> int:
    """Do the same as `newest`, for asynchronous connections and sessions."""
    check_resource(resource)
    return await ask_async(conn, lambda door: _newest(door, resource, table))


def forget(conn: Blocking, resource: str, *, table: str = TABLE) -> None:
    """Forget a resource that is no more, in the transaction of `conn`: any token passes again."""
    check_resource(resource)
    ask(conn, lambda door: _forget(door, resource, table))


async def forget_async(conn: Asyncio, resource: str, *, table: str = TABLE) -> None:
    """Do the same as `forget`, for asynchronous connections and sessions."""
    check_resource(resource)
    await ask_async(conn, lambda door: _forget(door, resource, table))


# The steps ----------------------------------------------------------------------------------


async def _create(door: Door, table: str) -> None:
    await make_table(door, f"CREATE TABLE IF NOT EXISTS {door.table(table)} {COLUMNS[door.dialect]}")


async def admit_step(door: Door, resource: str, token: int, table: str, *, alone: bool = False) -> None:
    """Compare and remember; `alone` if nothing else shall belong to it."""
    statement = ADMIT[door.dialect].format(table=door.table(table))
    if not alone:
        door.check_transaction(NOT_TOGETHER)
    tokens = [token] * (statement.count(MARK) - 1)
    done = await _run(door, table, statement, [_key(door, resource), *tokens])
    if door.dialect == MYSQL:
        judge(resource, token, done.last_id)  # 0 if the row was inserted
    else:
        judge(resource, token, int(done.rows[0]["fence"]))


async def _newest(door: Door, resource: str, table: str) -> int:
    statement = f"SELECT fence FROM {door.table(table)} WHERE {NAMED[door.dialect]}"
    found = await _run(door, table, statement, [_key(door, resource)])
    return int(found.row["fence"]) if found.row is not None else 0


async def _forget(door: Door, resource: str, table: str) -> None:
    statement = f"DELETE FROM {door.table(table)} WHERE {NAMED[door.dialect]}"
    await _run(door, table, statement, [_key(door, resource)])


async def _run(door: Door, table: str, statement: str, values: list[Any]) -> Answer:
    words = f"there is no table {table!r} here: make it once with fencelock.fencing.create_table(conn)"
    with needs_table(table, words):
        return await door.run(statement, values)


def _key(door: Door, resource: str) -> str:
    return resource.encode().hex() if door.dialect == MYSQL else resource
