"""Records on every kind of store, by both flavours: versions, catching up, the users' own connections.

`FENCELOCK_SECONDS=60` has Consul, ZooKeeper and Valkey too.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tools.servers import start
from workers.databases import connected, connected_async

from fencelock import AsyncClient, Client
from fencelock.runtime.blocking import run
from fencelock.schedule import AsyncSchedule, Schedule, create_table

IS_FULL = float(os.environ.get("FENCELOCK_SECONDS", "6")) > 6
KINDS = ["sqlite", "redis", "postgres", "mariadb", "etcd"]
KINDS += ["valkey", "consul", "zookeeper"] if IS_FULL else []
FLAVOURS = ["blocking", "asyncio"]
CLOCKLESS = {"etcd", "consul", "zookeeper"}
TTL = {"consul": 10.0, "etcd": 2.0, "zookeeper": 4.0}


class Floor:
    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._urls: dict[str, str] = {}

    def url(self, kind: str) -> str:
        if kind not in self._urls:
            if kind == "sqlite":
                self._urls[kind] = f"sqlite://{self._folder}/locks.db"
            else:
                self._urls[kind] = str(self._stack.enter_context(start(kind)).url)
        return self._urls[kind]


@pytest.fixture(scope="module")
def floor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Floor]:
    with ExitStack() as stack:
        yield Floor(tmp_path_factory.mktemp("schedule"), stack)


def played(flavour: str, url: str, namespace: str, **options: Any) -> list[int]:
    """Have a record that is ten ticks behind, run what is due, and return which ticks that was."""
    ttl = options.pop("ttl")
    make: Callable[[], Any] = options.pop("record", lambda: None)
    seen: list[int] = []
    now = int(time.time()) // 100 * 100
    wall = now + 99.0
    if flavour == "blocking":
        with Client(url, namespace=namespace) as locks, Schedule(locks, ttl=ttl, record=make()) as schedule:
            schedule._wall = lambda: wall
            schedule.every(100, name="job", **options)(lambda tick: seen.append(tick.instant - now))
            run(schedule._book.open("job", now - 1000))
            while schedule.tick("job") is not None:
                pass
            _judge(schedule.history("job"), seen, now)
        return seen

    async def main() -> None:
        record = make()
        async with (
            AsyncClient(url, namespace=namespace) as locks,
            AsyncSchedule(locks, ttl=ttl, record=record) as schedule,
        ):
            schedule._wall = lambda: wall

            @schedule.every(100, name="job", **options)
            async def job(tick: Any) -> None:
                seen.append(tick.instant - now)

            await schedule._book.open("job", now - 1000)
            while await schedule.tick("job") is not None:
                pass
            _judge(await schedule.history("job"), seen, now)
        if hasattr(record, "aclose"):
            await record.aclose()

    asyncio.run(main())
    return seen


def _judge(history: list[Any], seen: list[int], now: int) -> None:
    assert [run.tick - now for run in history] == seen[::-1]
    assert {run.state for run in history} <= {"done"}


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("kind", KINDS)
def test_missed_ticks_are_caught_up_with(floor: Floor, kind: str, flavour: str) -> None:
    url, ttl = floor.url(kind), TTL.get(kind, 5.0)
    for policy, expected in (("last", [0]), ("all", [-200, -100, 0]), ("none", [])):
        space = f"{flavour}-{policy}"
        found = played(flavour, url, space, ttl=ttl, catch_up=policy, catch_up_limit=3)
        assert found == expected, policy


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_failed_run_is_run_again_once(floor: Floor, kind: str, flavour: str) -> None:
    """Three callers ask for it: the first fails, the second runs it again, the third finds it done."""
    url, ttl = floor.url(kind), TTL.get(kind, 5.0)
    attempts: list[int] = []

    def work(tick: Any) -> None:
        attempts.append(tick.attempt)
        if tick.attempt == 1:
            raise ValueError("no paper")

    async def task(tick: Any) -> None:
        work(tick)

    def call() -> Any:
        if flavour == "blocking":
            with Client(url, namespace="again") as locks, Schedule(locks, ttl=ttl) as schedule:
                return schedule.once("blocking", work, per=86_400, retry_failed=True)

        async def main() -> Any:
            async with (
                AsyncClient(url, namespace="again") as locks,
                AsyncSchedule(locks, ttl=ttl) as schedule,
            ):
                return await schedule.once("asyncio", task, per=86_400, retry_failed=True)

        return asyncio.run(main())

    with pytest.raises(ValueError, match="no paper"):
        call()
    assert call().state == "done"
    assert call() is None
    assert attempts == [1, 2]


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_page_is_written_only_over_the_version_that_was_read(floor: Floor, kind: str, flavour: str) -> None:
    async def check(shelf: Any) -> None:
        first = await shelf.read("page")
        assert (first.text, first.version) == (None, 0)
        assert await shelf.write("page", "one", 0)
        assert not await shelf.write("page", "other", 0)
        page = await shelf.read("page")
        assert page.text == "one" and page.version > 0
        assert not await shelf.write("page", "late", page.version + 5)
        assert await shelf.write("page", "two – ü", page.version)
        assert not await shelf.write("page", "late", page.version)
        last = await shelf.read("page")
        assert last.text == "two – ü"
        assert (last.now is None) == (kind in CLOCKLESS)
        if last.now is not None:
            assert abs(last.now - time.time()) < 30 and last.now >= first.now
        await shelf.write("page", "", last.version)
        await shelf.close()

    from fencelock.schedule.shelves.base import page_id

    key = page_id("shelf", flavour, kind)
    if flavour == "blocking":
        with Client(floor.url(kind)) as locks:
            run(check(_named(Schedule(locks, ttl=TTL.get(kind, 5.0))._shelf, key)))
        return

    async def main() -> None:
        async with AsyncClient(floor.url(kind)) as locks:
            await check(_named(AsyncSchedule(locks, ttl=TTL.get(kind, 5.0))._shelf, key))

    asyncio.run(main())


def _named(shelf: Any, key: str) -> Any:
    """Return a shelf whose one page is under this key."""

    class Named:
        read = staticmethod(lambda _: shelf.read(key))
        write = staticmethod(lambda _, text, version: shelf.write(key, text, version))
        close = staticmethod(shelf.close)

    return Named


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("kind", ["postgres", "mariadb", "redis"])
def test_a_record_by_the_users_own_connection(floor: Floor, kind: str, flavour: str) -> None:
    url = floor.url(kind)
    if kind == "redis":
        import redis

        client = redis.asyncio.Redis if flavour == "asyncio" else redis.Redis
        record: Callable[[], Any] = lambda: client.from_url(url)  # noqa: E731
    else:
        conn = connected(url)
        create_table(conn)
        conn.commit()
        conn.close()
        connect = connected_async if flavour == "asyncio" else connected
        record = lambda: lambda: connect(url)  # noqa: E731
    space = f"own-{kind}-{flavour}"
    found = played(flavour, "memory://", space, ttl=5, record=record, catch_up="all", catch_up_limit=2)
    assert found == [-100, 0]
