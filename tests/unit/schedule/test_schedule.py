"""Schedules of both flavours, in memory and on SQLite: once, recorded, stopped in time, refused when late."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fencelock import AsyncClient, BackendUnavailable, Client, ConfigurationError
from fencelock.schedule import AsyncSchedule, Run, Schedule, Tick, create_table
from fencelock.schedule.shelves.base import MemoryShelf, Page

NOON = 1_800_000_000
"""A tick of every interval that is used here."""
PATIENCE = 30.0


class Desk:
    """A client and schedules of either flavour, used in the same way."""

    def __init__(self, flavour: str, url: str) -> None:
        self.is_async = flavour == "asyncio"
        self.runner = asyncio.Runner()
        self.locks: Any = AsyncClient(url) if self.is_async else Client(url)

    def schedule(self, **options: Any) -> Any:
        return AsyncSchedule(self.locks, **options) if self.is_async else Schedule(self.locks, **options)

    def function(self, body: Callable[..., Any]) -> Callable[..., Any]:
        async def as_task(tick: Any) -> Any:
            return await asyncio.to_thread(body, tick)

        return as_task if self.is_async else body

    def ask(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if not self.is_async:
            return function(*args, **options)

        async def wait() -> Any:
            return await function(*args, **options)

        return self.runner.run(wait())

    def close(self) -> None:
        self.ask(self.locks.close)
        self.runner.close()


@pytest.fixture(params=["blocking", "asyncio"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(request.param, f"sqlite://{tmp_path}/locks.db")
    yield desk
    desk.close()


@pytest.fixture(params=["blocking", "asyncio"])
def memory(request: pytest.FixtureRequest) -> Iterator[Desk]:
    desk = Desk(request.param, f"memory://{time.monotonic_ns()}")
    yield desk
    desk.close()


def begin_at(desk: Desk, schedule: Any, name: str, cursor: int) -> None:
    """Have a record whose last tick is this one, so that those after it are due."""
    desk.ask(schedule._book.open, name, cursor) if desk.is_async else _opened(schedule, name, cursor)


def _opened(schedule: Any, name: str, cursor: int) -> None:
    from fencelock.runtime.blocking import run

    run(schedule._book.open(name, cursor))


def due(desk: Desk, function: Callable[..., Any], **options: Any) -> Any:
    """Return a schedule that has one tick due now, of the job `job`."""
    schedule = desk.schedule(ttl=options.pop("ttl", 30))
    schedule.every(3600, name="job", **options)(desk.function(function))
    begin_at(desk, schedule, "job", int(time.time()) // 3600 * 3600 - 1)
    return schedule


def states(desk: Desk, schedule: Any) -> list[str]:
    return [run.state for run in desk.ask(schedule.history, "job")]


def test_a_tick_runs_once_and_is_recorded(desk: Desk) -> None:
    seen: list[Tick[Any]] = []
    schedule = due(desk, seen.append)
    run = desk.ask(schedule.tick, "job")
    assert isinstance(run, Run) and run.state == "done" and run.attempt == 1 and run.detail == ""
    assert run.ended is not None and run.ended >= run.started and run.host.endswith(f":{os.getpid()}")
    assert desk.ask(schedule.tick, "job") is None
    (tick,) = seen
    assert (tick.name, tick.instant, tick.token) == ("job", run.tick, run.token)
    assert tick.at.timestamp() == tick.instant
    assert desk.ask(schedule.history, "job") == [run]
    assert desk.ask(schedule.history, "other") == []
    assert desk.ask(schedule.names) == ["job"]
    assert desk.ask(desk.locks.list) == [], "the lock is free"


def test_a_new_schedule_does_not_run_for_the_past(desk: Desk) -> None:
    schedule = desk.schedule()
    schedule.every(3600, name="job")(desk.function(lambda tick: None))
    assert desk.ask(schedule.tick, "job") is None
    assert desk.ask(schedule.history, "job") == []


def test_once_in_each_period(desk: Desk) -> None:
    seen: list[int] = []
    first, second = desk.schedule(), desk.schedule()
    function = desk.function(lambda tick: seen.append(tick.instant))
    assert desk.ask(first.once, "job", function, per=86_400).state == "done"
    assert desk.ask(second.once, "job", function, per=86_400) is None
    assert seen == [int(time.time()) // 86_400 * 86_400]
    second._wall = lambda: time.time() - 86_400
    assert desk.ask(second.once, "job", function, per=86_400) is None, "a clock of yesterday"


def test_a_failed_run_of_a_period_is_run_again_on_demand(desk: Desk) -> None:
    attempts: list[int] = []

    def second_time_lucky(tick: Any) -> None:
        attempts.append(tick.attempt)
        if tick.attempt == 1:
            raise ValueError("no paper")

    schedule = desk.schedule()
    function = desk.function(second_time_lucky)
    with pytest.raises(ValueError, match="no paper"):
        desk.ask(schedule.once, "job", function, per=86_400, retry_failed=True)
    assert desk.ask(schedule.once, "job", function, per=86_400) is None, "nobody has asked for it"
    failed = desk.ask(schedule.history, "job")[0]
    assert failed.has_failed and failed.exit_status is None
    run = desk.ask(schedule.once, "job", function, per=86_400, retry_failed=True)
    assert (run.state, run.attempt, run.tick, run.has_failed) == ("done", 2, failed.tick, False)
    assert desk.ask(schedule.once, "job", function, per=86_400, retry_failed=True) is None, "it ended well"
    assert attempts == [1, 2]


def test_an_error_is_recorded_and_passes(desk: Desk) -> None:
    def fail(tick: Any) -> None:
        raise ValueError("no paper")

    schedule = due(desk, fail)
    with pytest.raises(ValueError, match="no paper"):
        desk.ask(schedule.tick, "job")
    (run,) = desk.ask(schedule.history, "job")
    assert (run.state, run.detail) == ("failed", "ValueError: no paper")
    assert desk.ask(schedule.tick, "job") is None


def test_the_time_of_a_blocking_job_is_over(tmp_path: Path) -> None:
    """It is told by its lease, the record says so at once, and the lock is kept until it has ended."""
    desk = Desk("blocking", f"sqlite://{tmp_path}/locks.db")
    found: list[Any] = []

    def slow(tick: Tick[Any]) -> None:
        assert tick.lease.lost.wait(PATIENCE)
        found.extend(states(desk, schedule))
        found.append(desk.locks.inspect("schedule:job").is_free)

    schedule = due(desk, slow, at_most_for=0.2)
    run = schedule.tick("job")
    assert run.state == "timed out" and run.detail == "at_most_for of 0.2s is over"
    assert found == ["timed out", False]
    assert desk.locks.list() == [], "the lock is free"
    assert schedule.tick("job") is None, "it is not run again"
    desk.close()


def test_the_time_of_a_task_is_over(tmp_path: Path) -> None:
    desk = Desk("asyncio", f"sqlite://{tmp_path}/locks.db")
    ended: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.sleep(PATIENCE)
        finally:
            ended.append("cancelled")

    schedule = desk.schedule()
    schedule.every(3600, name="job", at_most_for=0.2)(slow)
    begin_at(desk, schedule, "job", int(time.time()) // 3600 * 3600 - 1)
    assert desk.ask(schedule.tick, "job").state == "timed out"
    assert ended == ["cancelled"]
    assert desk.ask(desk.locks.list) == []
    desk.close()


def test_who_was_overtaken_cannot_write_the_record(desk: Desk, tmp_path: Path) -> None:
    """The lock is broken in the middle of a tick; the next holder takes it for a crash."""
    with Client(f"sqlite://{tmp_path}/locks.db") as locks, Schedule(locks) as other:
        other.every(3600, name="job", at_most_for=3600)(lambda: None)

        def slow(tick: Any) -> None:
            locks.force_release("schedule:job")
            assert other.tick("job") is None, "at_most_for has not passed"

        schedule = due(desk, slow, at_most_for=3600)
        assert desk.ask(schedule.tick, "job") is None, "its record was refused"
        (run,) = other.history("job")
        assert (run.state, run.attempt) == ("crashed", 1)
        later = Schedule(locks)
        later.every(3600, name="job", at_most_for=3)(lambda: None)
        give_up = time.monotonic() + PATIENCE
        while (again := later.tick("job")) is None and time.monotonic() < give_up:
            time.sleep(0.05)
        assert again is not None and again.started - run.started >= 3
        assert (again.state, again.attempt, again.tick) == ("done", 2, run.tick)
        assert [each.state for each in other.history("job")] == ["done", "crashed"]


def test_the_lock_is_kept_at_least_so_long(memory: Desk) -> None:
    began = time.monotonic()
    schedule = due(memory, lambda tick: None, at_least_for=0.4)
    assert memory.ask(schedule.tick, "job").state == "done"
    assert time.monotonic() - began >= 0.4
    assert memory.ask(memory.locks.list) == []


@pytest.mark.parametrize("policy", ["last", "all", "none"])
def test_catching_up(memory: Desk, policy: str) -> None:
    seen: list[int] = []
    schedule = memory.schedule()
    function = memory.function(lambda tick: seen.append(tick.instant))
    schedule.every(100, name="job", catch_up=policy, catch_up_limit=4)(function)
    now = int(time.time()) // 100 * 100
    schedule._wall = lambda: now + 99.0  # a tick of 99 s ago is no new one
    begin_at(memory, schedule, "job", now - 1000)
    while memory.ask(schedule.tick, "job") is not None:
        pass
    expected = {"last": [now], "all": [now - 300, now - 200, now - 100, now], "none": []}
    assert seen == expected[policy]


def test_it_runs_until_it_is_stopped(memory: Desk) -> None:
    """Several jobs, one of which fails, and one that takes the rest of the time."""
    schedule = memory.schedule()
    seen: list[tuple[str, int]] = []
    ended = threading.Event()

    def job(tick: Any) -> None:
        seen.append((tick.name, tick.instant))
        if len(seen) >= 5:
            memory.runner.get_loop().call_soon_threadsafe(
                schedule.stop
            ) if memory.is_async else schedule.stop()
        if tick.name == "fails":
            raise ValueError("no")

    def long(tick: Any) -> None:
        while len(seen) < 5:
            time.sleep(0.01)
        ended.set()

    for name, function in (("works", job), ("fails", job), ("long", long)):
        schedule.every(1, name=name, jitter=0.01)(memory.function(function))
    memory.ask(schedule.run)
    assert ended.is_set(), "what is under way is waited for"
    assert len(set(seen)) == len(seen)
    assert {name for name, _ in seen} == {"works", "fails"}
    memory.ask(schedule.run)  # a schedule that was stopped stays so


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it(memory: Desk, signum: int) -> None:
    before = signal.getsignal(signum)
    schedule = memory.schedule()
    schedule.every(1, name="job")(memory.function(lambda tick: os.kill(os.getpid(), signum)))
    memory.ask(schedule.run)
    assert signal.getsignal(signum) is before
    assert states(memory, schedule)[0] == "done"


def test_a_run_that_is_cancelled_is_recorded() -> None:
    desk = Desk("asyncio", f"memory://{time.monotonic_ns()}")
    schedule = desk.schedule()
    begun = threading.Event()

    @schedule.every(1, name="job")  # type: ignore[untyped-decorator]
    async def job() -> None:
        begun.set()
        await asyncio.sleep(PATIENCE)

    async def main() -> None:
        task = asyncio.create_task(schedule.run())
        while not begun.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    desk.runner.run(main())
    assert states(desk, schedule) == ["crashed"]
    assert desk.ask(desk.locks.list) == []
    desk.close()


class Shaky(MemoryShelf):
    """A store whose answers get lost: before or after it has done what was asked."""

    def __init__(self, plan: list[str]) -> None:
        super().__init__(self)
        self.plan = plan

    async def read(self, key: str) -> Page:
        if self.plan and self.plan[0] == "read":
            self.plan.pop(0)
            raise BackendUnavailable(backend="shaky", detail="away")
        return await super().read(key)

    async def write(self, key: str, text: str, version: int) -> bool:
        trouble = self.plan.pop(0) if self.plan and self.plan[0] != "read" else ""
        if trouble == "before":
            raise BackendUnavailable(backend="shaky", detail="away")
        done = await super().write(key, text, version)
        if trouble == "after":
            raise BackendUnavailable(backend="shaky", detail="no answer")
        return done


@pytest.mark.parametrize(
    "plan", [["read"], ["before"], ["after"], ["", "before"], ["", "after"], ["read", "read"]]
)
def test_a_store_that_is_away_is_waited_for(memory: Desk, plan: list[str]) -> None:
    """Whatever gets lost around begin and end: the tick runs once, or is taken for a crash, never twice."""
    seen: list[int] = []
    schedule = memory.schedule()
    schedule._shelf = schedule._book.shelf = Shaky([])

    def job(tick: Any) -> None:
        seen.append(tick.instant)
        if len(seen) >= 2:
            memory.runner.get_loop().call_soon_threadsafe(
                schedule.stop
            ) if memory.is_async else schedule.stop()

    schedule.every(1, name="job", catch_up="all")(memory.function(job))
    memory.ask(schedule.tick, "job")
    schedule._shelf.plan = plan
    memory.ask(schedule.run)
    assert len(set(seen)) == len(seen) >= 2
    assert set(states(memory, schedule)) == {"done"}
    assert schedule._shelf.plan == []


def test_a_record_in_a_database_of_ones_own(memory: Desk, tmp_path: Path) -> None:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "own.db", timeout=30)

    options: dict[str, Any] = {"threads": True} if memory.is_async else {}
    schedule = memory.schedule(record=connect, **options)
    function = memory.function(lambda tick: None)
    assert memory.ask(schedule.once, "job", function, per=86_400).state == "done"
    assert memory.ask(memory.schedule(record=connect, **options).once, "job", function, per=86_400) is None
    with connect() as conn:
        create_table(conn)  # it is there already
        assert conn.execute("SELECT count(*) FROM fencelock_schedule").fetchone() == (2,)
    conn.close()
    url = memory.schedule(record=f"sqlite://{tmp_path}/locks.db")
    assert memory.ask(url.once, "job", function, per=86_400).state == "done"


def test_closing_a_schedule_closes_the_file_of_its_record(memory: Desk, tmp_path: Path) -> None:
    file = tmp_path / "locks.db"
    schedule = memory.schedule(record=f"sqlite://{file}")
    function = memory.function(lambda tick: None)
    for name in ("one", "again"):
        assert memory.ask(schedule.once, name, function, per=86_400).state == "done"
        assert open_copies(file) > 0
        memory.ask(schedule.close)
        assert open_copies(file) == 0


def open_copies(file: Path) -> int:
    """Return how many descriptors of this process are of a file, or of what SQLite keeps beside it."""
    links = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            links.append(str(descriptor.readlink()))
    return sum(link.startswith(str(file)) for link in links)


def test_namespaces_are_apart(tmp_path: Path) -> None:
    for namespace in ("", "a", "b"):
        with (
            Client(f"sqlite://{tmp_path}/locks.db", namespace=namespace) as locks,
            Schedule(locks) as schedule,
        ):
            assert schedule.once("job", lambda: None, per=86_400) is not None
            assert schedule.names() == ["job"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"name": ""}, "name=''"),
        ({"name": "x" * 510}, "hash the long part"),
        ({"name": "a", "at_most_for": 1, "at_least_for": 1}, "is not longer than at_least_for=1"),
        ({"name": "a", "at_most_for": 0}, "is not longer"),
        ({"name": "a", "catch_up": "some"}, "catch_up='some' is not known: write last or all or none"),
        ({"name": "a", "after_crash": "no"}, "after_crash='no'"),
        ({"name": "a", "catch_up_limit": 0}, "catch_up_limit=0"),
        ({"name": "a", "jitter": -1}, "jitter=-1"),
        ({"name": "taken"}, "name='taken' is taken"),
    ],
)
def test_what_is_refused(memory: Desk, options: dict[str, Any], told: str) -> None:
    schedule = memory.schedule()
    schedule.every(1, name="taken")(memory.function(lambda tick: None))
    with pytest.raises(ConfigurationError) as caught:
        schedule.every(1, **options)
    assert told in str(caught.value)
    with pytest.raises(ConfigurationError, match="no schedule here: there is 'taken'"):
        memory.ask(schedule.tick, "other")


def test_what_else_is_refused(memory: Desk) -> None:
    schedule = memory.schedule()
    other = (lambda tick: None) if memory.is_async else Desk("asyncio", "memory://").function(print)
    with pytest.raises(ConfigurationError, match="is of the other flavour"):
        schedule.every(1, name="a")(other)
    with pytest.raises(ConfigurationError, match="is not a function"):
        schedule.every(1, name="a")(5)
    with pytest.raises(ConfigurationError, match="timezone="):
        memory.schedule(timezone="Mars/Olympus")
    with pytest.raises(ConfigurationError, match="ttl="):
        memory.schedule(ttl=0)
    for record in (5, object()):
        with pytest.raises(ConfigurationError, match=r"record=.* is no URL"):
            memory.schedule(record=record)
    with pytest.raises(ConfigurationError, match="has no one place for the record"):
        memory.schedule(record="redlock://a,b,c")
    wanted = "an AsyncClient" if memory.is_async else "a Client"
    kind = AsyncSchedule if memory.is_async else Schedule
    with pytest.raises(ConfigurationError, match=f"is not {wanted}"):
        kind("memory://")  # type: ignore[arg-type]


def test_a_function_takes_the_tick_or_nothing() -> None:
    with Client("memory://functions") as locks:
        schedule = Schedule(locks)
        schedule.every(1, name="none")(lambda: None)
        schedule.every(1, name="default")(lambda tick=None: None)
        with pytest.raises(ConfigurationError, match="must take one argument, the tick, or none"):
            schedule.every(1, name="two")(lambda tick, more: None)
    assert repr(schedule) == "<Schedule none, default>"


def test_both_flavours_take_the_same() -> None:
    names = {name for name in dir(Schedule) if not name.startswith("_")}
    assert names == {name for name in dir(AsyncSchedule) if not name.startswith("_")}
    for name in names:
        ours, theirs = (inspect.signature(getattr(kind, name)) for kind in (Schedule, AsyncSchedule))
        assert list(ours.parameters) == list(theirs.parameters), name


def test_what_cannot_be_mended_ends_the_run(memory: Desk) -> None:
    """A store that cannot be used at all is no reason to try for ever; what is under way comes to its end."""
    schedule = memory.schedule()
    ended: list[int] = []

    class Gone(MemoryShelf):
        async def read(self, key: str) -> Page:
            if key == schedule._book._key("fails") and begun.is_set():
                raise BackendUnavailable(backend="gone", detail="no such place", transient=False)
            return await super().read(key)

    begun = threading.Event()

    def long(tick: Any) -> None:
        begun.set()
        time.sleep(1.5)
        ended.append(tick.instant)

    schedule._shelf = schedule._book.shelf = Gone(schedule)
    schedule.every(1, name="long")(memory.function(long))
    schedule.every(1, name="fails")(memory.function(lambda tick: None))
    with pytest.raises(BackendUnavailable, match="no such place"):
        memory.ask(schedule.run)
    assert ended
