"""Locks that end with your transaction: PostgreSQL's advisory locks, on your own connection.

    with pool.connection() as conn:                     # a transaction of yours
        advisory_xact_lock(conn, "invoice:42", timeout=5)
        conn.execute("UPDATE …")                        # commit or rollback frees the lock

The lock is taken and freed by the transaction itself: nothing to release, no ttl, no loss while the
transaction lives, and no token, since a transaction that lost its connection can write nothing any more.
Outside of a transaction such a lock would be gone at once, so that is refused.

A name is hashed to 64 bits, as `postgresql+advisory://` does it: both forms exclude each other. The lease
table (`postgresql://`) is another world. MySQL and MariaDB have nothing like it.

A wait that takes too long would abort the transaction. So it happens behind a savepoint, with a
`lock_timeout` of its own; both are gone afterwards, and the transaction goes on.

Errors of the driver are raised as they are: a deadlock or a serialization failure is for whoever
retries the transaction.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from fencelock.connections import POSTGRESQL, Door, ask, ask_async, codes, lock_timeout
from fencelock.durations import Duration, optional_duration
from fencelock.errors import AcquireTimeout, ConfigurationError, Unsupported
from fencelock.names import check_name, check_namespace
from fencelock.runtime import clock

if TYPE_CHECKING:
    from fencelock.connections import Asyncio, Blocking

__all__ = [
    "advisory_xact_lock",
    "advisory_xact_lock_async",
    "try_advisory_xact_lock",
    "try_advisory_xact_lock_async",
]

CAPABILITY = "locks that end with a transaction"
NOT_IN_TIME = "55P03"
FAILED = "25P02"
WANTED = "a psycopg connection, or a connection or session of SQLAlchemy"
WANTED_ASYNC = "a psycopg AsyncConnection, or an AsyncConnection or AsyncSession of SQLAlchemy"


def advisory_xact_lock(
    conn: Blocking,
    name: str,
    *,
    shared: bool = False,
    timeout: Duration | None = None,
    namespace: str = "",
) -> None:
    """Lock `name` until the transaction of `conn` ends; wait for it up to `timeout`.

    `conn` is a psycopg connection, or a connection or session of SQLAlchemy. Any number of
    transactions may hold a lock that they have `shared`. Raises `AcquireTimeout`; the transaction can go on.
    """
    wanted = _wanted(name, namespace, shared, timeout)
    ask(conn, lambda door: _acquire(door, wanted), wanted=WANTED)


def try_advisory_xact_lock(conn: Blocking, name: str, *, shared: bool = False, namespace: str = "") -> bool:
    """Lock `name` until the transaction of `conn` ends, if it is free; say whether it was."""
    wanted = _wanted(name, namespace, shared, 0)
    return ask(conn, lambda door: _try(door, wanted), wanted=WANTED)


async def advisory_xact_lock_async(
    conn: Asyncio,
    name: str,
    *,
    shared: bool = False,
    timeout: Duration | None = None,
    namespace: str = "",
) -> None:
    """Do the same as `advisory_xact_lock`, for the asynchronous connections and sessions of both."""
    wanted = _wanted(name, namespace, shared, timeout)
    await ask_async(conn, lambda door: _acquire(door, wanted), wanted=WANTED_ASYNC)


async def try_advisory_xact_lock_async(
    conn: Asyncio, name: str, *, shared: bool = False, namespace: str = ""
) -> bool:
    """Do the same as `try_advisory_xact_lock`, for the asynchronous connections and sessions of both."""
    wanted = _wanted(name, namespace, shared, 0)
    return await ask_async(conn, lambda door: _try(door, wanted), wanted=WANTED_ASYNC)


# The steps ----------------------------------------------------------------------------------


class Wanted(NamedTuple):
    """A lock that is asked for."""

    name: str
    key: int
    suffix: str
    timeout: float


def _wanted(name: str, namespace: str, shared: bool, timeout: Duration | None) -> Wanted:
    check_name(name)
    check_namespace(namespace)
    seconds = optional_duration(timeout, "timeout")
    try:
        from fencelock.backends.postgres.keys import advisory_key
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"fencelock.sql needs the package {error.name!r}: pip install 'fencelock[postgres]'"
        ) from error
    return Wanted(name, advisory_key(namespace, name), "_shared" if shared else "", seconds)


async def _try(door: Door, wanted: Wanted) -> bool:
    _check(door)
    with _clear_errors(wanted):
        return await _is_got(door, wanted)


async def _acquire(door: Door, wanted: Wanted) -> None:
    _check(door)
    wait = f"SELECT pg_advisory_xact_lock{wanted.suffix}({wanted.key})"
    with _clear_errors(wanted):
        if math.isinf(wanted.timeout):
            await door.run(wait)
            return
        began = clock.now()
        if await _is_got(door, wanted):
            return
        left = wanted.timeout - (clock.now() - began)
        if left > 0:
            async with lock_timeout(door, left):
                await door.run(wait)
            return
        raise AcquireTimeout(name=wanted.name, waited=clock.now() - began)


async def _is_got(door: Door, wanted: Wanted) -> bool:
    statement = f"SELECT pg_try_advisory_xact_lock{wanted.suffix}({wanted.key}) AS got"
    return bool((await door.run(statement)).rows[0]["got"])


def _check(door: Door) -> None:
    if door.dialect != POSTGRESQL:
        raise Unsupported(capability=CAPABILITY, backend=door.dialect)
    door.check_transaction("the lock would be gone at once")


@contextmanager
def _clear_errors(wanted: Wanted) -> Iterator[None]:
    began = clock.now()
    try:
        yield
    except Exception as error:
        told = codes(error)
        if NOT_IN_TIME in told:
            raise AcquireTimeout(name=wanted.name, waited=clock.now() - began) from error
        if FAILED in told:
            raise ConfigurationError(
                "the transaction has failed: roll it back before you take a lock in it"
            ) from error
        raise
