"""Optimistic updates against locks, as contention rises: where they cross.

1 to 32 processes read one row of PostgreSQL, think for two milliseconds, and write it, again and again. Each
way of doing it writes the same; what is counted is updates that were committed in time, and how often each
was tried.

    optimistic            read, think, `optimistic.update`, and all of it again after a conflict
    lock on Redis         fencelock's lock around read, think, write
    lock on PostgreSQL    the same, with the locks in the database of the row
    SELECT … FOR UPDATE   read, think, write in one transaction: the row's own lock

Ways take turns, round after round. Each update is checked: the row says how many there were, or the run is an
error. What was seen is in `results/crossover.json`, from which `python -m bench.crossover` makes the picture
and the sentences of the docs.

NOT promised: that thinking costs nothing. It is a sleep here, as if somebody else were asked; where it is
computing, what optimistic updates do for nothing takes the processor from those who would succeed.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.synchronize import Barrier
from typing import Any, NamedTuple

import psycopg
from tools.servers import start

from bench import effort
from bench.crossover import MEASURED, OPTIMISTIC, REDIS, ROW, SAME
from bench.measure import Figure, Result, Suite
from fencelock import Client, optimistic
from fencelock.optimistic import Conflicted

__all__ = ["SUITE"]

WRITERS = (1, 2, 4, 8, 16, 32)
THINK = 0.002
SECONDS = effort.seconds(0.6)
ROUNDS = effort.rounds(11)
PATIENCE = 60.0

Step = Callable[[], int]
"""Do one update; return how often it had to be tried."""


def optimistically(conn: Any, url: str) -> Step:
    tries = 0

    @optimistic.retry(timeout=None)
    def update() -> Any:
        nonlocal tries
        tries += 1
        row = optimistic.read(conn, "crossover", key={"id": 1})
        conn.commit()
        time.sleep(THINK)
        change = {"n": row["n"] + 1}
        done = optimistic.update(conn, "crossover", key={"id": 1}, version=row["version"], set=change)
        if isinstance(done, Conflicted):
            conn.rollback()
        else:
            conn.commit()
        return done

    def step() -> int:
        nonlocal tries
        tries = 0
        update()
        return tries

    return step


def locked(conn: Any, url: str) -> Step:
    lock = Client(url).lock("row", ttl=30)

    def step() -> int:
        with lock:
            (value,) = conn.execute("SELECT n FROM crossover").fetchone()
            conn.commit()
            time.sleep(THINK)
            conn.execute("UPDATE crossover SET n = %s", (value + 1,))
            conn.commit()
        return 1

    return step


def row_locked(conn: Any, url: str) -> Step:
    def step() -> int:
        (value,) = conn.execute("SELECT n FROM crossover FOR UPDATE").fetchone()
        time.sleep(THINK)
        conn.execute("UPDATE crossover SET n = %s", (value + 1,))
        conn.commit()
        return 1

    return step


WAYS: Mapping[str, tuple[str, Callable[[Any, str], Step]]] = {
    OPTIMISTIC: ("fencelock", optimistically),
    REDIS: ("fencelock", locked),
    SAME: ("fencelock", locked),
    ROW: ("peer", row_locked),
}


class Race(NamedTuple):
    """Updates in a second, and tries for each of them."""

    rate: float
    tries: float


def _process(way: str, database: str, locks: str, barrier: Barrier, answers: Any) -> None:
    with psycopg.connect(database) as conn:
        step = WAYS[way][1](conn, locks)
        step()  # connections and imports are not part of the race
        barrier.wait(PATIENCE)
        until, in_time, late, tries = time.monotonic() + SECONDS, 0, 0, 0
        while time.monotonic() < until:
            tries += step()
            if time.monotonic() < until:
                in_time += 1
            else:
                late += 1
    answers.put((in_time, late, tries))


def race(way: str, database: str, locks: str, writers: int) -> Race:
    with psycopg.connect(database) as conn:
        conn.execute("UPDATE crossover SET n = 0, version = 0")
    context = multiprocessing.get_context("fork")
    barrier, answers = context.Barrier(writers), context.Queue()
    runners = [
        context.Process(target=_process, args=(way, database, locks, barrier, answers))
        for _ in range(writers)
    ]
    for runner in runners:
        runner.start()
    told = [answers.get(timeout=PATIENCE * 2) for _ in runners]
    for runner in runners:
        runner.join(PATIENCE)
    with psycopg.connect(database) as conn:
        (total,) = conn.execute("SELECT n FROM crossover").fetchone() or (0,)
    in_time, late, tries = (sum(each) for each in zip(*told, strict=True))
    if total != in_time + late + writers:
        raise RuntimeError(f"{way}: {in_time + late + writers} updates, and the row says {total}")
    return Race(in_time / SECONDS, tries / max(in_time + late, 1))


def measure(progress: Callable[[str], None]) -> Sequence[Result]:
    seen: dict[int, dict[str, list[Race]]] = {n: {way: [] for way in WAYS} for n in WRITERS}
    order = random.Random(1)
    with start("postgres", settings={"max_connections": "300"}) as postgres, start("redis") as redis:
        database = str(postgres.url)
        where = {REDIS: str(redis.url), SAME: f"{database}?pool_size=2"}
        with psycopg.connect(database) as conn:
            conn.execute("CREATE TABLE crossover (id integer PRIMARY KEY, n integer, version bigint)")
            conn.execute("INSERT INTO crossover VALUES (1, 0, 0)")
        machine = _machine(postgres.members[0].version(), redis.members[0].version())
        for number in range(ROUNDS):
            for writers in WRITERS:
                for way in order.sample(list(WAYS), len(WAYS)):
                    progress(f"round {number + 1} of {ROUNDS}, {writers} writers: {way}")
                    seen[writers][way].append(race(way, database, where.get(way, ""), writers))
    _keep(seen, machine)
    return [_result(writers, ways) for writers, ways in seen.items()]


def _machine(postgres: str, redis: str) -> dict[str, Any]:
    return {
        "when": time.strftime("%Y-%m-%d", time.gmtime()),
        "processors": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "postgresql": postgres,
        "redis": redis,
    }


def _keep(seen: Mapping[int, Mapping[str, Sequence[Race]]], machine: Mapping[str, Any]) -> None:
    data = {
        "machine": machine,
        "think": THINK,
        "seconds": SECONDS,
        "writers": list(WRITERS),
        "ways": {
            way: {
                "rates": [[round(race.rate, 1) for race in seen[n][way]] for n in WRITERS],
                "tries": [[round(race.tries, 3) for race in seen[n][way]] for n in WRITERS],
            }
            for way in WAYS
        },
    }
    if effort.QUICK:
        return  # the docs must not take it
    MEASURED.parent.mkdir(exist_ok=True)
    MEASURED.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def _result(writers: int, seen: Mapping[str, Sequence[Race]]) -> Result:
    figures = [
        Figure(way, WAYS[way][0], [1 / max(race.rate, 1e-9) for race in raced]) for way, raced in seen.items()
    ]
    tries = statistics.median(race.tries for race in seen[OPTIMISTIC])
    title = f"{writers} writer{'s' if writers > 1 else ''} on one row"
    return Result(title, figures, [f"optimistic: {tries:.2f} tries for each update"], rate=True)


SUITE = Suite("optimistic", "optimistic updates against locks on PostgreSQL, as contention rises", measure)
