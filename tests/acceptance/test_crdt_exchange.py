"""Replicas on real stores: killed writers, servers that go away or forget, the user's own connections."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
import redis
import sqlalchemy
from crew import Crew, Member
from psycopg.rows import dict_row
from tools.servers import start

from fencelock import BackendUnavailable, ConfigurationError
from fencelock.backends.mysql.server import OPTIONS, Server, options_of
from fencelock.crdt import (
    AsyncReplica,
    GCounter,
    ORMap,
    ORSet,
    PNCounter,
    RedisExchange,
    Replica,
    SQLExchange,
    Synced,
)

SERVERS = ("postgres", "mariadb", "redis", "valkey")
ROUNDS = int(os.environ.get("FENCELOCK_ROUNDS", "2"))


@pytest.fixture(scope="module", params=SERVERS)
def group(request: pytest.FixtureRequest) -> Iterator[Any]:
    with start(request.param) as group:
        yield group


@pytest.fixture(scope="module", params=("directory", "sqlite", *SERVERS))
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an exchange of each sort."""
    folder = tmp_path_factory.mktemp("exchange")
    if request.param == "directory":
        yield f"file://{folder}"
    elif request.param == "sqlite":
        yield f"sqlite://{folder}/exchange.db"
    else:
        with start(request.param) as group:
            yield str(group.url)


def add(to: Any, *elements: Any) -> None:
    to.update(lambda value: value.add(to.id, *elements))


# Processes that are killed ------------------------------------------------------------------


class Told:
    """What the writers said that they had done."""

    def __init__(self) -> None:
        self.added: set[str] = set()
        self.removing: set[str] = set()
        self.removed: set[str] = set()

    def listen(self, member: Member, changes: int) -> None:
        """Hear so many changes, kill the writer, and hear what it had said until then."""
        for _ in range(changes):
            self._take(member.hear())
        member.signal(signal.SIGKILL)
        member.end()
        while True:
            try:
                self._take(member.hear())
            except AssertionError:  # it has said all
                assert not member.errors, member.errors
                return

    def _take(self, said: dict[str, str]) -> None:
        for what, word in said.items():
            if what != "ready":
                getattr(self, what).add(word)


def test_killed_writers_lose_nothing_that_was_acknowledged(place: str, tmp_path: Path, crew: Crew) -> None:
    told, rng = Told(), random.Random(5)
    for number in range(ROUNDS):
        writers = [
            crew.start("crdt_writer", tmp_path / name, place, f"{name}{number}", name=name)
            for name in ("anna", "ben", "carl")
        ]
        for writer in writers:
            told.listen(writer, rng.randint(5, 25))
    with ExitStack() as stack:
        team = [
            stack.enter_context(Replica("tags", ORSet, path=tmp_path / name, exchange=place))
            for name in ("anna", "ben", "carl", "new")
        ]
        for _ in range(2):
            for one in team:
                one.sync()
        states = {one.value.to_bytes() for one in team}
        assert len(states) == 1
        found = team[0].value.elements
    assert told.added - told.removing <= found, "an acknowledged add is lost"
    assert not told.removed & found, "an acknowledged removal is undone"
    assert len(told.added) > 10 * ROUNDS
    assert told.removed


@pytest.mark.parametrize("kind", [ORMap, PNCounter], ids=lambda kind: kind.__name__)
def test_two_that_were_offline_converge_in_both_flavours(kind: Any, place: str, tmp_path: Path) -> None:
    def change(one: Any) -> Callable[[Any], Any]:
        if kind is PNCounter:
            return lambda value: value.decrement(one.id, 3)
        return lambda value: value.update(one.id, "n", GCounter, lambda c: c.increment(one.id))

    async def main() -> None:
        with Replica(f"mixed {kind.code} ü/:", kind, path=tmp_path / "one", exchange=place) as one:
            async with AsyncReplica(one.name, kind, path=tmp_path / "two", exchange=place) as two:
                for _ in range(5):
                    one.update(change(one))
                    await two.update(change(two))
                assert one.sync().sent
                assert await two.sync() == Synced(received=1, sent=True)
                assert one.sync() == Synced(received=1, sent=False)
                assert await two.sync() == Synced(received=0, sent=False)
                assert one.value == two.value
                found = one.value.value if kind is PNCounter else one.value.get("n", GCounter).value
                assert found == (-30 if kind is PNCounter else 10)

    asyncio.run(main())


