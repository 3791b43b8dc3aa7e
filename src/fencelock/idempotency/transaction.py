"""Once, inside your own transaction: key, effect and result commit together, or not at all.

    with psycopg.connect(url) as conn:
        result = once(conn, key, fingerprint, lambda: charge(conn, 42))

The key's row is locked first, so others with this key wait until this transaction ends. Then they find the
result; or, if it was rolled back or its process died, nothing, and the next of them does it. There is no ttl,
no token and no half-done state: a crash undoes all of it. This is the form to use where the effect is in the
same database.

NOT promised: an effect outside of the database is not undone by a rollback; for that there is `Store`. On
SQLite a writer keeps out all other writers, whatever their key, so what ends a wait there is the driver's own
"database is locked".
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from fencelock.connections import (
    LONGEST_WAIT,
    MYSQL,
    POSTGRESQL,
    SQLITE,
    Door,
    ask,
    ask_async,
    codes,
    lock_timeout,
)
from fencelock.durations import Duration, duration, optional_duration
from fencelock.idempotency import table
from fencelock.idempotency.records import Attempt, Done, InProgress, Key, encoded, make_key

if TYPE_CHECKING:
    from fencelock.connections import Asyncio, Blocking

__all__ = ["once", "once_async"]

T = TypeVar("T")
DAY = 86400.0
NO_TTL = 0.0
"""An attempt is seen by others only if its transaction is committed without a result: then it is over."""
NOT_IN_TIME = {"55P03", 1205}
"""PostgreSQL's and MySQL's codes for a lock that was waited for too long."""


def once(
    conn: Blocking,
    key: str,
    fingerprint: str | bytes,
    effect: Callable[[], T],
    *,
    timeout: Duration | None = None,
    retention: Duration = DAY,
    namespace: str = "",
) -> T:
    """Do it, or return what it returned the last time; in the transaction of `conn`, which you commit.

    `effect` is called at most once for a key, and its result kept as JSON for `retention`. Raises
    `InProgress` if another transaction has the key for longer than `timeout`, and `FingerprintChanged`. An
    error of `effect` passes: roll back then.
    """
    wanted = make_key(key, fingerprint, namespace)
    wait, kept = optional_duration(timeout, "timeout"), duration(retention, "retention")
    found = ask(conn, lambda door: _begin(door, wanted, wait))
    if isinstance(found, Done):
        return found.result  # type: ignore[no-any-return]
    result = effect()
    text = encoded(result)
    ask(conn, lambda door: table.finish(door, wanted, found, text, kept))
    return result


async def once_async(
    conn: Asyncio,
    key: str,
    fingerprint: str | bytes,
    effect: Callable[[], Awaitable[T]],
    *,
    timeout: Duration | None = None,
    retention: Duration = DAY,
    namespace: str = "",
) -> T:
    """Do the same as `once`, for asynchronous connections and a coroutine function."""
    wanted = make_key(key, fingerprint, namespace)
    wait, kept = optional_duration(timeout, "timeout"), duration(retention, "retention")
    found = await ask_async(conn, lambda door: _begin(door, wanted, wait))
    if isinstance(found, Done):
        return found.result  # type: ignore[no-any-return]
    result = await effect()
    text = encoded(result)
    await ask_async(conn, lambda door: table.finish(door, wanted, found, text, kept))
    return result


async def _begin(door: Door, key: Key, timeout: float) -> Attempt | Done:
    door.check_transaction("key and effect would not commit together")
    if math.isinf(timeout):
        found = await table.claim(door, key, NO_TTL)
    else:
        try:
            found = await WAITS[door.dialect](door, key, timeout)
        except Exception as error:
            if NOT_IN_TIME & codes(error):
                raise InProgress(key=key.name, expires_in=None) from error
            raise
    if isinstance(found, float):  # a `Store` has it
        raise InProgress(key=key.name, expires_in=found)
    return found


async def _on_postgres(door: Door, key: Key, timeout: float) -> Attempt | Done | float:
    async with lock_timeout(door, timeout):
        return await table.claim(door, key, NO_TTL)


async def _on_mysql(door: Door, key: Key, timeout: float) -> Attempt | Done | float:
    """Wait with the session's own setting, in whole seconds; only the statement that waited is undone."""
    (old,) = (await door.run("SELECT @@innodb_lock_wait_timeout AS seconds")).rows
    limit = "SET SESSION innodb_lock_wait_timeout = "
    await door.run(f"{limit}{max(1, math.ceil(min(timeout, LONGEST_WAIT)))}")
    try:
        return await table.claim(door, key, NO_TTL)
    finally:
        await door.run(f"{limit}{int(old['seconds'])}")


async def _on_sqlite(door: Door, key: Key, timeout: float) -> Attempt | Done | float:
    (old,) = (await door.run("PRAGMA busy_timeout")).rows
    await door.run(f"PRAGMA busy_timeout = {min(LONGEST_WAIT, math.ceil(timeout * 1000))}")
    try:
        return await table.claim(door, key, NO_TTL)
    finally:
        await door.run(f"PRAGMA busy_timeout = {int(next(iter(old.values())))}")


WAITS = {POSTGRESQL: _on_postgres, MYSQL: _on_mysql, SQLITE: _on_sqlite}
