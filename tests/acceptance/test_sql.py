"""Locks that end with a transaction, on the user's own connection, whatever it is made of."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
import pymysql
import pytest
from psycopg.rows import dict_row, tuple_row
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from tools.servers import start

from fencelock import AcquireTimeout, ConfigurationError, Unsupported
from fencelock.backends.postgres.keys import advisory_key
from fencelock.sql import (
    advisory_xact_lock,
    advisory_xact_lock_async,
    try_advisory_xact_lock,
    try_advisory_xact_lock_async,
)

KINDS = ("psycopg", "rows", "connection", "session", "scoped")
LOCKS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with start("postgres") as group:
        yield str(group.url)


def dialect(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://")


Run = Callable[[str], Any]


@contextmanager
def transaction(kind: str, url: str) -> Iterator[tuple[Any, Run]]:
    """A connection of each sort with a transaction on it, and a way to run a statement there."""
    if kind in {"psycopg", "rows"}:
        options: dict[str, Any] = {"row_factory": dict_row} if kind == "rows" else {}
        with psycopg.connect(url, **options) as conn:
            cursor = psycopg.Cursor(conn, row_factory=tuple_row)
            yield conn, lambda words: cursor.execute(words.encode()).fetchone()
        return
    engine = create_engine(dialect(url))
    try:
        if kind == "connection":
            with engine.begin() as connection:
                yield connection, lambda words: tuple(connection.execute(text(words)).one())
        elif kind == "session":
            with Session(engine) as session, session.begin():
                yield session, lambda words: tuple(session.execute(text(words)).one())
        else:
            sessions = scoped_session(sessionmaker(engine))
            try:
                yield sessions, lambda words: tuple(sessions.execute(text(words)).one())
            finally:
                sessions.remove()
    finally:
        engine.dispose()


AsyncRun = Callable[[str], Awaitable[Any]]


@asynccontextmanager
async def transaction_async(kind: str, url: str) -> AsyncIterator[tuple[Any, AsyncRun]]:
    if kind in {"psycopg", "rows"}:
        options: dict[str, Any] = {"row_factory": dict_row} if kind == "rows" else {}
        async with await psycopg.AsyncConnection.connect(url, **options) as conn:

            async def plainly(words: str) -> Any:
                cursor = psycopg.AsyncCursor(conn, row_factory=tuple_row)
                return await (await cursor.execute(words.encode())).fetchone()

            yield conn, plainly
        return
    engine = create_async_engine(dialect(url))
    door: Any = None

    async def by_sqlalchemy(words: str) -> Any:
        return tuple((await door.execute(text(words))).one())

    try:
        if kind == "connection":
            async with engine.begin() as door:
                yield door, by_sqlalchemy
        elif kind == "session":
            async with AsyncSession(engine) as door, door.begin():
                yield door, by_sqlalchemy
        else:
            door = async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)
            try:
                yield door, by_sqlalchemy
            finally:
                await door.remove()
    finally:
        await engine.dispose()


@contextmanager
def held(url: str, name: str, **options: Any) -> Iterator[psycopg.Connection[Any]]:
    """Somebody else's lock."""
    with psycopg.connect(url) as other:
        advisory_xact_lock(other, name, **options)
        yield other


def is_free(url: str, name: str) -> bool:
    with psycopg.connect(url) as other:
        return try_advisory_xact_lock(other, name)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_held_until_the_transaction_ends(kind: str, url: str) -> None:
    with transaction(kind, url) as (conn, run):
        advisory_xact_lock(conn, "a")
        assert try_advisory_xact_lock(conn, "b")
        assert not is_free(url, "a") and not is_free(url, "b")
        assert run(LOCKS) == (2,)
    assert is_free(url, "a") and is_free(url, "b")


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_held_until_the_transaction_ends_async(kind: str, url: str) -> None:
    async def main() -> None:
        async with transaction_async(kind, url) as (conn, run):
            await advisory_xact_lock_async(conn, "a")
            assert await try_advisory_xact_lock_async(conn, "b")
            assert not is_free(url, "a") and not is_free(url, "b")
            assert await run(LOCKS) == (2,)
        assert is_free(url, "a") and is_free(url, "b")

    asyncio.run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_a_timeout_leaves_the_transaction_as_it_was(kind: str, url: str) -> None:
    with held(url, "taken"), transaction(kind, url) as (conn, run):
        run("SELECT set_config('lock_timeout', '70s', false)")
        run("SELECT set_config('fencelock.mine', 'kept', true)")
        advisory_xact_lock(conn, "mine", timeout=1)
        for timeout in (0, 0.2):
            began = time.monotonic()
            with pytest.raises(AcquireTimeout, match="lock 'taken' not acquired") as caught:
                advisory_xact_lock(conn, "taken", timeout=timeout)
            assert timeout <= time.monotonic() - began < timeout + 20
            assert timeout <= caught.value.waited < timeout + 20
        assert run("SELECT current_setting('fencelock.mine'), current_setting('lock_timeout')") == (
            "kept",
            "70s",
        )
        assert not is_free(url, "mine")
        assert not try_advisory_xact_lock(conn, "taken")


