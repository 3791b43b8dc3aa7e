"""Rows with a version on PostgreSQL and MariaDB, through every sort of connection, and under contention."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from tools.servers import start
from workers.databases import asked, connected, connected_async, done, engine_url

from fencelock import ConfigurationError, optimistic
from fencelock.optimistic import Change, Conflicted, NoSuchRow, Updated

TABLE = "sto%ck"
KINDS = ["driver", "autocommit", "connection", "session"]


@pytest.fixture(scope="module", params=["postgres", "mariadb"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with start(request.param) as group:
        yield str(group.url)


def quoted(url: str, name: str) -> str:
    return f'"{name}"' if url.startswith("postgresql") else f"`{name}`"


@pytest.fixture(autouse=True)
def table(url: str) -> None:
    name = quoted(url, TABLE)
    done(
        url,
        f"DROP TABLE IF EXISTS {name}",
        f"CREATE TABLE {name} (id INTEGER, note VARCHAR(50), version BIGINT, seen TIMESTAMP DEFAULT now())",
        f"INSERT INTO {name} (id, note, version) VALUES (1, 'one', 1), (2, 'two', 5)",
        f"INSERT INTO {name} (id, note, version) VALUES (3, 'a', 1), (3, 'b', 1)",
    )


def rows(url: str) -> list[Any]:
    return sorted(done(url, f"SELECT id, note, version FROM {quoted(url, TABLE)}"))


def shown(row: dict[str, Any]) -> tuple[Any, ...]:
    assert set(row) == {"id", "note", "version", "seen"}
    return row["id"], row["note"], row["version"]


@contextmanager
def opened(kind: str, url: str) -> Iterator[Any]:
    if kind in {"driver", "autocommit"}:
        conn = connected(url, autocommit=kind == "autocommit")
        try:
            yield conn
            conn.commit()
        finally:
            conn.close()
        return
    engine = create_engine(engine_url(url))
    try:
        if kind == "connection":
            with engine.begin() as conn:
                yield conn
        else:
            with Session(engine) as session, session.begin():
                yield session
    finally:
        engine.dispose()


@asynccontextmanager
async def opened_async(kind: str, url: str) -> AsyncIterator[Any]:
    if kind in {"driver", "autocommit"}:
        conn = await connected_async(url, autocommit=kind == "autocommit")
        try:
            yield conn
            await conn.commit()
        finally:
            await (conn.ensure_closed() if hasattr(conn, "ensure_closed") else conn.close())
        return
    engine = create_async_engine(engine_url(url, is_async=True))
    try:
        if kind == "connection":
            async with engine.begin() as conn:
                yield conn
        else:
            async with AsyncSession(engine) as session, session.begin():
                yield session
    finally:
        await engine.dispose()


@pytest.mark.parametrize("kind", KINDS)
def test_every_sort_of_connection(url: str, kind: str) -> None:
    before = rows(url)
    with opened(kind, url) as conn:
        assert shown(optimistic.read(conn, TABLE, key={"id": 1})) == (1, "one", 1)
        good = optimistic.update(conn, TABLE, key={"id": 1}, version=1, set={"note": "%s ? '\";"})
        late = optimistic.update(conn, TABLE, key={"id": 2}, version=4, set={"note": "late"})
        assert isinstance(good, Updated) and shown(good.row) == (1, "%s ? '\";", 2)
        assert isinstance(late, Conflicted) and shown(late.row) == (2, "two", 5)
        with pytest.raises(NoSuchRow):
            optimistic.update(conn, TABLE, key={"id": 9}, version=1, set={"note": "x"})
        with pytest.raises(ConfigurationError, match="several rows"):
            optimistic.update(conn, TABLE, key={"id": 3}, version=1, set={"note": "x"})
        with pytest.raises(ConfigurationError, match=r"version=7 .* does not exist: the row has version 5"):
            optimistic.update(conn, TABLE, key={"id": 2}, version=7, set={"note": "x"})
    assert rows(url) == [(1, "%s ? '\";", 2), *before[1:]]


@pytest.mark.parametrize("kind", KINDS)
def test_every_sort_of_asynchronous_connection(url: str, kind: str) -> None:
    before = rows(url)

    async def main() -> None:
        async with opened_async(kind, url) as conn:
            assert shown(await optimistic.read_async(conn, TABLE, key={"id": 1})) == (1, "one", 1)
            changes = [Change({"id": 2}, 4, {"note": "late"}), Change({"id": 1}, 1, {"note": "%s ? '"})]
            late, good = await optimistic.update_many_async(conn, TABLE, changes)
            assert isinstance(good, Updated) and shown(good.row) == (1, "%s ? '", 2)
            assert isinstance(late, Conflicted) and shown(late.row) == (2, "two", 5)
            again = await optimistic.update_async(conn, TABLE, key={"id": 1}, version=1, set={"note": "z"})
            assert isinstance(again, Conflicted) and shown(again.row) == (1, "%s ? '", 2)
            with pytest.raises(NoSuchRow):
                await optimistic.update_async(conn, TABLE, key={"id": 9}, version=1, set={"note": "x"})
            with pytest.raises(ConfigurationError, match="several rows"):
                await optimistic.update_async(conn, TABLE, key={"id": 3}, version=1, set={"note": "x"})

    asyncio.run(main())
    assert rows(url) == [(1, "%s ? '", 2), *before[1:]]


def test_a_conflict_shows_the_row_as_it_is_and_not_as_it_was(url: str) -> None:
    """The update waits for another transaction; what it then shows must be what that one wrote."""
    first, second = connected(url), connected(url)
    try:
        assert isinstance(
            optimistic.update(first, TABLE, key={"id": 1}, version=1, set={"note": "first"}), Updated
        )
        optimistic.read(second, TABLE, key={"id": 2})  # a transaction with a snapshot from before
        found: list[Any] = []
        thread = threading.Thread(
            target=lambda: found.append(
                optimistic.update(second, TABLE, key={"id": 1}, version=1, set={"note": "second"})
            )
        )
        thread.start()
        time.sleep(0.5)
        assert not found
        first.commit()
        thread.join(30)
        (done_,) = found
        assert isinstance(done_, Conflicted)
        assert shown(done_.row) == (1, "first", 2)
    finally:
        first.close()
        second.close()


def test_a_row_that_was_deleted_meanwhile(url: str) -> None:
    first, second = connected(url), connected(url)
    try:
        asked(first, f"DELETE FROM {quoted(url, TABLE).replace('%', '%%')} WHERE id = ?", 1)
        errors: list[Exception] = []

        def update() -> None:
            try:
                optimistic.update(second, TABLE, key={"id": 1}, version=1, set={"note": "x"})
            except Exception as error:
                errors.append(error)

        thread = threading.Thread(target=update)
        thread.start()
        time.sleep(0.3)
        first.commit()
        thread.join(30)
        assert [type(error) for error in errors] == [NoSuchRow]
    finally:
        first.close()
        second.close()


def test_nothing_is_committed(url: str) -> None:
    before = rows(url)
    conn = connected(url)
    optimistic.update(conn, TABLE, key={"id": 1}, version=1, set={"note": "x"})
    conn.rollback()
    conn.close()
    assert rows(url) == before


def test_a_transaction_that_was_begun_by_hand_is_the_users(url: str) -> None:
    before = rows(url)
    conn = connected(url, autocommit=True)
    asked(conn, "BEGIN")
    optimistic.update(conn, TABLE, key={"id": 1}, version=1, set={"note": "x"})
    asked(conn, "ROLLBACK")
    conn.close()
    assert rows(url) == before


@pytest.mark.parametrize("autocommit", [True, False])
def test_no_update_is_lost(url: str, autocommit: bool) -> None:
    """Eight threads add to one row; whoever loses tries again."""
    done(
        url,
        "DROP TABLE IF EXISTS counters",
        "CREATE TABLE counters (id INTEGER PRIMARY KEY, n INTEGER, version BIGINT)",
    )
    done(url, "INSERT INTO counters VALUES (1, 0, 0)")
    errors: list[BaseException] = []

    @optimistic.retry(timeout=60)
    def add(conn: Any) -> Any:
        row = optimistic.read(conn, "counters", key={"id": 1})
        conn.rollback()
        found = optimistic.update(
            conn, "counters", key={"id": 1}, version=row["version"], set={"n": row["n"] + 1}
        )
        if isinstance(found, Updated):
            assert found.row == {"id": 1, "n": row["n"] + 1, "version": row["version"] + 1}
        conn.commit()
        return found

    def work() -> None:
        conn = connected(url, autocommit=autocommit)
        try:
            for _ in range(25):
                add(conn)
        except BaseException as error:
            errors.append(error)
        finally:
            conn.close()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert errors == []
    assert done(url, "SELECT n, version FROM counters") == [(200, 200)]


def test_two_of_many_do_not_wait_for_each_other(url: str) -> None:
    """Both change the same 60 rows, named in opposite orders: a deadlock, if they were locked as named."""
    done(
        url,
        "DROP TABLE IF EXISTS many",
        "CREATE TABLE many (id INTEGER PRIMARY KEY, n INTEGER, version BIGINT)",
    )
    for number in range(60):
        done(url, f"INSERT INTO many VALUES ({number}, 0, 0)")
    tries: list[Any] = []

    def work(numbers: list[int]) -> None:
        conn = connected(url)
        try:
            for _ in range(10):
                changes = [Change({"id": n}, 0, {"n": 1}) for n in numbers]
                tries.append(optimistic.update_many(conn, "many", changes))
                conn.rollback()
        except BaseException as error:
            tries.append(error)
        finally:
            conn.close()

    numbers = list(range(60))
    threads = [threading.Thread(target=work, args=(order,)) for order in (numbers, numbers[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(tries) == 20
    assert all(isinstance(one, Updated) and one.row["n"] == 1 for each in tries for one in each)
