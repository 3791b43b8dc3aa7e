"""4 workers, real processes: every job's effect happens exactly once, while workers are killed and stopped.

`FENCELOCK_JOBS=2000 FENCELOCK_SECONDS=60` is the full size, with MariaDB and asyncio too.
"""

from __future__ import annotations

import json
import os
import queue
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from crew import PATIENCE, Crew, Member, stop_between_steps, wait_until
from sqlalchemy import create_engine, text
from tools.servers import start

from fencelock import jobs

JOBS = int(os.environ.get("FENCELOCK_JOBS", "160"))
SECONDS = float(os.environ.get("FENCELOCK_SECONDS", "4"))
IS_FULL = JOBS >= 1000
WORKERS = 4
TTL = 1.0
FORMS = ["postgres+redis", "sqlite+sqlite", "postgres"]
if IS_FULL:
    FORMS += ["mariadb", "mariadb+redis", "postgres+postgres", "postgres+redis/asyncio", "postgres/asyncio"]
DRIVERS = {"postgresql:": "postgresql+psycopg:", "mysql:": "mysql+pymysql:"}


class Floor:
    """Servers, each started when it is first asked for, and the process that forks workers."""

    def __init__(self, folder: Any, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._urls: dict[str, str] = {}
        self._count = 0
        self.host: Member = stack.enter_context(Crew()).start("jobs_host")
        assert self.host.hear()["event"] == "ready"
        self.told: list[dict[str, Any]] = []

    def url(self, kind: str) -> str:
        if kind not in self._urls:
            self._urls[kind] = str(self._stack.enter_context(start(kind)).url)
        return self._urls[kind]

    def bench(self, form: str, count: int) -> Bench:
        """Return an empty table with so many jobs, and what a worker on it is told."""
        where, _, flavour = form.partition("/")
        database, _, locks = where.partition("+")
        self._count += 1
        name = f"jobs{self._count}"
        if database == "sqlite":
            url = f"sqlite:///{self._folder}/{name}.db"
        else:
            url = self.url(database)
            for scheme, driver in DRIVERS.items():
                url = url.replace(scheme, driver)
        chosen = {"": None, "sqlite": f"sqlite://{self._folder}/{name}-locks.db"}
        place = chosen[locks] if locks in chosen else self.url(locks)
        told = {"database": url, "locks": place, "table": name, "form": "ours", "work": 0.0, "inside": 0.0}
        return Bench(self, told | {"flavour": flavour or "blocking"}, count)

    def listen(self, seconds: float) -> None:
        """Take down what is said within so many seconds."""
        until = time.monotonic() + seconds
        with suppress(queue.Empty):
            while (line := self.host._lines.get(timeout=max(0.0, until - time.monotonic()))) is not None:
                self.told.append(json.loads(line))

    def said(self, event: str, pids: set[int]) -> list[dict[str, Any]]:
        self.listen(0.0)
        return [said for said in self.told if said["event"] == event and said["pid"] in pids]


class Bench:
    """One table, and the workers on it."""

    def __init__(self, floor: Floor, told: dict[str, Any], count: int) -> None:
        self.floor = floor
        self.told = told
        options = {"connect_args": {"timeout": 30}} if told["database"].startswith("sqlite") else {}
        self.engine = create_engine(told["database"], **options)
        self.table = jobs.Table(self.engine, told["table"])
        self.table.create()
        self.pids: set[int] = set()
        if options:
            with self.engine.connect() as conn:
                conn.exec_driver_sql("PRAGMA journal_mode = WAL")  # whoever looks waits for no writer
        with self.engine.begin() as conn:
            columns = "job BIGINT, token BIGINT, worker BIGINT"
            conn.execute(text(f"CREATE TABLE {told['table']}_effects ({columns})"))
        with self.engine.begin() as conn:
            for number in range(count):
                self.table.enqueue("mail", {"n": number}, conn=conn)

    def start(self, **more: Any) -> int:
        self.floor.listen(0.0)
        seen = len(self.floor.told)
        self.floor.host.tell(json.dumps(self.told | more))

        def answered() -> int | None:
            self.floor.listen(0.05)
            started = [said for said in self.floor.told[seen:] if said["event"] == "started"]
            return int(started[0]["child"]) if started else None

        pid = int(wait_until(answered, "a worker was forked"))
        self.pids.add(pid)
        return pid

    def is_worked_off(self) -> bool:
        counts = self.table.counts()
        time.sleep(0.05)
        return counts["pending"] + counts["running"] == 0

    def effects(self) -> list[tuple[int, int]]:
        with self.engine.begin() as conn:
            rows = conn.execute(text(f"SELECT job, token FROM {self.told['table']}_effects"))
            return [(int(job), int(token)) for job, token in rows]

    def close(self) -> None:
        for pid in self.pids:
            for signum in (signal.SIGKILL, signal.SIGCONT):
                with suppress(ProcessLookupError):
                    os.kill(pid, signum)
        self.engine.dispose()


@pytest.fixture(scope="module")
def floor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Floor]:
    with ExitStack() as stack:
        yield Floor(tmp_path_factory.mktemp("jobs"), stack)


def judged(bench: Bench, count: int) -> None:
    """Each job is done, its effect is there once, and it is that of the attempt which completed it."""
    counts = bench.table.counts()
    assert counts == {"pending": 0, "running": 0, "done": count, "dead": 0, "cancelled": 0}
    effects = bench.effects()
    assert Counter(job for job, _ in effects) == {job.id: 1 for job in bench.table.ls(limit=10**6)}
    assert sorted(effects) == sorted((job.id, job.token) for job in bench.table.ls(limit=10**6))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("form", FORMS)
