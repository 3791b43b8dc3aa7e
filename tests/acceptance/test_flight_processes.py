"""Single flight among real processes: 1,000 callers in 8 of them, one killed, one paused.

`FENCELOCK_ROUNDS=5` does each of them so many times, in every flavour and on every store.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from crew import PATIENCE, Crew, Member, sqlite_url, stop_between_steps, wait_until
from tools.servers import start

from fencelock import AsyncClient, Client
from fencelock.flight import AsyncFlight, Flight
from fencelock.runtime.blocking import run
from fencelock.testing import boottime, pause, resume

ROUNDS = int(os.environ.get("FENCELOCK_ROUNDS", "1"))
IS_FULL = ROUNDS > 1
PROCESSES, EACH = 8, 125
LOCK_TTL = 1.0
HITS = 50
SLACK = 10.0
"""Seconds beyond the ttl that a busy machine may take until the next one computes."""
FLAVOURS = ["blocking", "asyncio"]
CROWDS = [(kind, flavour) for kind in ("redis", "sqlite") for flavour in FLAVOURS]
OTHERS = [(kind, flavour) for kind in ("valkey", "sentinel", "cluster") for flavour in FLAVOURS]
CROWDS += OTHERS if IS_FULL else []
FAULTS = CROWDS if IS_FULL else [("redis", "asyncio"), ("sqlite", "blocking")]


class Floor:
    """Stores, and a crowd on each, started when first asked for."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self._crew = stack.enter_context(Crew())
        self._urls = {"sqlite": sqlite_url(folder), "memory": "memory://"}
        self._crowds: dict[str, Member] = {}

    def url(self, kind: str) -> str:
        if kind not in self._urls:
            self._urls[kind] = str(self._stack.enter_context(start(kind)).url)
        return self._urls[kind]

    def crowd(
        self, kind: str, flavour: str, key: str, processes: int, each: int, *, stale: float = 0
    ) -> dict[str, int]:
        """Let many ask at once; return how many got which value."""
        if kind not in self._crowds:
            self._crowds[kind] = self._crew.start("flight_crowd", self.url(kind), self.folder / f"{kind}.txt")
            assert self._crowds[kind].hear()["ready"]
        self._crowds[kind].tell(json.dumps([flavour, key, stale, processes, each]))
        results: dict[str, int] = self._crowds[kind].hear(180)["results"]
        return results

    def computed(self, kind: str, key: str) -> int:
        return (self.folder / f"{kind}.txt").read_text().splitlines().count(key)


@pytest.fixture(scope="module")
def floor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Floor]:
    with ExitStack() as stack:
        yield Floor(tmp_path_factory.mktemp("flight"), stack)


@pytest.mark.parametrize(("kind", "flavour"), CROWDS)
def test_1000_callers_in_8_processes_compute_once(floor: Floor, kind: str, flavour: str) -> None:
    for number in range(ROUNDS):
        key = f"{flavour}-{number}"
        (got,) = floor.crowd(kind, flavour, key, PROCESSES, EACH).items()
        assert got == (got[0], PROCESSES * EACH) and got[0].startswith(key)
        assert floor.computed(kind, key) == 1
        with Client(floor.url(kind)) as locks:
            assert locks.list() == []


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_1000_callers_in_one_process_compute_once_in_memory(floor: Floor, flavour: str) -> None:
    (got,) = floor.crowd("memory", flavour, flavour, 1, PROCESSES * EACH).items()
    assert got[1] == PROCESSES * EACH
    assert floor.computed("memory", flavour) == 1


def test_8_processes_refresh_a_stale_value_once(floor: Floor) -> None:
    """Nobody waits: whoever comes before it is refreshed has the old value, and one of them all computes."""
    with Client(floor.url("redis")) as locks, Flight(locks) as flight:
        for number in range(ROUNDS):
            key = f"stale-{number}"
            flight.put(key, "old", 0.001, stale=600)
            wait_until(lambda key=key: is_stale(flight, key), "it has expired")
            results = floor.crowd("redis", "blocking", key, PROCESSES, 20, stale=600)
            assert results.pop("old") >= 1
            assert len(results) <= 1 and all(value.startswith(key) for value in results)
            assert floor.computed("redis", key) == 1


def is_stale(flight: Flight, key: str) -> bool:
    kept = run(flight._place.look(key))
    assert kept is not None
    return kept.left <= 0


def computer(crew: Crew, flavour: str, url: str, key: str, value: str) -> Member:
    member = crew.start("flight_computer", flavour, url, key, value, LOCK_TTL, name=value)
    assert member.hear()["ready"]
    return member


def queue(locks: Client, key: str) -> tuple[int, int]:
    state = locks.inspect(f"flight:{key}")
    return len(state.holders), len(state.waiters)


