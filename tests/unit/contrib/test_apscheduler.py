"""APScheduler's executors, asked as a scheduler asks them."""

from __future__ import annotations

import asyncio
import datetime
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED, EVENT_JOB_MISSED
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.background import BackgroundScheduler

from fencelock import AsyncClient, Client, ConfigurationError, LeaseLost
from fencelock.backends.memory import MemoryBackend
from fencelock.contrib.apscheduler import OnceAsyncIOExecutor, OnceThreadPoolExecutor, current_lease
from fencelock.idempotency import AsyncStore, Store, create_table

ALL = EVENT_JOB_EXECUTED | EVENT_JOB_ERROR | EVENT_JOB_MISSED
PATIENCE = 30.0
NOW = datetime.datetime.now(datetime.UTC).replace(microsecond=0)


@pytest.fixture
def connect(tmp_path: Path) -> Callable[[], sqlite3.Connection]:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "runs.db", timeout=30)

    conn = connect()
    create_table(conn)
    conn.commit()
    conn.close()
    return connect


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite://{tmp_path}/locks.db"


class Hosts:
    """Schedulers of several hosts on threads, and what they have reported."""

    def __init__(
        self, url: str, connect: Callable[[], sqlite3.Connection], hosts: int = 1, **terms: Any
    ) -> None:
        self.events: list[Any] = []
        self._heard = threading.Condition()
        self._clients = [Client(url) for _ in range(hosts)]
        self.schedulers = []
        for locks in self._clients:
            executor = OnceThreadPoolExecutor(
                locks, Store(connect, ttl=1), **{"ttl": 5, "timeout": 20, **terms}
            )
            scheduler = BackgroundScheduler(executors={"default": executor}, timezone="UTC")
            scheduler.add_listener(self._hear, ALL)
            scheduler.start()
            self.schedulers.append(scheduler)

    def _hear(self, event: Any) -> None:
        with self._heard:
            self.events.append(event)
            self._heard.notify_all()

    def add(
        self, function: Callable[..., Any], *, due: Any = NOW, name: str | None = "job", **options: Any
    ) -> None:
        for scheduler in self.schedulers:
            options = {"misfire_grace_time": 3600, "id": name, **options}
            scheduler.add_job(function, "date", run_date=due, **options)

    def heard(self, number: int = 1) -> list[Any]:
        with self._heard:
            assert self._heard.wait_for(lambda: len(self.events) >= number, PATIENCE), self.events
            return list(self.events)

    def close(self) -> None:
        for scheduler in self.schedulers:
            scheduler.shutdown()
        for client in self._clients:
            client.close()


@pytest.fixture
def hosts(url: str, connect: Any) -> Iterator[Callable[..., Hosts]]:
    made: list[Hosts] = []

    def make(number: int = 1, **terms: Any) -> Hosts:
        made.append(Hosts(url, connect, number, **terms))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_three_hosts_one_run_and_the_others_say_nothing(hosts: Any) -> None:
    ran: list[int] = []
    here = hosts(3)
    here.add(lambda: ran.append(current_lease().token) or "result")
    event = here.heard()[0]
    here.close()
    assert (event.code, event.retval, event.scheduled_run_time) == (EVENT_JOB_EXECUTED, "result", NOW)
    assert len(ran) == len(here.events) == 1
    here.schedulers.clear()


def test_a_job_that_raises_has_been_run(hosts: Any) -> None:
    ran: list[int] = []

    def fails() -> None:
        ran.append(1)
        raise KeyError("of the job")

    here = hosts(2)
    here.add(fails)
    event = here.heard()[0]
    here.close()
    here.schedulers.clear()
    assert event.code == EVENT_JOB_ERROR and isinstance(event.exception, KeyError)
    assert ran == [1] and len(here.events) == 1


def test_other_times_and_other_jobs_are_other_runs(hosts: Any) -> None:
    ran: list[str] = []
    here = hosts(2)
    here.add(lambda: ran.append("a"))
    here.add(lambda: ran.append("b"), name="job:b")
    here.add(lambda: ran.append("later"), due=NOW + datetime.timedelta(seconds=1), name="job2")
    here.heard(3)
    assert sorted(ran) == ["a", "b", "later"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"name": None}, "was made up on this host: give add_job an id"),
        ({"due": NOW + datetime.timedelta(microseconds=1)}, "which is this host's own time: use cron"),
    ],
)
def test_what_cannot_be_the_same_on_all_hosts_is_refused(hosts: Any, given: Any, why: str) -> None:
    here = hosts()
    here.add(lambda: None, **given)
    event = here.heard()[0]
    assert event.code == EVENT_JOB_ERROR
    assert isinstance(event.exception, ConfigurationError) and why in str(event.exception)


