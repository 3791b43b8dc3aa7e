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
from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.durations import Duration, optional_duration
from holdfast.errors import AcquireTimeout, ConfigurationError, Unsupported
from holdfast.names import check_name, check_namespace, shown
from holdfast.runtime import blocking, clock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from psycopg import AsyncConnection, Connection
    from sqlalchemy import Connection as SQLConnection
    from sqlalchemy.ext.asyncio import AsyncConnection as SQLAsyncConnection
    from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session

    Blocking = Connection[Any] | SQLConnection | Session | scoped_session[Any]
    Asyncio = AsyncConnection[Any] | SQLAsyncConnection | AsyncSession | async_scoped_session[Any]

__all__ = [
    "advisory_xact_lock",
    "advisory_xact_lock_async",
    "try_advisory_xact_lock",
    "try_advisory_xact_lock_async",
]

CAPABILITY = "locks that end with a transaction"
LONGEST = 2**31 - 1
"""Milliseconds: more than that `lock_timeout` does not take."""
NOT_IN_TIME = "55P03"


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
    blocking.run(_acquire(_blocking_door(conn), wanted))


def try_advisory_xact_lock(conn: Blocking, name: str, *, shared: bool = False, namespace: str = "") -> bool:
    """Lock `name` until the transaction of `conn` ends, if it is free; say whether it was."""
    wanted = _wanted(name, namespace, shared, 0)
    return blocking.run(_try(_blocking_door(conn), wanted))


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
    door = await _async_door(conn)
    if isinstance(door, PsycopgTasks):
        await _acquire(door, wanted)
    else:
        await door.run_sync(lambda inner: blocking.run(_acquire(SQLAlchemy(inner), wanted)))


async def try_advisory_xact_lock_async(
    conn: Asyncio, name: str, *, shared: bool = False, namespace: str = ""
) -> bool:
    """Do the same as `try_advisory_xact_lock`, for the asynchronous connections and sessions of both."""
    wanted = _wanted(name, namespace, shared, 0)
    door = await _async_door(conn)
    if isinstance(door, PsycopgTasks):
        return await _try(door, wanted)
    return bool(await door.run_sync(lambda inner: blocking.run(_try(SQLAlchemy(inner), wanted))))


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
        from holdfast.backends.postgres.keys import advisory_key
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"holdfast.sql needs the package {error.name!r}: pip install 'holdfast[postgres]'"
        ) from error
    return Wanted(name, advisory_key(namespace, name), "_shared" if shared else "", seconds)


async def _try(door: Door, wanted: Wanted) -> bool:
    door.check()
    (got,) = await door.ask(f"SELECT pg_try_advisory_xact_lock{wanted.suffix}({wanted.key})")
    return bool(got)


async def _acquire(door: Door, wanted: Wanted) -> None:
    door.check()
    began = clock.now()
    wait = f"SELECT pg_advisory_xact_lock{wanted.suffix}({wanted.key})"
    try:
        if math.isinf(wanted.timeout):
            await door.ask(wait)
            return
        got, old = await door.ask(
            f"SELECT pg_try_advisory_xact_lock{wanted.suffix}({wanted.key}), current_setting('lock_timeout')"
        )
        if got:
            return
        left = wanted.timeout - (clock.now() - began)
        if left > 0:
            async with door.savepoint():
                await door.ask(_limit(f"{min(LONGEST, math.ceil(left * 1000))}ms"))
                await door.ask(wait)
                await door.ask(_limit(old))
            return
    except Exception as error:
        if door.state(error) != NOT_IN_TIME:
            raise
        raise AcquireTimeout(name=wanted.name, waited=clock.now() - began) from error
    raise AcquireTimeout(name=wanted.name, waited=clock.now() - began)


def _limit(value: str) -> str:
    """Set lock_timeout: rolling back to the savepoint undoes it, releasing the savepoint does not."""
    return f"SELECT set_config('lock_timeout', '{value}', true)"


# The connections ----------------------------------------------------------------------------


class Door(ABC):
    """A connection of some driver. Those of blocking ones never suspend."""

    @abstractmethod
    def check(self) -> None:
        """Raise `ConfigurationError` where a lock would not last."""

    @abstractmethod
    async def ask(self, statement: str) -> Any:
        """Return the only row of a statement."""

    @abstractmethod
    def savepoint(self) -> AbstractAsyncContextManager[Any]:
        """Undo what happened inside if an error ends it, and nothing else."""

    def state(self, error: BaseException) -> str | None:
        """Return the SQLSTATE of a driver's error."""
        for cause in (error, getattr(error, "orig", None)):
            for field in ("sqlstate", "pgcode"):
                if isinstance(found := getattr(cause, field, None), str):
                    return found
        return None


