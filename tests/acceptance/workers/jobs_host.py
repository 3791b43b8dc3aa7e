"""Workers by the dozen: a process that has imported everything forks one for each line of JSON it reads.

    {"database": URL, "locks": URL or null, "table": NAME, "form": "ours" or "naive", …}

It answers with the child's pid. Children tell what happens to them in lines of their own, and die with
whoever has forked them. A `blind` worker believes in its lease for ever, as one whose clock stands still
would: only its row can refuse it. A `lingering` one says so inside its first job, and stays there until a
file appears.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import os
import random
import signal
import sys
import time
from typing import Any

import aiosqlite  # noqa: F401
import psycopg  # noqa: F401
import pymysql  # noqa: F401
import redis  # noqa: F401
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

from fencelock import AsyncClient, Client, LeaseLost, jobs
from fencelock.jobs.leases import RowLease
from fencelock.lease import LeaseBase

EFFECT = "INSERT INTO {} (job, token, worker) VALUES (:job, :token, :worker)"
SQLITE_WAIT = 30.0


def say(**fields: Any) -> None:
    os.write(1, (json.dumps({"pid": os.getpid(), **fields}) + "\n").encode())


class Teller(logging.Handler):
    """Tells what the library logs."""

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if "is not counted" in line:
            say(event="refused", line=line)
        elif record.levelno >= logging.ERROR:
            say(event="error", line=line)


def options(url: str) -> dict[str, Any]:
    return {"connect_args": {"timeout": SQLITE_WAIT}} if url.startswith("sqlite") else {}


def blinded() -> None:
    for lease in (LeaseBase, RowLease):
        lease.check = lambda self: None  # type: ignore[method-assign]
        lease.is_held = lambda self: True  # type: ignore[method-assign]


class Effects:
    """What a handler does: some work, then a row in the jobs' database, with the completion."""

    def __init__(self, table: str, work: float, inside: float, seed: int, lingering: str = "") -> None:
        self._effect = text(EFFECT.format(f"{table}_effects"))
        self._lingering = lingering
        self._work, self._inside = work, inside
        self._random = random.Random(seed)

    def values(self, job: Any) -> dict[str, Any]:
        return {"job": job.id, "token": job.token, "worker": os.getpid()}

    def linger(self, job: Any) -> None:
        until, self._lingering = self._lingering, ""
        if until:
            say(event="lingers", job=job.id, token=job.token)
            while not os.path.exists(until):
                time.sleep(0.02)

    def pauses(self) -> tuple[float, float]:
        return self._work * self._random.random() * 2, self._inside * self._random.random() * 2

    def blocking(self, job: jobs.Job) -> None:
        self.linger(job)
        before, inside = self.pauses()
        time.sleep(before)
        with job.finish() as conn:
            conn.execute(self._effect, self.values(job))
            time.sleep(inside)

    async def asyncio(self, job: jobs.AsyncJob) -> None:
        self.linger(job)
        before, inside = self.pauses()
        await asyncio.sleep(before)
        async with job.finish() as conn:
            await conn.execute(self._effect, self.values(job))
            await asyncio.sleep(inside)


def terms(told: dict[str, Any]) -> dict[str, Any]:
    return {"poll": 0.1, "attempts": 1000, "backoff": 0.05, "grace": 20} | told.get("terms", {})


def ours(told: dict[str, Any], effects: Effects) -> Any:
    if told.get("flavour") == "asyncio":
        return asyncio.run(ours_async(told, effects))
    engine = create_engine(told["database"], **options(told["database"]))
    locks = Client(told["locks"]) if told["locks"] else None
    table = jobs.Table(engine, told["table"])
    worker = jobs.Worker(locks, table, {"mail": effects.blocking}, **terms(told))
    return worker.run(once=told.get("once", False))


async def ours_async(told: dict[str, Any], effects: Effects) -> Any:
    engine = create_async_engine(told["database"], **options(told["database"]))
    locks = AsyncClient(told["locks"]) if told["locks"] else None
    table = jobs.AsyncTable(engine, told["table"])
    worker = jobs.AsyncWorker(locks, table, {"mail": effects.asyncio}, **terms(told))
    try:
        return await worker.run(once=told.get("once", False))
    finally:
        if locks is not None:
            await locks.close()
        await engine.dispose()


def naive(told: dict[str, Any], effects: Effects) -> None:
    """What one writes first: look for a pending job, do it, write that it is done."""
    engine: Engine = create_engine(told["database"], **options(told["database"]))
    table = told["table"]
    look = text(f"SELECT id FROM {table} WHERE status = 'pending' ORDER BY id LIMIT 1")
    done = text(f"UPDATE {table} SET status = 'done' WHERE id = :job")
    while True:
        with engine.begin() as conn:
            found = conn.execute(look).fetchone()
        if found is None:
            return
        time.sleep(effects.pauses()[0])
        with engine.begin() as conn:
            values = {"job": found[0], "token": 0, "worker": os.getpid()}
            conn.execute(text(EFFECT.format(f"{table}_effects")), values)
            conn.execute(done, {"job": found[0]})


def told_early(*_: Any) -> None:
    """SIGTERM before the worker listens for it: on a busy machine the others may have done it all by then."""
    ended(jobs.Tally())
    os._exit(0)


def ended(tally: Any) -> None:
    say(event="ended", tally=None if tally is None else {f: getattr(tally, f) for f in tally.__slots__})


def child(told: dict[str, Any]) -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    signal.signal(signal.SIGTERM, told_early)
    logging.getLogger("fencelock").addHandler(Teller())
    if told.get("blind"):
        blinded()
    effects = Effects(told["table"], told["work"], told["inside"], os.getpid(), told.get("lingering", ""))
    try:
        ended(naive(told, effects) if told["form"] == "naive" else ours(told, effects))
    except (Exception, LeaseLost) as error:
        say(event="failed", error=f"{type(error).__name__}: {error}")


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    say(event="ready")
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                child(json.loads(line))
            finally:
                os._exit(0)
        say(event="started", child=pid)


if __name__ == "__main__":
    main()
