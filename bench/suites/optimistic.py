"""Optimistic updates against locks, as contention rises: where they cross.

Eight processes on PostgreSQL read a row, think for two milliseconds, and write it, again and again. The rows
are drawn at random: from 256 of them, two processes rarely meet; from one, always. Each way of doing it
writes the same; what is counted is updates that were committed.

    optimistic     read, think, `optimistic.update`, and all of it again after a conflict
    lock           holdfast's lock of the row's name around read, think, write
    row lock       SELECT … FOR UPDATE, think, UPDATE: the lock of the database itself
    atomic         think, then one UPDATE … SET n = n + 1: the limit, where the change can be said in SQL

Each update is checked: the sum of the rows is the number of updates, or the run is an error.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import psycopg
from tools.servers import start

from bench.measure import Figure, Result, Suite
from holdfast import Client, optimistic
from holdfast.optimistic import Conflicted

__all__ = ["SUITE"]

PROCESSES = 8
ROWS = (256, 64, 16, 8, 4, 2, 1)
THINK = 0.002
SECONDS = 2.0
ROUNDS = 3
PLOT = Path(__file__).parents[1] / "results" / "optimistic-crossover.svg"
COLOURS = {"optimistic": "#2a9d8f", "lock": "#e76f51", "row lock": "#c9a227", "atomic": "#264653"}

Step = Callable[[int], int]
"""Do one update of this row; return how often it had to be tried."""


def optimistically(conn: Any, locks: Client) -> Step:
    def step(number: int) -> int:
        tries = 0

        @optimistic.retry(timeout=None, base=THINK / 4, cap=THINK * 8)
        def update() -> Any:
            nonlocal tries
            tries += 1
            row = optimistic.read(conn, "crossover", key={"id": number})
            conn.commit()
            time.sleep(THINK)
            change = {"n": row["n"] + 1}
            done = optimistic.update(
                conn, "crossover", key={"id": number}, version=row["version"], set=change
            )
            if isinstance(done, Conflicted):
                conn.rollback()
            else:
                conn.commit()
            return done

        update()
        return tries

    return step


def locked(conn: Any, locks: Client) -> Step:
    def step(number: int) -> int:
        with locks.lock(f"row-{number}", ttl=30):
            (value,) = conn.execute("SELECT n FROM crossover WHERE id = %s", (number,)).fetchone()
            conn.commit()
            time.sleep(THINK)
            conn.execute("UPDATE crossover SET n = %s WHERE id = %s", (value + 1, number))
            conn.commit()
        return 1

    return step


def row_locked(conn: Any, locks: Client) -> Step:
    def step(number: int) -> int:
        (value,) = conn.execute("SELECT n FROM crossover WHERE id = %s FOR UPDATE", (number,)).fetchone()
        time.sleep(THINK)
        conn.execute("UPDATE crossover SET n = %s WHERE id = %s", (value + 1, number))
        conn.commit()
        return 1

    return step


def atomically(conn: Any, locks: Client) -> Step:
    def step(number: int) -> int:
        time.sleep(THINK)
        conn.execute("UPDATE crossover SET n = n + 1 WHERE id = %s", (number,))
        conn.commit()
        return 1

    return step


WAYS: Mapping[str, tuple[str, Callable[[Any, Client], Step]]] = {
    "optimistic": ("holdfast", optimistically),
    "lock": ("holdfast", locked),
    "row lock": ("peer", row_locked),
    "atomic": ("limit", atomically),
}


def _process(way: str, url: str, rows: int, seed: int, barrier: Barrier, answers: Any) -> None:
    chance = random.Random(seed)
    with psycopg.connect(url) as conn, Client(url) as locks:
        step = WAYS[way][1](conn, locks)
        warm = step(chance.randrange(rows))
        assert warm >= 1
        barrier.wait(60)
        until, done, tries = time.monotonic() + SECONDS, 0, 0
        while time.monotonic() < until:
            tries += step(chance.randrange(rows))
            done += 1
    answers.put((done, tries))


def race(way: str, url: str, rows: int, seed: int) -> tuple[float, float]:
    """Return updates in a second, and tries for each."""
    with psycopg.connect(url) as conn:
        conn.execute("UPDATE crossover SET n = 0, version = 0")
    context = multiprocessing.get_context("fork")
    barrier, answers = context.Barrier(PROCESSES), context.Queue()
    runners = [
        context.Process(target=_process, args=(way, url, rows, seed * 100 + number, barrier, answers))
        for number in range(PROCESSES)
    ]
    for runner in runners:
        runner.start()
    told = [answers.get(timeout=120) for _ in runners]
    for runner in runners:
        runner.join(30)
    with psycopg.connect(url) as conn:
        (total,) = conn.execute("SELECT sum(n) FROM crossover").fetchone() or (0,)
    done, tries = sum(one for one, _ in told), sum(two for _, two in told)
    if total != done + PROCESSES:
        raise RuntimeError(f"{way}: {done + PROCESSES} updates, and the rows say {total}")
    return done / SECONDS, tries / max(done, 1)


def measure(progress: Callable[[str], None]) -> Sequence[Result]:
    results: list[Result] = []
    with start("postgres") as group:
        url = str(group.url)
        with psycopg.connect(url) as conn:
            conn.execute("CREATE TABLE crossover (id integer PRIMARY KEY, n integer, version bigint)")
            conn.execute("INSERT INTO crossover SELECT generate_series(0, %s), 0, 0", (max(ROWS) - 1,))
        for rows in ROWS:
            seen: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
            for number in range(ROUNDS):
                for way in random.Random(number).sample(list(WAYS), len(WAYS)):
                    progress(f"{rows} rows, round {number + 1} of {ROUNDS}: {way}")
                    seen[way].append(race(way, url, rows, number))
            results.append(_result(rows, seen))
    draw(results)
    return results


def _result(rows: int, seen: Mapping[str, Sequence[tuple[float, float]]]) -> Result:
    figures = [
        Figure(way, WAYS[way][0], [1 / max(rate, 1e-9) for rate, _ in raced]) for way, raced in seen.items()
    ]
    tries = sorted(each for _, each in seen["optimistic"])[len(seen["optimistic"]) // 2]
    title = f"{PROCESSES} processes on {rows} row{'s' if rows > 1 else ''}"
    return Result(title, figures, [f"optimistic: {tries:.2f} tries for each update"], rate=True)


def draw(results: Sequence[Result], path: Path = PLOT) -> None:
    """Plot updates in a second over how many processes there are for each row."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(7.5, 4))
    contention = [PROCESSES / rows for rows in ROWS]
    for way, colour in COLOURS.items():
        rates = [1 / next(one.median for one in result.figures if one.name == way) for result in results]
        axis.plot(contention, rates, marker="o", color=colour, label=way)
    axis.set_xscale("log", base=2)
    axis.set_xticks(contention, [f"{PROCESSES}:{rows}" for rows in ROWS])
    axis.set_ylim(bottom=0)
    axis.set_xlabel("processes : rows (more contention to the right)")
    axis.set_ylabel("updates a second")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)
    figure.tight_layout()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


SUITE = Suite("optimistic", "optimistic updates against locks on PostgreSQL, as contention rises", measure)