@pytest.mark.parametrize("kind", KINDS)
def test_a_timeout_leaves_the_transaction_as_it_was_async(kind: str, url: str) -> None:
    async def main() -> None:
        with held(url, "taken"):
            async with transaction_async(kind, url) as (conn, run):
                await run("SELECT set_config('lock_timeout', '70s', false)")
                await advisory_xact_lock_async(conn, "mine", timeout=1)
                for timeout in (0, 0.2):
                    with pytest.raises(AcquireTimeout, match="lock 'taken' not acquired"):
                        await advisory_xact_lock_async(conn, "taken", timeout=timeout)
                assert await run("SELECT current_setting('lock_timeout')") == ("70s",)
                assert not is_free(url, "mine")
                assert not await try_advisory_xact_lock_async(conn, "taken")

    asyncio.run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_it_waits_for_its_turn(kind: str, url: str) -> None:
    with psycopg.connect(url) as other, transaction(kind, url) as (conn, run):
        advisory_xact_lock(other, "turn")
        timer = threading.Timer(0.3, other.rollback)
        timer.start()
        began = time.monotonic()
        advisory_xact_lock(conn, "turn", timeout=10)
        assert time.monotonic() - began > 0.2
        assert run("SELECT current_setting('lock_timeout')") == ("0",)
        timer.join()
        advisory_xact_lock(conn, "turn", timeout=1)  # once more: it has it already
        assert not is_free(url, "turn")
    assert is_free(url, "turn")


def test_shared_locks_go_together(url: str) -> None:
    with held(url, "shared", shared=True), psycopg.connect(url) as conn:
        assert try_advisory_xact_lock(conn, "shared", shared=True)
        advisory_xact_lock(conn, "shared", shared=True, timeout=1)
        assert not is_free(url, "shared")
        with pytest.raises(AcquireTimeout):
            advisory_xact_lock(conn, "shared", timeout=0.1)
    with held(url, "shared"), psycopg.connect(url) as conn:
        assert not try_advisory_xact_lock(conn, "shared", shared=True)
        with pytest.raises(AcquireTimeout):
            advisory_xact_lock(conn, "shared", shared=True, timeout=0.1)


def test_namespaces_and_names_do_not_meet(url: str) -> None:
    with held(url, "b", namespace="a"), psycopg.connect(url) as conn:
        assert try_advisory_xact_lock(conn, "b")
        assert try_advisory_xact_lock(conn, "ab")
        assert not try_advisory_xact_lock(conn, "b", namespace="a")


def test_the_key_is_the_one_that_is_written_down(url: str) -> None:
    assert advisory_key("", "invoice:42") == -3178739592998901140
    with held(url, "invoice:42"), psycopg.connect(url) as conn:
        row = conn.execute("SELECT pg_try_advisory_xact_lock(%s::bigint)", (advisory_key("", "invoice:42"),))
        assert row.fetchone() == (False,)


# Not in a transaction ------------------------------------------------------------------------------


