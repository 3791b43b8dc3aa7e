"""Keys in a table of SQL: one row each, and every step a few statements under the row's lock.

    id           hash of namespace and key
    fingerprint  hash of the request's
    token        of the last attempt
    done         0 while it is being done, 1 afterwards
    deadline     when an attempt, or the keeping of a result, is over; by the server's clock
    tries        attempts so far; 0 is a row that is only there to be locked
    result       JSON

The row is made, if it is not there, by an INSERT that otherwise locks the one that is: so it is there, and
locked, and whoever else begins with this key waits until this transaction ends. What it says is read after
that, decided on in `records.verdict`, and written back.

Nothing here makes the table by itself: DDL would commit a transaction of MySQL's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fencelock.connections import (
    MARK,
    MYSQL,
    SQLITE,
    Answer,
    Door,
    ask,
    ask_async,
    make_table,
    needs_table,
)
from fencelock.connections.steps import NOW
from fencelock.errors import ConfigurationError, LeaseLost, StaleToken
from fencelock.idempotency.records import Attempt, Crashed, Done, InProgress, Key, Record, verdict

if TYPE_CHECKING:
    from fencelock.connections import Asyncio, Blocking

__all__ = ["TABLE", "create_table", "create_table_async", "purge", "purge_async"]

TABLE = "fencelock_idempotency"
NO_TABLE = f"there is no table {TABLE}: make it once, with fencelock.idempotency.create_table(conn)"
COLUMNS = (
    "id CHAR(64) NOT NULL PRIMARY KEY, name VARCHAR(512) NOT NULL, fingerprint CHAR(64) NOT NULL, "
    "token BIGINT NOT NULL, done SMALLINT NOT NULL, deadline DOUBLE PRECISION NOT NULL, "
    "tries INTEGER NOT NULL, result {long}"
)
INDEX = f"{TABLE}_deadline"
AT_ONCE = 1000
KEPT_CRASHED = 7 * 86400.0
"""Seconds for which an attempt that did not end is kept for somebody to see."""


def create_table(conn: Blocking) -> None:
    """Make the table `fencelock_idempotency`, if it is not there. Commit afterwards.

    MySQL and MariaDB commit by themselves when a table is made, so there it is refused while a
    transaction is open.
    """
    ask(conn, _create)


async def create_table_async(conn: Asyncio) -> None:
    """Do the same as `create_table`, for asynchronous connections."""
    await ask_async(conn, _create)


def purge(conn: Blocking, *, limit: int = AT_ONCE) -> int:
    """Delete results that are kept no longer, at most `limit`; return how many. Commit afterwards."""
    return ask(conn, lambda door: _purge(door, _limited(limit)))


async def purge_async(conn: Asyncio, *, limit: int = AT_ONCE) -> int:
    """Do the same as `purge`, for asynchronous connections."""
    return await ask_async(conn, lambda door: _purge(door, _limited(limit)))


async def _create(door: Door) -> None:
    if door.dialect == MYSQL:
        columns = f"{COLUMNS.format(long='LONGTEXT')}, INDEX {INDEX} (deadline)"
        made = [f"CREATE TABLE IF NOT EXISTS {TABLE} ({columns}) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"]
    else:
        made = [
            f"CREATE TABLE IF NOT EXISTS {TABLE} ({COLUMNS.format(long='TEXT')})",
            f"CREATE INDEX IF NOT EXISTS {INDEX} ON {TABLE} (deadline)",
        ]
    await make_table(door, *made)


def _limited(limit: int) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise ConfigurationError(f"limit={limit!r} is out of range: give a whole number from 1 on")
    return limit


async def _purge(door: Door, limit: int) -> int:
    now = NOW[door.dialect]
    old = f"deadline <= {now} AND (done = 1 OR deadline <= {now} - {KEPT_CRASHED})"
    if door.dialect == MYSQL:
        chosen = f"{old} LIMIT {limit}"
    else:
        chosen = f"id IN (SELECT id FROM {TABLE} WHERE {old} LIMIT {limit})"
    return (await _run(door, f"DELETE FROM {TABLE} WHERE {chosen}")).touched


# The steps ------------------------------------------------------------------------------------


async def claim(door: Door, key: Key, ttl: float) -> Attempt | Done | float:
    """Begin an attempt, or say that it was done, or for how many seconds somebody else has it."""
    await lock(door, key)
    record = await look(door, key, locked=True)
    if record is None:  # deleted while it was locked: a trigger, or the like
        raise InProgress(key=key.name, expires_in=None)
    found = verdict(key, record)
    if found is None:
        return record.deadline - record.now
    if isinstance(found, Attempt):
        await _run(
            door,
            f"UPDATE {TABLE} SET fingerprint = {MARK}, token = {MARK}, done = 0, deadline = {MARK}, "
            f"tries = {MARK}, result = NULL WHERE id = {MARK}",
            [key.print, found.token, record.now + ttl, found.tries, key.id],
        )
    return found


async def peek(door: Door, key: Key) -> Done | float | None:
    """Say, without a lock, that it was done or that somebody else has it; `None` if it may be begun."""
    record = await look(door, key, locked=False)
    found = verdict(key, record) if record is not None else None
    if record is None or isinstance(found, Attempt):
        return None
    return found if found is not None else record.deadline - record.now


async def lock(door: Door, key: Key) -> None:
    """Have the key's row, locked until the transaction ends."""
    on = f"ON CONFLICT (id) DO UPDATE SET id = {TABLE}.id"
    if door.dialect == MYSQL:
        on = "ON DUPLICATE KEY UPDATE id = id"
    await _run(
        door,
        f"INSERT INTO {TABLE} (id, name, fingerprint, token, done, deadline, tries) "
        f"VALUES ({MARK}, {MARK}, {MARK}, 0, 0, 0, 0) {on}",
        [key.id, key.name, key.print],
    )