def test_who_waits_too_long_for_another_host_has_missed_it(hosts: Any, url: str) -> None:
    here = hosts(timeout=0.1)
    with Client(url) as locks, locks.lock("apscheduler:job"):
        here.add(lambda: None)
        assert here.heard()[0].code == EVENT_JOB_MISSED


def test_a_run_that_is_late_here_is_left_to_others(hosts: Any) -> None:
    late = NOW - datetime.timedelta(hours=2)
    here, other = hosts(), hosts()
    here.add(lambda: None, due=late, misfire_grace_time=60)
    assert here.heard()[0].code == EVENT_JOB_MISSED
    other.add(lambda: None, due=late, misfire_grace_time=4 * 3600)
    assert other.heard()[0].code == EVENT_JOB_EXECUTED


def test_a_function_that_lost_its_lease_counts_if_nobody_took_over(hosts: Any, url: str) -> None:
    ran: list[str] = []

    def job() -> None:
        with Client(url) as locks:
            locks.force_release("apscheduler:job")
        assert current_lease().lost.wait(PATIENCE)
        ran.append("job")

    here = hosts(2, ttl=0.3)
    here.add(job)
    assert [event.code for event in here.heard()] == [EVENT_JOB_EXECUTED]
    here.close()
    here.schedulers.clear()
    assert len(here.events) == 1 and ran == ["job"]


def test_a_store_that_fails_is_an_error_of_the_job(hosts: Any, url: str) -> None:
    here = Hosts(url, lambda: sqlite3.connect("/nowhere/at/all.db"))
    try:
        here.add(lambda: None)
        assert here.heard()[0].code == EVENT_JOB_ERROR
    finally:
        here.close()


def test_bad_arguments_are_refused_at_once(url: str, connect: Any) -> None:
    with Client(url) as locks:
        with pytest.raises(ConfigurationError, match="give a Client and a Store"):
            OnceThreadPoolExecutor(locks, connect)
        with pytest.raises(ConfigurationError, match="give an AsyncClient and an AsyncStore"):
            OnceAsyncIOExecutor(locks, Store(connect))  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="ttl"):
            OnceThreadPoolExecutor(locks, Store(connect), ttl=-1)


# Asyncio --------------------------------------------------------------------------------------


async def on_hosts(url: Any, connect: Any, story: Callable[[Any, list[Any]], Any], **terms: Any) -> None:
    async with AsyncClient(url) as locks, asyncio.timeout(2 * PATIENCE):
        store = AsyncStore(connect, threads=True, ttl=1)
        executors = [
            OnceAsyncIOExecutor(locks, store, **{"ttl": 5, "timeout": 20, **terms}) for _ in range(2)
        ]
        events: list[Any] = []
        schedulers = []
        for executor in executors:
            scheduler = AsyncIOScheduler(executors={"default": executor}, timezone="UTC")
            scheduler.add_listener(events.append, ALL)
            scheduler.start()
            schedulers.append(scheduler)

        def add(function: Any) -> None:
            for scheduler in schedulers:
                scheduler.add_job(function, "date", run_date=NOW, misfire_grace_time=3600, id="job")

        try:
            await story(add, events)
            while any(executor._pending_futures for executor in executors):
                await asyncio.sleep(0.005)
        finally:
            for scheduler in schedulers:
                scheduler.shutdown()


@pytest.mark.parametrize("sort", ["coroutine", "function"])
def test_two_hosts_on_a_loop_one_run(sort: str, connect: Any) -> None:
    ran: list[Any] = []

    async def coroutine() -> None:
        await asyncio.sleep(0.01)
        ran.append(current_lease().token)

    def function() -> None:
        ran.append((current_lease().token, threading.current_thread() is threading.main_thread()))

    async def story(add: Any, events: list[Any]) -> None:
        add(coroutine if sort == "coroutine" else function)
        while not events:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.1)
        assert [event.code for event in events] == [EVENT_JOB_EXECUTED]

    asyncio.run(on_hosts(MemoryBackend(), connect, story))
    assert len(ran) == 1
    assert sort == "coroutine" or ran[0][1] is False


def test_a_coroutine_that_lost_its_lease_is_cancelled_and_another_host_does_it(
    connect: Any, url: str
) -> None:
    ran: list[str] = []

    async def job() -> None:
        ran.append("begun")
        if len(ran) == 1:
            async with AsyncClient(url) as locks:
                await locks.force_release("apscheduler:job")
            await asyncio.sleep(PATIENCE)
        ran.append("done")

    async def story(add: Any, events: list[Any]) -> None:
        add(job)
        while len(events) < 2:
            await asyncio.sleep(0.005)
        codes = {event.code: event for event in events}
        assert set(codes) == {EVENT_JOB_ERROR, EVENT_JOB_EXECUTED}
        assert isinstance(codes[EVENT_JOB_ERROR].exception, LeaseLost | asyncio.CancelledError)

    asyncio.run(on_hosts(url, connect, story, ttl=0.5))
    assert ran == ["begun", "begun", "done"]
