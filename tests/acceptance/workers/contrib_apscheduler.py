"""A host with a scheduler: `contrib_apscheduler.py FOLDER FLAVOUR JOB SHIFT`.

The job `cron` is due at each whole second, `once` at the time in the file `due`, and it does not end before a
host was killed. Jobs note `what token pid` in a file of FOLDER, and are started SHIFT seconds late, as on a
host whose clock is. What the scheduler reports is said on stdout.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import signal
import sqlite3
import sys
import threading
import time
from pathlib import Path
from typing import Any

from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED, EVENT_JOB_MISSED
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.background import BackgroundScheduler

from fencelock import AsyncClient, Client
from fencelock.contrib.apscheduler import OnceAsyncIOExecutor, OnceThreadPoolExecutor, current_lease
from fencelock.idempotency import AsyncStore, Store

FOLDER = Path(sys.argv[1])
FLAVOUR, JOB, SHIFT = sys.argv[2], sys.argv[3], float(sys.argv[4])
KINDS = {EVENT_JOB_EXECUTED: "executed", EVENT_JOB_ERROR: "error", EVENT_JOB_MISSED: "missed"}
URL = f"sqlite://{FOLDER}/locks.db"


def connect() -> sqlite3.Connection:
    return sqlite3.connect(FOLDER / "runs.db", timeout=60)


def note(what: str) -> None:
    with open(FOLDER / "notes", "a", encoding="utf-8") as file:
        file.write(f"{what} {current_lease().token} {os.getpid()}\n")


def report() -> None:
    note("begun")
    time.sleep(0.05)
    note("ended")


async def report_async() -> None:
    note("begun")
    await asyncio.sleep(0.05)
    note("ended")


def hang() -> None:
    note("begun")
    while not (FOLDER / "killed").exists():
        time.sleep(0.02)
    note("ended")


def say(event: Any) -> None:
    kind = KINDS[event.code]
    told = {"kind": kind, "due": event.scheduled_run_time.timestamp(), "error": repr(event.exception)}
    print(json.dumps(told), flush=True)


class Late:
    """A host whose clock is late: it submits its jobs so many seconds after they are due."""

    def submit_job(self, job: Any, run_times: Any) -> None:
        time.sleep(SHIFT)
        super().submit_job(job, run_times)  # type: ignore[misc]


class LateThreads(Late, OnceThreadPoolExecutor):
    pass


class LateLoop(Late, OnceAsyncIOExecutor):
    pass


def begin(scheduler: Any, function: Any) -> None:
    if JOB == "once":
        due = json.loads((FOLDER / "due").read_text())
        moment = datetime.datetime.fromtimestamp(due, datetime.UTC)
        scheduler.add_job(function, "date", run_date=moment, id="job", misfire_grace_time=60)
    else:
        often = {"misfire_grace_time": 60, "coalesce": False, "max_instances": 100}
        scheduler.add_job(function, "cron", second="*", id="job", **often)
    scheduler.add_listener(say, EVENT_JOB_EXECUTED | EVENT_JOB_ERROR | EVENT_JOB_MISSED)
    scheduler.start()
    print(json.dumps({"kind": "ready"}), flush=True)


def blocking() -> None:
    with Client(URL) as locks:
        executor = LateThreads(locks, Store(connect, ttl=2), ttl=2, timeout=60)
        scheduler = BackgroundScheduler(executors={"default": executor}, timezone="UTC")
        begin(scheduler, hang if JOB == "once" else report)
        over = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: over.set())
        # By small steps: a signal that came just before one, or to another thread, is seen after it.
        while not over.wait(0.1):
            pass
        scheduler.shutdown()


async def on_a_loop() -> None:
    async with AsyncClient(URL) as locks:
        executor = LateLoop(locks, AsyncStore(connect, ttl=2, threads=True), ttl=2, timeout=60)
        scheduler = AsyncIOScheduler(executors={"default": executor}, timezone="UTC")
        begin(scheduler, report_async)
        over = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
        await over.wait()
        scheduler.pause()
        while executor._pending_futures:  # its shutdown does not wait, but cancel
            await asyncio.sleep(0.01)
        scheduler.shutdown()


if FLAVOUR == "blocking":
    blocking()
else:
    asyncio.run(on_a_loop())
