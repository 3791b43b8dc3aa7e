"""The uncontended pair: one acquire and one release, everything on (FIFO, token, renewal, loss)."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import filelock

import holdfast
from bench.measure import Contestant, Result, Run, Suite, interleave, timed

__all__ = ["MEMORY", "SQLITE"]

Prepared = contextlib.AbstractContextManager[Run]
UPSERT = "INSERT INTO lock VALUES (?, ?) ON CONFLICT DO UPDATE SET owner = excluded.owner"


@contextlib.contextmanager
def bare_lock() -> Iterator[Run]:
    """The limit in memory: a mutex of the standard library."""
    lock = threading.Lock()

    def pair() -> None:
        with lock:
            pass

    yield timed(pair)


@contextlib.contextmanager
def blocking(url: str) -> Iterator[Run]:
    with holdfast.Client(url) as locks:
        lock = locks.lock("bench")

        def pair() -> None:
            with lock:
                pass

        yield timed(pair)


@contextlib.contextmanager
def asynchronous(url: str) -> Iterator[Run]:
    loop = asyncio.new_event_loop()
    locks = holdfast.AsyncClient(url)
    lock = locks.lock("bench")

    async def pairs(count: int) -> float:
        started = time.perf_counter()
        for _ in range(count):
            async with lock:
                pass
        return time.perf_counter() - started

    try:
        yield lambda count: loop.run_until_complete(pairs(count))
    finally:
        loop.run_until_complete(locks.close())
        loop.close()


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        yield Path(folder)


def in_folder(make: Callable[[Path], Prepared]) -> Callable[[], Prepared]:
    """Give each contestant a folder of its own."""

    @contextlib.contextmanager
    def prepare() -> Iterator[Run]:
        with scratch() as folder, make(folder) as run:
            yield run

    return prepare


@contextlib.contextmanager
def bare_rows(folder: Path, *, explicit: bool) -> Iterator[Run]:
    """The limit on disk: insert a row and delete it, with the same durability, nothing else."""
    with contextlib.closing(sqlite3.connect(folder / "bare.db", isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("CREATE TABLE lock (name TEXT PRIMARY KEY, owner TEXT) WITHOUT ROWID")

        def pair() -> None:
            if explicit:
                db.execute("BEGIN IMMEDIATE")
            db.execute(UPSERT, ("a", "b"))
            if explicit:
                db.execute("COMMIT")
                db.execute("BEGIN IMMEDIATE")
            db.execute("DELETE FROM lock WHERE name = ? AND owner = ?", ("a", "b"))
            if explicit:
                db.execute("COMMIT")

        yield timed(pair)


@contextlib.contextmanager
def file_lock(folder: Path, *, new: bool) -> Iterator[Run]:
    path = str(folder / "bench.lock")
    kept = filelock.FileLock(path)

    def pair() -> None:
        with filelock.FileLock(path) if new else kept:
            pass

    yield timed(pair)


def memory(progress: Callable[[str], None]) -> Sequence[Result]:
    contestants = [
        Contestant("threading.Lock", bare_lock, "limit"),
        Contestant("holdfast, blocking", lambda: blocking("memory://bench"), "holdfast"),
        Contestant("holdfast, asyncio", lambda: asynchronous("memory://bench"), "holdfast"),
    ]
    figures = interleave(contestants, rounds=9, count=5000, progress=progress)
    note = "target: at most 15 µs of Python for the blocking pair, with renewal on"
    return [Result("Uncontended pair on memory://", figures, [note])]


def sqlite(progress: Callable[[str], None]) -> Sequence[Result]:
    def ours(make: Callable[[str], Prepared]) -> Callable[[], Prepared]:
        return in_folder(lambda folder: make(f"sqlite://{folder}/locks.db"))

    contestants = [
        Contestant("bare rows, BEGIN IMMEDIATE", in_folder(lambda f: bare_rows(f, explicit=True)), "limit"),
        Contestant("bare rows, one statement each", in_folder(lambda f: bare_rows(f, explicit=False))),
        Contestant("holdfast, blocking", ours(blocking), "holdfast"),
        Contestant("holdfast, asyncio", ours(asynchronous), "holdfast"),
        Contestant("filelock, object kept", in_folder(lambda f: file_lock(f, new=False))),
        Contestant("filelock, new object", in_folder(lambda f: file_lock(f, new=True))),
    ]
    figures = interleave(contestants, rounds=15, count=1000, progress=progress)
    note = "target: at most 3.5 times the bare pair of the same durability, and faster than a new filelock"
    return [Result("Uncontended pair on sqlite://", figures, [note])]


MEMORY = Suite("memory", "acquire-release pair in memory", memory)
SQLITE = Suite("sqlite", "acquire-release pair on SQLite, beside bare rows and filelock", sqlite)