def test_names_do_not_meet(place: str, tmp_path: Path) -> None:
    names = ["a", "A", "a ", "a/b", "a:b", "ä", "a\u0308", "%61"]
    with ExitStack() as stack:
        for number, name in enumerate(names):
            writer = Replica(name, ORSet, path=tmp_path / f"w{number}", exchange=place)
            add(stack.enter_context(writer), name)
            writer.sync()
        for number, name in enumerate(names):
            reader = Replica(name, ORSet, path=tmp_path / f"r{number}", exchange=place)
            assert stack.enter_context(reader).sync().received == 1
            assert reader.value.elements == {name}


def test_forgotten_replicas_leave_nothing(place: str, tmp_path: Path) -> None:
    with (
        Replica("brief", ORSet, path=tmp_path / "one", exchange=place) as one,
        Replica("brief", ORSet, path=tmp_path / "two", exchange=place) as two,
    ):
        add(one, "x")
        one.sync()
        add(one, "y")
        one.sync()
        two.forget(one.id)
        assert {record.author for record in two._exchange.records("brief")} == {two.id}
        assert two.value.elements == {"x", "y"}


# Servers ------------------------------------------------------------------------------------


def test_a_server_that_goes_away(group: Any, tmp_path: Path) -> None:
    server = group.members[0]
    with (
        Replica("outage", ORSet, path=tmp_path / "one", exchange=group.url) as one,
        Replica("outage", ORSet, path=tmp_path / "two", exchange=group.url) as two,
    ):
        add(one, "before")
        one.sync()
        server.kill()
        add(one, "while it was down")
        for each in (one, two):
            with pytest.raises(BackendUnavailable):
                each.sync()
        server.restart()
        for each in (one, two, one):
            each.sync()
        assert one.value == two.value
        assert two.value.elements == {"before", "while it was down"}


def test_a_server_that_forgets_everything(group: Any, tmp_path: Path) -> None:
    with (
        Replica("wiped", ORSet, path=tmp_path / "one", exchange=group.url) as one,
        Replica("wiped", ORSet, path=tmp_path / "two", exchange=group.url) as two,
    ):
        add(one, "x")
        one.sync()
        two.sync()
        one.close()
        two._exchange.remove("wiped", two._exchange.records("wiped"))
        two.sync()
        with Replica("wiped", ORSet, path=tmp_path / "new", exchange=group.url) as new:
            new.sync()
            assert new.value.elements == {"x"}


def test_a_server_with_the_wrong_password(group: Any, tmp_path: Path) -> None:
    scheme, _, rest = group.url.partition("://")
    url = f"{scheme}://nobody:reef-knot-2@{rest.rpartition('@')[2]}"
    with Replica("n", ORSet, path=tmp_path / "one", exchange=url) as one:
        add(one, "x")
        with pytest.raises(BackendUnavailable) as caught:
            one.sync()
        assert "reef-knot-2" not in str(caught.value)
        assert one.value.elements == {"x"}


# The user's own connections -----------------------------------------------------------------


def connected(url: str) -> Any:
    if url.startswith("postgresql"):
        return psycopg.connect(url, row_factory=dict_row)
    if url.startswith(("mysql", "mariadb")):
        server = Server(url, options_of(url, OPTIONS))
        terms = {**server.arguments(5), "autocommit": False}
        return pymysql.connect(**terms, cursorclass=pymysql.cursors.DictCursor)
    return sqlite3.connect(url)


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def sql_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "own.db")
    else:
        with start(request.param) as group:
            yield str(group.url)


