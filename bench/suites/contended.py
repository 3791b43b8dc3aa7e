"""One lock, many processes, an empty section: how often it changes hands, and how fairly.

A *handoff* is an acquisition by another process than the one before. The order of
acquisitions is read from the time of each; the share is the least-served process's part of
the best-served one's.
"""

from __future__ import annotations

import itertools
import multiprocessing
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing.synchronize import Barrier
from typing import Any

import filelock

import holdfast
from bench.measure import Figure, Result, Suite

__all__ = ["SQLITE"]

SECONDS = 1.5
ROUNDS = 3
POLL = 0.001

Worker = Callable[[str, float], list[float]]


def with_holdfast(folder: str, until: float) -> list[float]:
    taken = []
    with holdfast.Client(f"sqlite://{folder}/locks.db") as locks:
        lock = locks.lock("hot")
        while time.monotonic() < until:
            with lock:
                taken.append(time.monotonic())
    return taken


def with_filelock(folder: str, until: float) -> list[float]:
    taken = []
    lock = filelock.FileLock(f"{folder}/hot.lock")
    while time.monotonic() < until:
        with lock:
            taken.append(time.monotonic())
    return taken


def with_polled_rows(folder: str, until: float) -> list[float]:
    taken = []
    db = sqlite3.connect(f"{folder}/polled.db", isolation_level=None, timeout=5)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("CREATE TABLE IF NOT EXISTS lock (name TEXT PRIMARY KEY)")
    while time.monotonic() < until:
        if db.execute("INSERT OR IGNORE INTO lock VALUES ('hot')").rowcount == 1:
            taken.append(time.monotonic())
            db.execute("DELETE FROM lock")
        else:
            time.sleep(POLL)
    db.close()
    return taken


def _process(worker: Worker, folder: str, barrier: Barrier, answers: Any) -> None:
    worker(folder, 0.0)  # imports, files and connections are not part of the race
    barrier.wait(30)
    answers.put(worker(folder, time.monotonic() + SECONDS))


def race(worker: Worker, processes: int) -> tuple[float, float]:
    """Return handoffs in a second, and the smallest share."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        barrier, answers = context.Barrier(processes), context.Queue()
        arguments = (worker, folder, barrier, answers)
        runners = [context.Process(target=_process, args=arguments) for _ in range(processes)]
        for runner in runners:
            runner.start()
        taken = [answers.get(timeout=60) for _ in runners]
        for runner in runners:
            runner.join(30)
    order = [who for _, who in sorted((when, who) for who, times in enumerate(taken) for when in times)]
    handoffs = sum(1 for before, after in itertools.pairwise(order) if before != after)
    counts = [len(times) for times in taken]
    return handoffs / SECONDS, min(counts) / max(*counts, 1)


def sqlite(progress: Callable[[str], None]) -> Sequence[Result]:
    workers: dict[str, Worker] = {
        "holdfast": with_holdfast,
        "filelock, default poll": with_filelock,
        "SQLite row polled at 1 ms": with_polled_rows,
    }
    results = []
    for processes in (2, 8, 32):
        seen: dict[str, list[tuple[float, float]]] = {name: [] for name in workers}
        for number in range(ROUNDS):
            for name, worker in workers.items():
                progress(f"{processes} processes, round {number + 1} of {ROUNDS}: {name}")
                seen[name].append(race(worker, processes))
        figures = [
            Figure(
                name,
                "holdfast" if name == "holdfast" else "peer",
                [1 / max(rate, 1e-9) for rate, _ in rounds],
            )
            for name, rounds in seen.items()
        ]
        shares = ", ".join(f"{name} {statistics.median(s for _, s in seen[name]):.2f}" for name in workers)
        notes = [f"smallest share: {shares}"]
        if processes == 8:
            notes.append("target: at least 3,000 FIFO handoffs in a second")
        results.append(Result(f"Handoffs among {processes} processes on one host", figures, notes, rate=True))
    return results


SQLITE = Suite("contended", "one lock, 2, 8 and 32 processes on SQLite, beside filelock and polling", sqlite)