def test_every_job_once(floor: Floor, form: str) -> None:
    bench = floor.bench(form, JOBS)
    try:
        pids = {bench.start(terms={"ttl": 30.0}) for _ in range(WORKERS)}
        wait_until(bench.is_worked_off, "all jobs were done", PATIENCE + JOBS / 10)
        judged(bench, JOBS)
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        ended = wait_until(lambda: _all(floor.said("ended", pids), WORKERS), "the workers have ended")
        tallies = [said["tally"] for said in ended]
        assert sum(tally["done"] for tally in tallies) == JOBS
        assert len([tally for tally in tallies if tally["done"]]) > 1, "one worker did it all"
        assert floor.said("failed", pids) == []
    finally:
        bench.close()


def _all(said: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    return said if len(said) == count else []


def test_the_naive_worker_doubles_jobs(floor: Floor) -> None:
    bench = floor.bench("sqlite", 40)
    try:
        pids = {bench.start(form="naive", work=0.1) for _ in range(WORKERS)}
        wait_until(lambda: _all(floor.said("ended", pids), WORKERS), "the workers have ended")
        doubled = [job for job, count in Counter(job for job, _ in bench.effects()).items() if count > 1]
        print(f"naive: {len(doubled)} jobs were done more than once")
        assert len(doubled) > 0
    finally:
        bench.close()


def overtaken(bench: Bench, sleeper: int, later: Path) -> None:
    """Stop a blind worker inside a job until another has it: its completion must be refused."""
    floor = bench.floor
    (lingers,) = wait_until(lambda: floor.said("lingers", {sleeper}), "one is inside a job")
    urls = (bench.told["database"], bench.told["locks"] or "")
    stop_between_steps(sleeper, *(url.partition("//")[2] for url in urls if url.startswith("sqlite:")))
    job = lingers["job"]
    wait_until(lambda: bench.table.get(job).token > lingers["token"], "another has taken its job")
    later.touch()
    os.kill(sleeper, signal.SIGCONT)
    wait_until(lambda: floor.said("refused", {sleeper}), "its completion was refused")
    os.kill(sleeper, signal.SIGTERM)
    wait_until(lambda: floor.said("ended", {sleeper}), "it has ended")


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("form", FORMS)
def test_every_job_once_while_workers_are_killed_and_stopped(floor: Floor, form: str, tmp_path: Path) -> None:
    work, inside = 0.08, 0.01
    count = max(int(WORKERS * SECONDS / (work + inside) * 0.6), JOBS)  # enough for all the time
    bench = floor.bench(form, count)
    chosen = random.Random(7)
    terms = {"ttl": TTL}
    blind = iter(range(10**6))
    never, later = tmp_path / "never", tmp_path / "later"

    def hire(**more: Any) -> int:
        # Every second one is protected by nothing but the token in the row.
        told = {"work": work, "inside": inside, "terms": terms, "blind": next(blind) % 2 == 0}
        return bench.start(**told | more)

    try:
        working = [hire() for _ in range(WORKERS)]
        died, slept = hire(lingering=str(never)), hire(lingering=str(later), blind=True)
        wait_until(lambda: floor.said("lingers", {died}), "one is inside a job")
        os.kill(died, signal.SIGKILL)
        overtaken(bench, slept, later)
        stopped: dict[int, threading.Timer] = {}
        killed = paused = 0
        end = time.monotonic() + SECONDS
        strike = time.monotonic() + 1.0
        while time.monotonic() < end or not bench.is_worked_off():
            now = time.monotonic()
            assert now < end + PATIENCE * 2 + count / 5, f"not done: {bench.table.counts()}"
            if now >= strike and now < end:
                strike = now + 1.0
                awake = [pid for pid in working if pid not in stopped or not stopped[pid].is_alive()]
                if len(awake) < 2:
                    continue
                victim, sleeper = chosen.sample(awake, 2)
                os.kill(victim, signal.SIGKILL)
                working[working.index(victim)] = hire()
                # On a thread: a stopped process may have SQLite's file locked, and this one waits for it.
                stopped[sleeper] = threading.Timer(2.5 * TTL, os.kill, (sleeper, signal.SIGCONT))
                os.kill(sleeper, signal.SIGSTOP)
                stopped[sleeper].start()
                killed, paused = killed + 1, paused + 1
            floor.listen(0.05)
        for timer in stopped.values():
            timer.join()
        for pid in working:
            os.kill(pid, signal.SIGTERM)
        wait_until(lambda: _all(floor.said("ended", set(working)), WORKERS), "the workers have ended")
        judged(bench, count)
        attempts = sum(job.attempts for job in bench.table.ls(limit=10**6))
        refused = floor.said("refused", bench.pids)
        stale = [said for said in refused if "stale" in said["line"] or "has begun" in said["line"]]
        print(
            f"{form}: {count} jobs, {killed} killed, {paused} stopped, {attempts} attempts, "
            f"{len(refused)} refused, {len(stale)} of them by the token"
        )
        assert killed >= SECONDS / 3
        assert floor.said("failed", bench.pids) == []
        assert attempts > count and len(stale) > 0
    finally:
        bench.close()
