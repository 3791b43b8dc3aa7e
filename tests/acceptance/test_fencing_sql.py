"""The guards in SQL, over every sort of connection: the holder that slept, 32 writers, the rule."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from fencing_drills import Cast
from tools.servers import start
from workers.fencing_shelves import SQLShelf, done, mapped_row

from fencelock import ConfigurationError, StaleToken, fencing

SQLITE = ["sqlite3+admit", "sqlite3+column", "connection+admit", "session+orm"]
POSTGRES = [
    "psycopg+admit",
    "psycopg+column",
    "psycopg-async+admit",
    "psycopg-async+column",
    "connection+admit",
    "session+orm",
    "connection-async+column",
    "session-async+admit",
    "session-async+orm",
]
MARIADB = [
    "pymysql+admit",
    "pymysql+column",
    "asyncmy+admit",
    "asyncmy+column",
    "connection+admit",
    "session+orm",
    "connection-async+column",
    "session-async+admit",
    "session-async+orm",
]
KINDS = [
    *(("sqlite", kind) for kind in SQLITE),
    *(("postgres", kind) for kind in POSTGRES),
    *(("mariadb", kind) for kind in MARIADB),
]
CROWDS = [
    ("sqlite", "sqlite3+admit"),
    ("sqlite", "sqlite3+column"),
    ("postgres", "psycopg+admit"),
    ("postgres", "psycopg-async+column"),
    ("postgres", "session+orm"),
    ("mariadb", "pymysql+admit"),
    ("mariadb", "pymysql+column"),
    ("mariadb", "asyncmy+admit"),
    ("mariadb", "session+orm"),
]
Where = Callable[[str], str]


@pytest.fixture(scope="module")
def cast() -> Iterator[Cast]:
    with Cast() as cast:
        yield cast


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with start("postgres") as group:
        yield str(group.url)


@pytest.fixture(scope="module")
def mariadb() -> Iterator[str]:
    with start("mariadb") as group:
        yield str(group.url)


@pytest.fixture
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Where:
    """Where a store is, with nothing of an earlier test in it."""

    def clean(store: str) -> str:
        if store == "sqlite":
            return str(tmp_path / "data.db")
        url = str(request.getfixturevalue(store))
        shelf = SQLShelf("psycopg+admit" if store == "postgres" else "pymysql+admit", url)
        for table in ("shelf", "log", fencing.TABLE):
            shelf.transaction(lambda table=table: shelf.ask(f"DROP TABLE IF EXISTS {table}"))
        shelf.close()
        return url

    return clean


@pytest.mark.parametrize(("store", "kind"), KINDS)
def test_the_holder_that_slept(cast: Cast, store: str, kind: str, where: Where, tmp_path: Path) -> None:
    cast.paused_holder(kind, where(store), tmp_path)


@pytest.mark.parametrize(("store", "kind"), CROWDS)
def test_32_writers(cast: Cast, store: str, kind: str, where: Where) -> None:
    cast.crowd(kind, where(store))


@pytest.mark.parametrize(("store", "kind"), [pair for pair in KINDS if pair[1].endswith("+orm")])
def test_what_a_session_had_read_before_is_made_new(store: str, kind: str, where: Where) -> None:
    url = where(store)
    shelf, other = SQLShelf(kind, url), SQLShelf(kind, url)
    shelf.create()

    async def steps() -> tuple[str, str, int]:
        row = await done(shelf.conn.get_one(mapped_row(), 1))
        assert row.text == ""
        row.plain = "mine"
        if store == "sqlite":
            await done(shelf.conn.rollback())  # who has read in SQLite cannot write after somebody else did
            row.plain = "mine"
        await asyncio.to_thread(other_writes) if shelf.asynchronous else other_writes()
        await done(row.admit_async(35) if shelf.asynchronous else row.admit(35))
        return row.plain, row.text, row.fence

    def other_writes() -> None:
        other.write(34, "meanwhile")

    assert shelf.transaction(steps) == ("mine", "meanwhile", 35)
    assert shelf.read() == ("mine", "meanwhile")
    shelf.close()
    other.close()


@pytest.mark.parametrize(("store", "kind"), KINDS)
def test_a_missing_table_is_one_line(store: str, kind: str, where: Where) -> None:
    shelf = SQLShelf(kind.partition("+")[0] + "+admit", where(store))

    async def steps() -> Any:
        found = shelf.call("admit", shelf.conn, "r", 1)
        return await found if shelf.asynchronous else found

    with pytest.raises(
        ConfigurationError, match=r"^there is no table 'fencelock_fences' here: .*create_table"
    ):
        shelf.transaction(steps)
    shelf.close()


@pytest.mark.parametrize(("store", "kind"), KINDS)
def test_the_rule_and_names_that_must_not_meet(store: str, kind: str, where: Where) -> None:
    shelf = SQLShelf(kind.partition("+")[0] + "+admit", where(store))
    shelf.create()

    def do(name: str, *args: Any, **terms: Any) -> Any:
        async def steps() -> Any:
            found = shelf.call(name, shelf.conn, *args, **terms)
            return await found if shelf.asynchronous else found

        return shelf.transaction(steps)

    do("create_table")  # once more changes nothing
    for token in (5, 5, 2**31, 2**53 + 1, 2**63 - 1):
        do("admit", "r", token)
    names = [
        "R",
        "r ",
        " r",
        "r%2F",
        "\u0155",
        "r\u0301",
        "r'--",
        "r%s:token",
        "\\",
        "x" * 512,
        "\U0001f512" * 128,
    ]
    for number, name in enumerate(names, 1):
        do("admit", name, number)
    assert [do("newest", name) for name in names] == list(range(1, len(names) + 1))
    with pytest.raises(StaleToken) as raised:
        do("admit", "r", 2**63 - 2)
    assert raised.value.newest == 2**63 - 1
    do("forget", "r")
    assert do("newest", "r") == 0
    do("update", "shelf", {"text": "same"}, where={"id": 1}, token=7)
    do("update", "shelf", {"text": "same"}, where={"id": 1}, token=7)  # nothing changes: not refused for that
    with pytest.raises(StaleToken) as raised:
        do("update", "shelf", {"text": "late"}, where={"id": 1}, token=6)
    assert raised.value.newest == 7
    with pytest.raises(ConfigurationError, match="does not exist: nothing was written"):
        do("update", "shelf", {"text": "lost"}, where={"id": 2}, token=8)
    assert shelf.read() == ("", "same")
    shelf.close()


@pytest.mark.parametrize("store", ["sqlite", "postgres", "mariadb"])
def test_a_newer_holder_waits_for_the_transaction_of_an_older_one(store: str, where: Where) -> None:
    """Between the comparison and the commit nobody gets past: and then the order is that of the tokens."""
    driver = {"sqlite": "sqlite3", "postgres": "psycopg", "mariadb": "pymysql"}[store]
    url = where(store)
    older = SQLShelf(f"{driver}+admit", url)
    older.create()
    order: list[str] = []

    def newer() -> None:
        shelf = SQLShelf(f"{driver}+admit", url)
        shelf.write(34, "newer")
        order.append("newer")
        shelf.close()

    fencing.admit(older.conn, "shelf", 33)
    thread = threading.Thread(target=newer)
    thread.start()
    time.sleep(0.3)
    order.append("older")
    older.run(older.ask("UPDATE shelf SET text = 'older'"))
    older.conn.commit()
    thread.join(30)
    assert order == ["older", "newer"]
    assert older.read()[1] == "newer"
    with pytest.raises(StaleToken):
        older.write(33, "late")
    older.close()


def test_autocommit_is_refused(where: Where) -> None:
    with psycopg.connect(where("postgres"), autocommit=True) as conn:
        fencing.create_table(conn)
        with pytest.raises(ConfigurationError, match="there is no transaction"):
            fencing.admit(conn, "r", 5)
        assert fencing.newest(conn, "r") == 0
        with conn.transaction():
            fencing.admit(conn, "r", 5)
        assert fencing.newest(conn, "r") == 5
    shelf = SQLShelf("pymysql+admit", where("mariadb"))
    shelf.conn.autocommit(True)
    fencing.create_table(shelf.conn)
    with pytest.raises(ConfigurationError, match="there is no transaction"):
        fencing.admit(shelf.conn, "r", 5)
    assert fencing.newest(shelf.conn, "r") == 0
    shelf.conn.begin()
    fencing.admit(shelf.conn, "r", 5)
    shelf.conn.commit()
    assert fencing.newest(shelf.conn, "r") == 5
    shelf.close()


@pytest.mark.parametrize(
    "kind", ["pymysql+admit", "asyncmy+admit", "session+admit", "connection-async+admit"]
)
def test_making_the_table_never_commits_for_you(kind: str, where: Where) -> None:
    shelf = SQLShelf(kind, where("mariadb"))
    shelf.create()

    async def steps() -> None:
        await shelf.ask("UPDATE shelf SET text = 'not yet'")
        found = shelf.call("create_table", shelf.conn, table="more_fences")
        if shelf.asynchronous:
            await found

    with pytest.raises(ConfigurationError, match="would commit your transaction"):
        shelf.transaction(steps)
    assert shelf.read() == ("", "")
    shelf.close()


def test_ten_make_the_table_at_once(where: Where) -> None:
    url = where("postgres")
    failed: list[BaseException] = []
    together = threading.Barrier(10)

    def make() -> None:
        try:
            with psycopg.connect(url) as conn:
                together.wait(30)
                fencing.create_table(conn)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=make) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failed == []


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_stricter_isolation_lets_nothing_stale_through(level: str, where: Where) -> None:
    """The snapshot is older than the newest token: an error of the driver, or `StaleToken`, never a pass."""
    url = where("postgres")
    with psycopg.connect(url) as conn:
        fencing.create_table(conn)
        fencing.admit(conn, "r", 1)
    with psycopg.connect(url) as older, psycopg.connect(url) as newer:
        older.isolation_level = psycopg.IsolationLevel[level.replace(" ", "_")]
        older.execute("SELECT 1")
        fencing.admit(newer, "r", 34)
        newer.commit()
        with pytest.raises(psycopg.errors.SerializationFailure):
            fencing.admit(older, "r", 33)
        older.rollback()
        with pytest.raises(StaleToken):
            fencing.admit(older, "r", 33)
    mysql = where("mariadb")
    first, second = SQLShelf("pymysql+admit", mysql), SQLShelf("pymysql+admit", mysql)
    first.create()
    first.write(1, "one")
    first.run(first.ask(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}"))
    first.conn.begin()
    first.run(first.ask("SELECT 1"))
    second.write(34, "newer")
    with pytest.raises((StaleToken, pymysql.err.MySQLError)):
        fencing.admit(first.conn, "shelf", 33)
    first.conn.rollback()
    assert first.read()[1] == "newer"
    first.close()
    second.close()


@pytest.mark.parametrize("kind", ["pymysql+column", "asyncmy+column", "session+orm", "session-async+orm"])
def test_a_refusal_tells_the_newest_token_not_that_of_a_snapshot(kind: str, where: Where) -> None:
    url = where("mariadb")
    older, newer = SQLShelf(kind, url), SQLShelf("pymysql+column", url)
    older.create()

    async def steps() -> None:
        row = await done(older.conn.get_one(mapped_row(), 1)) if older.form == "orm" else None
        assert await older.ask("SELECT fence FROM shelf") == [(0,)]
        newer.write(34, "newer")
        assert await older.ask("SELECT fence FROM shelf") == [(0,)], "no teeth: there is no snapshot"
        if row is None:
            change = {"text": "older"}
            await done(older.call("update", older.conn, "shelf", change, where={"id": 1}, token=33))
        else:
            await done(row.admit_async(33) if older.asynchronous else row.admit(33))

    with pytest.raises(StaleToken) as raised:
        older.transaction(steps)
    assert raised.value.newest == 34
    older.close()
    newer.close()


def test_gates_in_a_database(where: Where) -> None:
    url = where("postgres")
    with psycopg.connect(url) as conn:
        fencing.create_table(conn)
    gate = fencing.SQLGate(lambda: psycopg.connect(url))
    gate.admit("r", 34)
    with pytest.raises(StaleToken):
        gate.admit("r", 33)
    with pytest.raises(KeyError), gate.turn("r", 36) as conn:
        conn.execute("CREATE TABLE shelf (id integer)")
        raise KeyError
    with pytest.raises(StaleToken):
        gate.admit("r", 35)  # the block has failed, but it may have done things elsewhere
    with psycopg.connect(url) as conn, pytest.raises(psycopg.errors.UndefinedTable):
        conn.execute("SELECT * FROM shelf")
    with pytest.raises(ConfigurationError, match="cannot be called"):
        fencing.SQLGate("engine")  # type: ignore[arg-type]

    class Connected:
        async def __aenter__(self) -> Any:
            self.conn = await psycopg.AsyncConnection.connect(url)
            return await self.conn.__aenter__()

        async def __aexit__(self, *error: Any) -> None:
            await self.conn.__aexit__(*error)

    async def main() -> None:
        gate = fencing.AsyncSQLGate(Connected)
        await gate.admit("r", 37)
        with pytest.raises(StaleToken):
            async with gate.turn("r", 36):
                raise AssertionError
        async with gate.turn("r", 38) as conn:
            await conn.execute("SELECT 1")
        with pytest.raises(StaleToken):
            await gate.admit("r", 37)
        with pytest.raises(KeyError):
            async with gate.turn("r", 40):
                raise KeyError
        with pytest.raises(StaleToken):
            await gate.admit("r", 39)
        async with gate.turn("r", 41):
            newer = asyncio.create_task(gate.admit("r", 42))
            ended, _ = await asyncio.wait([newer], timeout=0.2)
            assert not ended, "somebody got in during a turn"
        await newer

    asyncio.run(main())
