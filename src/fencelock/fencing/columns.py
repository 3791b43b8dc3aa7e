"""The column form: the newest token stands in the row that it guards.

    fencing.update(conn, "documents", {"text": text}, where={"id": 1}, token=lease.token)

is one statement, `UPDATE … SET …, fence = :token WHERE id = 1 AND fence <= :token`. Comparison and write are
the same step, so this form is right without a transaction too. The table needs a column of 64 bits for it:
`fence BIGINT NOT NULL DEFAULT 0`.

If no row was written a second statement finds out why: the token is too old, or there is no such row. On
MySQL and MariaDB a row that had these very values already counts as not changed; whether the row was found
is told there by LAST_INSERT_ID.

Not promised: anything about rows that others write without their token. Names of tables and columns are those
that the database has stored, with the same case; values are sent apart from the statement, as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fencelock.connections import MARK, MYSQL, SQLITE, Door, ask, ask_async
from fencelock.errors import ConfigurationError
from fencelock.fencing.rule import check_token, judge
from fencelock.names import shown

if TYPE_CHECKING:
    from fencelock.connections import Asyncio, Blocking

__all__ = ["update", "update_async"]


def update(
    conn: Blocking,
    table: str,
    values: Mapping[str, Any],
    *,
    where: Mapping[str, Any],
    token: int,
    column: str = "fence",
) -> None:
    """Write `values` into the row that `where` names, unless it has seen a newer token: then `StaleToken`.

    Example:
        >>> import sqlite3
        >>> conn = sqlite3.connect(":memory:")
        >>> _ = conn.execute("CREATE TABLE documents (id INTEGER, text TEXT, fence BIGINT DEFAULT 0)")
        >>> _ = conn.execute("INSERT INTO documents (id) VALUES (1)")
        >>> late, newest = 1794966437913933, 1794966437913934
        >>> update(conn, "documents", {"text": "new"}, where={"id": 1}, token=newest)
        >>> update(conn, "documents", {"text": "old"}, where={"id": 1}, token=late)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        fencelock.errors.StaleToken: token 1794966437913933 for 'documents(id=1)' is stale: ...934 was seen...
        >>> conn.close()
    """
    check_token(token)
    ask(conn, lambda door: _update(door, table, values, where, token, column))


async def update_async(
    conn: Asyncio,
    table: str,
    values: Mapping[str, Any],
    *,
    where: Mapping[str, Any],
    token: int,
    column: str = "fence",
) -> None:
    """Do the same as `update`, for asynchronous connections and sessions."""
    check_token(token)
    await ask_async(conn, lambda door: _update(door, table, values, where, token, column))


async def _update(
    door: Door, table: str, values: Mapping[str, Any], where: Mapping[str, Any], token: int, column: str
) -> None:
    _check_mappings(values, where, column)
    into, fence = door.table(table), door.quoted(column, "column")
    changes = [f"{door.quoted(name, 'column')} = {MARK}" for name in values]
    changes.append(f"{fence} = LAST_INSERT_ID({MARK})" if door.dialect == MYSQL else f"{fence} = {MARK}")
    named = " AND ".join(f"{door.quoted(name, 'column')} = {MARK}" for name in where)
    keys = list(where.values())
    door.flush()
    done = await door.run(
        f"UPDATE {into} SET {', '.join(changes)} WHERE {named} AND {fence} <= {MARK}",
        [*values.values(), token, *keys, token],
    )
    resource = f"{table}({', '.join(f'{name}={value!r}' for name, value in where.items())})"
    if done.touched > 1:
        raise ConfigurationError(
            f"{shown(resource)} is {done.touched} rows, all written: roll back, and name one"
        )
    if done.touched == 1 or done.last_id == token:
        return
    lock = "" if door.dialect == SQLITE else " FOR UPDATE"  # the newest that is committed, not a snapshot's
    found = await door.run(f"SELECT {fence} AS fence FROM {into} WHERE {named}{lock}", keys)
    if found.row is not None and found.row["fence"] is None:
        raise ConfigurationError(
            f"{shown(resource)} has no token, not even 0: make {column} NOT NULL DEFAULT 0"
        )
    if found.row is not None:
        judge(resource, token, int(found.row["fence"]))
    raise ConfigurationError(f"{shown(resource)} does not exist: nothing was written")


def _check_mappings(values: Mapping[str, Any], where: Mapping[str, Any], column: str) -> None:
    for what, given in (("values", values), ("where", where)):
        if not isinstance(given, Mapping):
            raise ConfigurationError(f"{what}={shown(given)} is not a mapping from columns to values")
    if not where:
        raise ConfigurationError("where={} names every row: name one, by its key")
    if column in values:
        raise ConfigurationError(f"values has {column!r}, which takes the token: leave it out")