async def look(door: Door, key: Key, *, locked: bool) -> Record | None:
    """Return what the key's row says."""
    # Without it MySQL would show what the transaction saw when it began.
    latest = " FOR UPDATE" if locked and door.dialect == MYSQL else ""
    found = await _run(
        door,
        f"SELECT fingerprint, token, done, deadline, tries, result, {NOW[door.dialect]} AS now "
        f"FROM {TABLE} WHERE id = {MARK}{latest}",
        [key.id],
    )
    row = found.row
    if row is None:
        return None
    return Record(
        print=str(row["fingerprint"]),
        token=int(row["token"]),
        is_done=bool(row["done"]),
        deadline=float(row["deadline"]),
        tries=int(row["tries"]),
        result=row["result"],
        now=float(row["now"]),
    )


async def finish(door: Door, key: Key, attempt: Attempt, result: str, retention: float) -> None:
    """Keep the result of an attempt. Raises `StaleToken` if another has begun since."""
    await _own(door, key, attempt)
    await _run(
        door,
        f"UPDATE {TABLE} SET done = 1, result = {MARK}, deadline = {NOW[door.dialect]} + {MARK} "
        f"WHERE id = {MARK}",
        [result, retention, key.id],
    )


async def extend(door: Door, key: Key, attempt: Attempt, ttl: float) -> None:
    """Let an attempt end so many seconds from now: at once, with 0."""
    await _own(door, key, attempt)
    await _run(
        door,
        f"UPDATE {TABLE} SET deadline = {NOW[door.dialect]} + {MARK} WHERE id = {MARK}",
        [ttl, key.id],
    )


async def _own(door: Door, key: Key, attempt: Attempt) -> None:
    latest = "" if door.dialect == SQLITE else " FOR UPDATE"
    row = (await _run(door, f"SELECT token, done FROM {TABLE} WHERE id = {MARK}{latest}", [key.id])).row
    if row is None:
        raise LeaseLost(name=key.name, token=attempt.token, reason="its key was deleted")
    if int(row["token"]) != attempt.token:
        raise StaleToken(resource=key.name, token=attempt.token, newest=int(row["token"]))
    if row["done"]:
        raise LeaseLost(name=key.name, token=attempt.token, reason="it has ended already")


async def crashed(door: Door) -> list[Crashed]:
    """Return the attempts that did not end, oldest first."""
    now = NOW[door.dialect]
    found = await _run(
        door,
        f"SELECT name, tries, {now} - deadline AS since FROM {TABLE} "
        f"WHERE done = 0 AND tries > 0 AND deadline <= {now} ORDER BY deadline",
    )
    return [Crashed(str(row["name"]), int(row["tries"]), float(row["since"])) for row in found.rows]


async def _run(door: Door, statement: str, values: Sequence[Any] = ()) -> Answer:
    with needs_table(TABLE, NO_TABLE):
        return await door.run(statement, values)
