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

from holdfast.durations import Duration, duration, optional_duration
from holdfast.errors import ConfigurationError
from holdfast.idempotency import table
from holdfast.idempotency.records import Attempt, Done, InProgress, Key, encoded, make_key
from holdfast.optimistic.connections import Door, ask, ask_async

if TYPE_CHECKING:
    from holdfast.optimistic.connections import Asyncio, Blocking

__all__ = ["once", "once_async"]

T = TypeVar("T")
DAY = 86400.0
NO_TTL = 0.0
"""An attempt is seen by others only if its transaction is committed without a result: then it is over."""
SAVEPOINT = "holdfast_once"
NOT_IN_TIME = "55P03"
LOCK_WAIT_TIMEOUT = 1205
LONGEST_MS = 2**31 - 1


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
    if door.is_bare():
        raise ConfigurationError(
            "there is no transaction (autocommit), so key and effect would not commit together: begin one"
        )
    if math.isinf(timeout):
        found = await table.claim(door, key, NO_TTL)
    else:
        found = await WAITS[door.dialect](door, key, timeout)
    if isinstance(found, float):  # a `Store` has it
        raise InProgress(key=key.name, expires_in=found)
    return found


async def _on_postgres(door: Door, key: Key, timeout: float) -> Attempt | Done | float:
    """Wait behind a savepoint, with a `lock_timeout` of its own: the transaction survives its end."""
    limit = max(1, min(LONGEST_MS, math.ceil(timeout * 1000)))
    await door.rows(f"SAVEPOINT {SAVEPOINT}")
    try:
        old = await door.row("SELECT current_setting('lock_timeout') AS old")
        await door.rows(f"SELECT set_config('lock_timeout', '{limit}ms', true)")
        found = await table.claim(door, key, NO_TTL)
        await door.rows(f"SELECT set_config('lock_timeout', '{(old or {})['old']}', true)")
    except Exception as error:
        await door.rows(f"ROLLBACK TO SAVEPOINT {SAVEPOINT}")
        await door.rows(f"RELEASE SAVEPOINT {SAVEPOINT}")
        if any(getattr(cause, "sqlstate", None) == NOT_IN_TIME for cause in _causes(error)):
            raise InProgress(key=key.name, expires_in=None) from error
        raise
    await door.rows(f"RELEASE SAVEPOINT {SAVEPOINT}")
    return found


async def _on_mysql(door: Door, key: Key, timeout: float) -> Attempt | Done | float:
    """Wait with the session's own setting, in whole seconds; only the statement that waited is undone."""
    old = await door.row("SELECT @@innodb_lock_wait_timeout AS old")
    await door.rows(f"SET SESSION innodb_lock_wait_timeout = {max(1, math.ceil(min(timeout, LONGEST_MS)))}")
    try:
        return await table.claim(door, key, NO_TTL)
    except Exception as error:
        if any(cause.args[:1] == (LOCK_WAIT_TIMEOUT,) for cause in _causes(error)):
            raise InProgress(key=key.name, expires_in=None) from error
        raise
    finally:
        await door.rows(f"SET SESSION innodb_lock_wait_timeout = {int((old or {})['old'])}")


async def _on_sqlite(door: Door, key: Key, timeout: float) -> Attempt | Done | float:
    old = await door.row("PRAGMA busy_timeout")
    await door.rows(f"PRAGMA busy_timeout = {min(LONGEST_MS, math.ceil(timeout * 1000))}")
    try:
        return await table.claim(door, key, NO_TTL)
    finally:
        await door.rows(f"PRAGMA busy_timeout = {int(next(iter((old or {}).values())))}")


WAITS = {"postgresql": _on_postgres, "mysql": _on_mysql, "sqlite": _on_sqlite}


def _causes(error: Exception) -> list[Exception]:
    orig = getattr(error, "orig", None)
    return [error, orig] if isinstance(orig, Exception) else [error]
