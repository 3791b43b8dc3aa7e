"""What a flight adds to reading a value, and what a miss costs.

A hit needs the value and the time it has left. The least that takes is one GET by a client that knows
nothing of time. Beside it: GET and PTTL in one pipeline, which is what a cache by hand would send, the two in
turn, and a script that does both. A flight sends one script, over the locks' own wire or over a client of
redis-py; if it took two round trips it would be as slow as the two commands in turn.

On SQLite the least is a SELECT on a connection that is open. A miss is beside what a careful cache by hand
does on Redis: look, take a lock (SET NX), look again, write, give the lock back if it is ours (a script).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import redis
from redis.asyncio import Redis as AsyncRedis
from tools.servers import start

from bench.measure import Contestant, Figure, Result, Run, Suite, interleave, timed
from bench.suites.targets import named, ratio
from bench.verdict import Verdict
from fencelock import AsyncClient, Client
from fencelock.flight import AsyncFlight, Flight

__all__ = ["SUITE"]

ROUNDS, COUNT = 15, 1000
VALUE = {"user": 42, "name": "somebody", "rights": ["read", "write"], "since": "2024-01-01"}
TEXT = json.dumps(VALUE)
BOTH = "return {redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])}"
RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
GET, PIPELINED, TWO, SCRIPT = "GET", "GET and PTTL, pipelined", "GET, then PTTL", "both in a script"
OURS, OVER_CLIENT, BY_HAND = "Flight.get", "Flight.get over redis-py", "by hand: 5 commands"
SELECT = "SELECT"

Prepare = Callable[[], AbstractContextManager[Run]]


def never() -> Any:
    raise AssertionError("a hit was expected")


async def never_async() -> Any:
    never()


# Hits on Redis ------------------------------------------------------------------------------


def with_client(url: str, step: Callable[[Any], object]) -> Prepare:
    @contextlib.contextmanager
    def prepare() -> Iterator[Run]:
        with redis.Redis.from_url(url) as client:
            client.set("value", TEXT, ex=3600)
            yield timed(lambda: step(client))

    return prepare


def pipelined(client: Any) -> Any:
    with client.pipeline(transaction=False) as pipe:
        pipe.get("value")
        pipe.pttl("value")
        return json.loads(pipe.execute()[0])


def in_turn(client: Any) -> Any:
    value = client.get("value")
    client.pttl("value")
    return json.loads(value)


def scripted(url: str) -> Prepare:
    @contextlib.contextmanager
    def prepare() -> Iterator[Run]:
        with redis.Redis.from_url(url) as client:
            client.set("value", TEXT, ex=3600)
            sha = client.script_load(BOTH)
            yield timed(lambda: json.loads(client.evalsha(sha, 1, "value")[0]))

    return prepare


def flown(url: str, store: Callable[[], Any] = lambda: None) -> Prepare:
    @contextlib.contextmanager
    def prepare() -> Iterator[Run]:
        with Client(url) as locks, Flight(locks, store()) as flight:
            flight.put("value", VALUE, 3600)
            yield timed(lambda: flight.get("value", never, 3600, stale=60, early=1))

    return prepare


def hits_on_redis(url: str, progress: Callable[[str], None]) -> Result:
    contestants = [
        Contestant(GET, with_client(url, lambda client: json.loads(client.get("value"))), "limit"),
        Contestant(PIPELINED, with_client(url, pipelined)),
        Contestant(TWO, with_client(url, in_turn)),
        Contestant(SCRIPT, scripted(url)),
        Contestant(OURS, flown(url), "fencelock"),
        Contestant(OVER_CLIENT, flown(url, lambda: redis.Redis.from_url(url)), "fencelock"),
    ]
    figures = interleave(contestants, rounds=ROUNDS, count=COUNT, progress=progress)
    verdicts = [
        *compared(figures, OURS, (GET, PIPELINED, TWO)),
        *compared(figures, OVER_CLIENT, (GET, PIPELINED, SCRIPT, TWO)),
    ]
    return Result("A hit on Redis, beside redis-py", figures, verdicts=verdicts)


def hits_with_tasks(url: str, progress: Callable[[str], None]) -> Result:
    loop = asyncio.new_event_loop()

    def looping(step: Callable[[], Any]) -> Run:
        async def many(count: int) -> float:
            started = time.perf_counter()
            for _ in range(count):
                await step()
            return time.perf_counter() - started

        return lambda count: loop.run_until_complete(many(count))

    @contextlib.contextmanager
    def plain() -> Iterator[Run]:
        client = AsyncRedis.from_url(url)
        loop.run_until_complete(client.set("value", TEXT, ex=3600))

        async def step() -> Any:
            return json.loads(await client.get("value") or "")

        yield looping(step)
        loop.run_until_complete(client.aclose())

    @contextlib.contextmanager
    def ours() -> Iterator[Run]:
        locks = AsyncClient(url)
        flight = AsyncFlight(locks)
        loop.run_until_complete(flight.put("value", VALUE, 3600))
        yield looping(lambda: flight.get("value", never_async, 3600, stale=60, early=1))
        loop.run_until_complete(flight.close())
        loop.run_until_complete(locks.close())

    contestants = [Contestant(GET, plain, "limit"), Contestant("AsyncFlight.get", ours, "fencelock")]
    try:
        figures = interleave(contestants, rounds=ROUNDS, count=COUNT, progress=progress)
    finally:
        loop.close()
    verdicts = compared(figures, "AsyncFlight.get", (GET,))
    return Result("A hit on Redis, one task, beside redis.asyncio", figures, verdicts=verdicts)


# SQLite -------------------------------------------------------------------------------------


def hits_on_sqlite(folder: str, progress: Callable[[str], None]) -> Result:
    @contextlib.contextmanager
    def selected() -> Iterator[Run]:
        with contextlib.closing(sqlite3.connect(Path(folder, "plain.db"))) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("CREATE TABLE IF NOT EXISTS kept (name TEXT PRIMARY KEY, value BLOB, deadline REAL)")
            db.execute("INSERT OR REPLACE INTO kept VALUES ('value', ?, 0)", (TEXT,))
            db.commit()
            words = "SELECT value, deadline FROM kept WHERE name = ?"
            yield timed(lambda: json.loads(db.execute(words, ("value",)).fetchone()[0]))

    contestants = [
        Contestant(SELECT, selected, "limit"),
        Contestant(OURS, flown(f"sqlite://{folder}/locks.db"), "fencelock"),
    ]
    figures = interleave(contestants, rounds=ROUNDS, count=COUNT * 3, progress=progress)
    return Result("A hit on SQLite", figures, verdicts=compared(figures, OURS, (SELECT,)))


# Misses -------------------------------------------------------------------------------------


def misses(url: str, progress: Callable[[str], None]) -> Result:
    keys = (f"miss:{number}" for number in itertools.count())

    def computed() -> Any:
        return VALUE

    def by_hand(client: Any) -> Any:
        key = next(keys)
        client.get(key)
        client.set(f"lock:{key}", "me", nx=True, px=10_000)
        client.get(key)
        client.set(key, json.dumps(computed()), ex=3600)
        return client.eval(RELEASE, 1, f"lock:{key}", "me")

    @contextlib.contextmanager
    def ours() -> Iterator[Run]:
        with Client(url) as locks, Flight(locks) as flight:
            yield timed(lambda: flight.get(next(keys), computed, 3600))

    contestants = [
        Contestant(GET, with_client(url, lambda client: client.get(next(keys))), "limit"),
        Contestant(BY_HAND, with_client(url, by_hand)),
        Contestant(OURS, ours, "fencelock"),
    ]
    figures = interleave(contestants, rounds=ROUNDS, count=COUNT // 4, progress=progress)
    verdicts = compared(figures, OURS, (GET, BY_HAND))
    return Result("A miss on Redis, a computation that costs nothing", figures, verdicts=verdicts)


def compared(figures: Sequence[Figure], ours: str, others: Sequence[str]) -> list[Verdict]:
    """Say how long ours takes, in times of each of the others."""
    pairs = ((f"{ours}, to {other!r}", named(figures, other)) for other in others)
    return [said for what, other in pairs for said in ratio(what, named(figures, ours), other, None)]


def measure(progress: Callable[[str], None]) -> Sequence[Result]:
    with tempfile.TemporaryDirectory() as folder, start("redis") as server:
        url = str(server.url)
        return [
            hits_on_redis(url, progress),
            hits_with_tasks(url, progress),
            hits_on_sqlite(folder, progress),
            misses(url, progress),
        ]


SUITE = Suite("flight", "what a flight adds to reading a value, and what a miss costs", measure)