@pytest.mark.parametrize(("kind", "flavour"), FAULTS)
def test_a_computing_process_is_killed(floor: Floor, crew: Crew, kind: str, flavour: str) -> None:
    """The others are delayed by its ttl at most, then one of them computes, and all have its value."""
    url = floor.url(kind)
    with Client(url) as locks:
        for number in range(ROUNDS):
            key = f"killed-{flavour}-{number}"
            first, *others = [computer(crew, flavour, url, key, f"value {n}") for n in range(3)]
            first.tell()
            assert first.hear()["computing"] == "value 0"
            for count, other in enumerate(others, 1):
                other.tell()
                wait_until(lambda key=key, count=count: queue(locks, key) == (1, count), f"{count} wait")
            killed_at = boottime()
            first.signal(signal.SIGKILL)
            taken = others[0].hear()  # first come, first served
            assert taken["computing"] == "value 1"
            delay = taken["at"] - killed_at
            print(f"{kind}, {flavour}: killed, and {delay:.2f}s later the next computes (ttl {LOCK_TTL:g}s)")
            assert delay <= LOCK_TTL + SLACK
            others[0].tell()
            assert [other.hear()["got"] for other in others] == ["value 1"] * 2
            assert [other.end() for other in others] == [0, 0]
            assert locks.list() == []


@pytest.mark.parametrize(("kind", "flavour"), FAULTS)
def test_a_computing_process_is_paused(floor: Floor, crew: Crew, kind: str, flavour: str) -> None:
    """It was overtaken when it wakes up: what it computed does not replace what is newer."""
    url = floor.url(kind)
    with Client(url) as locks, Flight(locks) as flight:
        for number in range(ROUNDS):
            key = f"paused-{flavour}-{number}"
            sleeper, other = (computer(crew, flavour, url, key, value) for value in ("old", "new"))
            sleeper.tell()
            assert sleeper.hear()["computing"] == "old"
            if kind == "sqlite":
                stop_between_steps(sleeper.pid, floor.folder / "locks.db")
            else:
                pause(sleeper.pid)
            other.tell()
            assert other.hear()["computing"] == "new"
            other.tell()
            assert other.hear()["got"] == "new"
            sleeper.tell()
            resume(sleeper.pid)
            assert sleeper.hear()["got"] == "old", "who asked it gets what it computed"
            assert flight.get(key, lambda: "computed again", 600) == "new"
            assert (sleeper.end(), other.end()) == (0, 0)
            wait_until(lambda: locks.list() == [], "nobody holds anything", PATIENCE)


def test_values_on_redis_with_locks_elsewhere(floor: Floor, tmp_path: Path) -> None:
    """By a URL, and by a client of redis-py that decodes what it reads."""
    import redis

    url = floor.url("redis")
    calls: list[Any] = []
    with Client(sqlite_url(tmp_path)) as locks, redis.Redis.from_url(url, decode_responses=True) as client:
        for number, store in enumerate((url, client)):
            with Flight(locks, store, codec="bytes") as flight:
                for _ in range(2):
                    assert flight.get("raw", lambda: calls.append(None) or b"\xff\n\0", 60) == b"\xff\n\0"
                assert len(calls) == 1, "the second one finds what the first has kept"
                if number:
                    client.script_flush()
                    assert flight.forget("raw") is True
                    assert flight.forget("raw") is False
        assert not client.keys("fencelock:flight*raw")


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_hit_is_one_round_trip(floor: Floor, flavour: str) -> None:
    import redis

    async def with_tasks(url: str) -> None:
        async def compute() -> int:
            return 1

        async with AsyncClient(url) as locks, AsyncFlight(locks) as flight:
            await flight.get("k", compute, 60, stale=60)
            await flight.get("k", compute, 60, stale=60)  # now the server knows the script
            client.config_resetstat()
            for _ in range(HITS):
                assert await flight.get("k", compute, 60, stale=60, early=1) == 1

    with redis.Redis.from_url(floor.url("redis")) as client:
        if flavour == "asyncio":
            asyncio.run(with_tasks(floor.url("redis")))
        else:
            with Client(floor.url("redis")) as locks, Flight(locks) as flight:
                for _ in range(2):  # then the server knows the script
                    flight.get("k", lambda: 1, 60, stale=60)
                client.config_resetstat()
                for _ in range(HITS):
                    assert flight.get("k", lambda: 1, 60, stale=60, early=1) == 1
        asked: Any = client.info("commandstats")
    calls = {name.removeprefix("cmdstat_"): told["calls"] for name, told in asked.items()}
    inside = {"get": HITS, "pttl": HITS}  # what the script calls
    assert {name: count for name, count in calls.items() if not name.startswith("config")} == {
        "evalsha": HITS,
        **inside,
    }


def test_nothing_is_left_on_redis(floor: Floor) -> None:
    """Records have an expiry, and so have claims; a claim goes with the computation."""
    import redis

    with redis.Redis.from_url(floor.url("redis")) as client, Client(floor.url("redis")) as locks:
        client.flushall()
        with Flight(locks) as flight:
            for number in range(20):
                flight.get(f"k{number}", lambda: 1, 0.05, stale=0.05)
            with pytest.raises(ZeroDivisionError):
                flight.get("failed", lambda: 1 // 0, 60)
            assert not client.keys("fencelock:flight-claim:*")
            ages = [client.pttl(key) for key in client.keys("fencelock:flight:*")]
            assert all(age > 0 or age == -2 for age in ages)
            wait_until(lambda: not client.keys("fencelock:flight*"), "all have expired")
            flight.get("k", lambda: client.keys("fencelock:flight-claim:*") and 1, 60)
            assert 60_000 >= client.pttl(client.keys("fencelock:flight:*")[0]) > 0