class Psycopg(Door):
    """A `psycopg.Connection`."""

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    def check(self) -> None:
        _check_psycopg(self._conn)

    async def ask(self, statement: str) -> Any:
        from psycopg import Cursor
        from psycopg.rows import tuple_row

        with Cursor(self._conn, row_factory=tuple_row) as cursor:  # whatever the connection's own are
            return cursor.execute(statement.encode()).fetchone()

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        with self._conn.transaction():
            yield


class PsycopgTasks(Door):
    """A `psycopg.AsyncConnection`."""

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    def check(self) -> None:
        _check_psycopg(self._conn)

    async def ask(self, statement: str) -> Any:
        from psycopg import AsyncCursor
        from psycopg.rows import tuple_row

        async with AsyncCursor(self._conn, row_factory=tuple_row) as cursor:
            await cursor.execute(statement.encode())
            return await cursor.fetchone()

    def savepoint(self) -> AbstractAsyncContextManager[Any]:
        found: AbstractAsyncContextManager[Any] = self._conn.transaction()
        return found


def _check_psycopg(conn: Any) -> None:
    from psycopg.pq import TransactionStatus

    status = conn.info.transaction_status
    if status == TransactionStatus.INERROR:
        raise ConfigurationError("the transaction has failed: roll it back before you take a lock in it")
    if conn.autocommit and status == TransactionStatus.IDLE:
        raise _no_transaction("use `with conn.transaction():`")


def _no_transaction(advice: str) -> ConfigurationError:
    return ConfigurationError(
        f"there is no transaction (autocommit), so the lock would be gone at once: {advice}"
    )


class SQLAlchemy(Door):
    """A connection of SQLAlchemy, or that of a session. Under asyncio it is used in `run_sync`."""

    def __init__(self, conn: Any) -> None:
        self._conn = conn.connection() if hasattr(conn, "get_bind") else conn

    def check(self) -> None:
        conn = self._conn
        if conn.dialect.name != "postgresql":
            raise Unsupported(capability=CAPABILITY, backend=conn.dialect.name)
        if conn.connection.dbapi_connection.autocommit:
            raise _no_transaction("leave out isolation_level='AUTOCOMMIT'")

    async def ask(self, statement: str) -> Any:
        return self._conn.exec_driver_sql(statement).one()

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        with self._conn.begin_nested():
            yield


def _blocking_door(conn: Any) -> Door:
    if _is(conn, "psycopg", "Connection"):
        return Psycopg(conn)
    if _is(conn, "sqlalchemy.orm.scoping", "scoped_session"):
        conn = conn()
    if _is(conn, "sqlalchemy.engine.base", "Connection") or _is(conn, "sqlalchemy.orm.session", "Session"):
        return SQLAlchemy(conn)
    if "async" in type(conn).__name__.lower():
        raise ConfigurationError(f"conn={shown(conn)} is asynchronous: use the function that ends in _async")
    raise _unknown(conn, "a psycopg connection, or a connection or session of SQLAlchemy")


async def _async_door(conn: Any) -> Any:
    if _is(conn, "psycopg", "AsyncConnection"):
        return PsycopgTasks(conn)
    if _is(conn, "sqlalchemy.ext.asyncio.scoping", "async_scoped_session"):
        conn = conn()
    if _is(conn, "sqlalchemy.ext.asyncio.engine", "AsyncConnection"):
        return conn
    if _is(conn, "sqlalchemy.ext.asyncio.session", "AsyncSession"):
        return conn
    raise _unknown(conn, "a psycopg AsyncConnection, or an AsyncConnection or AsyncSession of SQLAlchemy")


def _unknown(conn: Any, wanted: str) -> Exception:
    if type(conn).__module__.partition(".")[0] in {"pymysql", "asyncmy", "aiomysql", "MySQLdb", "mysql"}:
        return Unsupported(capability=CAPABILITY, backend="mysql")
    return ConfigurationError(f"conn={shown(conn)} is not {wanted}")


def _is(thing: Any, module: str, name: str) -> bool:
    """Whether it is of that class: one that was never imported has no instances."""
    import sys

    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(thing, getattr(loaded, name))