def test_your_own_sql_connection(sql_url: str, tmp_path: Path) -> None:
    conn, other = connected(sql_url), connected(sql_url)
    try:
        with (
            Replica("own", ORSet, path=tmp_path / "one", exchange=SQLExchange(conn)) as one,
            Replica("own", ORSet, path=tmp_path / "two", exchange=SQLExchange(other)) as two,
        ):
            add(one, "x", b"\x00\xff")
            with pytest.raises(ConfigurationError, match="fencelock_crdt is missing"):
                one.sync()
            SQLExchange(conn).create_table()
            SQLExchange(conn).create_table()
            assert one.sync() == Synced(received=0, sent=True)
            assert two.sync() == Synced(received=1, sent=False)
            assert one.value == two.value

            cursor = conn.cursor()
            cursor.execute("CREATE TABLE mine (n INTEGER)")
            conn.commit()
            cursor.execute("INSERT INTO mine VALUES (1)")
            with pytest.raises(ConfigurationError, match="in a transaction"):
                one.sync()
            conn.rollback()
            cursor.execute("SELECT n FROM mine")
            assert not cursor.fetchall(), "the user's transaction was committed"
            conn.rollback()
            one.sync()
        conn.cursor().execute("SELECT 1")  # it is still open
    finally:
        conn.close()
        other.close()


def test_your_own_engine(sql_url: str, tmp_path: Path) -> None:
    scheme, _, rest = sql_url.rpartition("://")
    drivers = {"postgresql": "postgresql+psycopg", "": "sqlite"}
    url = f"{drivers.get(scheme, 'mysql+pymysql')}://{'' if scheme else '/'}{rest}"
    engine = sqlalchemy.create_engine(url)
    exchange = SQLExchange(engine)
    with (
        Replica("own", ORSet, path=tmp_path / "one", exchange=exchange) as one,
        Replica("own", ORSet, path=tmp_path / "two", exchange=SQLExchange(engine)) as two,
    ):
        add(one, "x", b"\x00\xff")
        with pytest.raises(ConfigurationError, match="fencelock_crdt is missing"):
            one.sync()
        exchange.create_table()
        exchange.create_table()
        for number in range(40):  # so many that some are replaced
            add(one, number)
            assert one.sync().sent
        assert two.sync().received
        assert one.value == two.value
        two.forget(one.id)
        assert {record.author for record in exchange.records("own")} == {two.id}
    assert not engine.pool.checkedout()  # type: ignore[attr-defined]
    engine.dispose()


def test_asynchronous_connections_are_refused() -> None:
    async def main(url: str) -> None:
        async with await psycopg.AsyncConnection.connect(url) as conn:
            with pytest.raises(ConfigurationError, match="is asynchronous: give a blocking one"):
                SQLExchange(conn)

    with start("postgres") as group:
        asyncio.run(main(group.url))


@pytest.mark.parametrize("server", ["redis", "valkey"])
def test_your_own_redis_client(server: str, tmp_path: Path) -> None:
    with start(server) as group:
        client = redis.Redis.from_url(group.url.replace("valkey:", "redis:"))
        with (
            Replica("own", ORSet, path=tmp_path / "one", exchange=RedisExchange(client)) as one,
            Replica("own", ORSet, path=tmp_path / "two", exchange=RedisExchange(client)) as two,
        ):
            add(one, "x")
            one.sync()
            two.sync()
            assert two.value.elements == {"x"}
            assert client.keys() == [b"fencelock:crdt:own"]
            client.flushall()
            add(two, "y")
            two.sync()
            one.sync()
            assert one.value.elements == {"x", "y"}
        client.ping()
        client.close()


def test_redis_cluster(tmp_path: Path) -> None:
    with start("cluster") as group:
        host, _, port = group.members[0].address.rpartition(":")
        client = redis.RedisCluster(host=host, port=int(port))
        with (
            Replica("own", ORSet, path=tmp_path / "one", exchange=RedisExchange(client)) as one,
            Replica("own", ORSet, path=tmp_path / "two", exchange=RedisExchange(client)) as two,
        ):
            for number in range(40):
                add(one, number)
                one.sync()
            two.sync()
            assert two.value == one.value
        client.close()