def test_autocommit_is_refused(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        for call in (advisory_xact_lock, try_advisory_xact_lock):
            with pytest.raises(ConfigurationError, match="would be gone at once"):
                call(conn, "x")
        with conn.transaction():
            advisory_xact_lock(conn, "x", timeout=1)
            assert not is_free(url, "x")
        assert is_free(url, "x")
    engine = create_engine(dialect(url), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection, pytest.raises(ConfigurationError, match="AUTOCOMMIT"):
        advisory_xact_lock(connection, "x")
    with Session(engine) as session, pytest.raises(ConfigurationError, match="AUTOCOMMIT"):
        try_advisory_xact_lock(session, "x")
    engine.dispose()


def test_autocommit_is_refused_async(url: str) -> None:
    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
            with pytest.raises(ConfigurationError, match="would be gone at once"):
                await advisory_xact_lock_async(conn, "x")
            async with conn.transaction():
                await advisory_xact_lock_async(conn, "x", timeout=1)
                assert not is_free(url, "x")
        engine = create_async_engine(dialect(url), isolation_level="AUTOCOMMIT")
        async with engine.connect() as connection:
            with pytest.raises(ConfigurationError, match="AUTOCOMMIT"):
                await try_advisory_xact_lock_async(connection, "x")
        await engine.dispose()

    asyncio.run(main())


def test_a_transaction_that_has_failed_is_refused(url: str) -> None:
    with psycopg.connect(url) as conn:
        with pytest.raises(psycopg.errors.UndefinedTable):
            conn.execute("SELECT * FROM nowhere")
        with pytest.raises(ConfigurationError, match="roll it back"):
            advisory_xact_lock(conn, "x")
        conn.rollback()


# What goes wrong -----------------------------------------------------------------------------------


def test_the_roles_own_lock_timeout_is_a_timeout(url: str) -> None:
    with held(url, "taken"), psycopg.connect(url, options="-c lock_timeout=100ms") as conn:
        with pytest.raises(AcquireTimeout) as caught:
            advisory_xact_lock(conn, "taken")
        assert isinstance(caught.value.__cause__, psycopg.errors.LockNotAvailable)
        conn.rollback()


def test_a_statement_timeout_stays_the_drivers_error_and_the_transaction_goes_on(url: str) -> None:
    with held(url, "taken"), psycopg.connect(url, options="-c statement_timeout=200ms") as conn:
        with pytest.raises(psycopg.errors.QueryCanceled):
            advisory_xact_lock(conn, "taken", timeout=5)
        assert conn.execute("SELECT current_setting('lock_timeout')").fetchone() == ("0",)


def test_a_task_that_is_cancelled_holds_nothing(url: str) -> None:
    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(url) as conn:
            task = asyncio.create_task(advisory_xact_lock_async(conn, "taken", timeout=30))
            await asyncio.sleep(0.3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await conn.rollback()

    with held(url, "taken"):
        asyncio.run(main())
    assert is_free(url, "taken")


def test_wrong_values(url: str) -> None:
    wrong: Any = object()
    with pytest.raises(ConfigurationError, match="is not a psycopg connection"):
        advisory_xact_lock(wrong, "x")
    with psycopg.connect(url) as conn:
        for name in ("", "a\0b", "x" * 513):
            with pytest.raises(ConfigurationError, match="name="):
                advisory_xact_lock(conn, name)
        with pytest.raises(ConfigurationError, match="timeout="):
            advisory_xact_lock(conn, "x", timeout=-1)
        mixed: Any = conn
        with pytest.raises(ConfigurationError, match="is not a psycopg AsyncConnection"):
            asyncio.run(advisory_xact_lock_async(mixed, "x"))

    async def mixed_up() -> None:
        async with await psycopg.AsyncConnection.connect(url) as conn:
            mixed: Any = conn
            with pytest.raises(ConfigurationError, match="_async"):
                advisory_xact_lock(mixed, "x")

    asyncio.run(mixed_up())


def test_other_databases_say_that_they_cannot() -> None:
    engine = create_engine("sqlite://")
    with engine.connect() as conn, pytest.raises(Unsupported, match="sqlite backend does not support"):
        advisory_xact_lock(conn, "x")
    engine.dispose()
    mysql: Any = pymysql.connections.Connection(defer_connect=True)
    with pytest.raises(Unsupported, match="mysql backend does not support locks that end with a transaction"):
        advisory_xact_lock(mysql, "x")


def test_importing_it_imports_no_driver() -> None:
    code = "import sys, fencelock.sql; print(*{'psycopg', 'sqlalchemy', 'pymysql'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
