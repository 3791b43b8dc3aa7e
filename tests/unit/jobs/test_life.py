"""The life of a worker: leases that are kept or lost, how it starts, waits, stops, and what it refuses."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fencelock import Client, ConfigurationError, jobs

from .conftest import Desk, either, nothing


def test_a_lock_that_is_broken_ends_the_attempt(desk: Desk) -> None:
    """Under asyncio the handler is cancelled; a blocking one sees it; neither can complete.

    Without locks, the same for a job that somebody cancels.
    """
    id_ = desk.table.enqueue("mail")
    ends: list[str] = []

    async def wait(job: Any) -> None:
        locks = desk.worker.locks
        if desk.is_async:
            if locks is not None:
                await locks.force_release(job.key)
            else:
                desk.sql("UPDATE fencelock_jobs SET status = 'cancelled'")
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                ends.append("cancelled")
                raise
            return
        if locks is not None:
            locks.force_release(job.key)
        else:
            desk.sql("UPDATE fencelock_jobs SET status = 'cancelled'")
        assert job.lease.lost.wait(30)
        ends.append("seen")
        job.lease.check()

    handler = either(desk, wait)
    tally = desk.work({"mail": handler}, ttl=1.0)
    assert ends == ["cancelled" if desk.is_async else "seen"]
    assert (tally.lost + tally.overtaken, tally.done) == (1, 0)
    row = desk.table.get(id_)
    assert row is not None and row.status in {"running", "cancelled"}


def test_long_work_is_renewed(desk: Desk) -> None:
    """A handler that takes longer than the ttl keeps its job, in the row too."""
    desk.table.enqueue("mail")
    dues: list[float] = []

    async def slow(job: Any) -> None:
        for _ in range(5):
            if desk.is_async:
                await asyncio.sleep(0.5)
            else:
                time.sleep(0.5)
            job.lease.check()
            dues.append(desk.table.ls()[0].due_in)

    handler = either(desk, slow)
    tally = desk.work({"mail": handler}, ttl=1.5)
    assert tally.done == 1
    assert max(dues[3:]) > 0


def test_stop_lets_jobs_end_and_begins_no_other(desk: Desk) -> None:
    for _ in range(5):
        desk.table.enqueue("mail")
    begun: list[int] = []

    def stop(job: Any) -> None:
        begun.append(job.id)
        desk.worker.stop()

    tally = desk.work({"mail": stop}, once=False)
    assert len(begun) == 1 and tally.done == 1
    assert desk.table.counts()["pending"] == 4


def test_what_does_not_end_in_time_is_given_back(desk: Desk) -> None:
    id_ = desk.table.enqueue("mail")
    release = threading.Event()
    ended: list[str] = []

    async def stuck(job: Any) -> None:
        desk.worker.stop(grace=0.05)
        if desk.is_async:
            await asyncio.sleep(30)
        release.wait(30)
        ended.append("late")

    handler = either(desk, stuck)
    tally = desk.work({"mail": handler}, once=False)
    assert tally.given_back == 1
    row = desk.table.get(id_)
    assert row is not None and (row.status, row.attempts) == ("pending", 0)
    release.set()
    assert desk.work({"mail": nothing}).done == 1


def test_a_worker_stopped_before_it_runs_does_nothing(one: Desk) -> None:
    one.table.enqueue("mail")
    with Client("memory://") as locks:
        worker = jobs.Worker(locks, one.table, {"mail": nothing})
        worker.stop()
        assert worker.run().taken == 0
        assert worker.run_once().done == 1, "and then it does"
        worker.stop()
        assert worker.run().taken == 0, "nor one that is stopped between two runs"
        assert "mail" in repr(worker) and "sqlite" in repr(worker)


def test_kinds_nobody_serves_are_said_once(one: Desk, caplog: pytest.LogCaptureFixture) -> None:
    one.table.enqueue("mail")
    one.table.enqueue("fax")
    with caplog.at_level(logging.WARNING, "fencelock.jobs"):
        assert one.work({"mail": nothing}).done == 1
    assert [record.message for record in caplog.records] == [
        "jobs of kinds that this worker has no handler for are waiting: 'fax'"
    ]
    with pytest.raises(ConfigurationError, match="no handler for are waiting: 'fax'"):
        one.work({"mail": nothing}, strict=True)
    assert one.table.counts()["pending"] == 1


@pytest.mark.parametrize("form", ["locked", "unlocked"])
def test_looking_for_nothing_is_one_query(tmp_path: Path, form: str) -> None:
    """However many slots there are, and it goes by the index."""
    desk = Desk(tmp_path / "jobs.db", form)
    with desk.engine.begin() as conn:
        for number in range(300):
            desk.table.enqueue("mail", number, delay=0 if number < 5 else 3600, conn=conn)
    assert desk.work({"mail": nothing}).done == 5
    times: list[float] = []

    def seen(statement: str) -> None:
        if "UNION ALL" in statement:
            times.append(time.monotonic())
            if len(times) == 4:
                desk.worker.stop()

    statements = desk.listen(seen)
    desk.work({"mail": nothing}, once=False, concurrency=8, poll=0.2)
    polls = [statement for statement in statements if "UNION ALL" in statement]
    assert len(polls) == 4
    assert all(after - before > 0.14 for before, after in pairwise(times)), "not one for each slot"
    assert len(statements) <= len(polls) + 12, "beside what is looked at when it starts"
    plan = desk.sql(f"EXPLAIN QUERY PLAN {polls[0].replace('?', ':v')}", v="pending")
    uses = [row[3] for row in plan if "fencelock_jobs" in row[3]]
    assert uses and all("USING INDEX fencelock_jobs_due" in use or "COVERING INDEX" in use for use in uses)
    assert not any("TEMP B-TREE" in row[3] for row in plan), "nothing is sorted"
    desk.engine.dispose()


def test_a_handler_that_cancels_itself_has_failed(tmp_path: Path) -> None:
    """And takes nobody with it."""
    desk = Desk(tmp_path / "jobs.db", "unlocked/asyncio")
    desk.table.enqueue("mail")

    async def cancelled(job: Any) -> None:
        raise asyncio.CancelledError

    tally = desk.work({"mail": cancelled}, attempts=2)
    assert (tally.retried, tally.dead) == (1, 1)
    assert desk.table.ls()[0].reason == "Cancelled"
    desk.engine.dispose()


@pytest.mark.parametrize("form", ["locked/asyncio", "unlocked/asyncio"])
def test_a_worker_that_is_cancelled_gives_its_jobs_back(tmp_path: Path, form: str) -> None:
    desk = Desk(tmp_path / "jobs.db", form)
    desk.table.enqueue("mail")

    async def main() -> None:
        async def stuck(job: Any) -> None:
            running.set()
            await asyncio.sleep(60)

        running = asyncio.Event()
        task = asyncio.ensure_future(desk._work_async({"mail": stuck}, {}, False, {}))
        await asyncio.wait_for(running.wait(), 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    (job,) = desk.table.ls()
    assert (job.status, job.attempts) == ("pending", 0)
    desk.engine.dispose()


def test_an_engine_with_too_few_connections_is_said(one: Desk, caplog: pytest.LogCaptureFixture) -> None:
    one.work({"mail": nothing}, concurrency=15)
    assert "the engine has at most 15 connections, 15 jobs at a time may need 16" in caplog.text


def test_bad_arguments_are_refused(one: Desk) -> None:
    async def coroutine(job: Any) -> None: ...

    with Client("memory://") as locks:
        for wrong, said in (
            ({"handlers": {}}, "has none"),
            ({"handlers": None}, "has none"),
            ({"handlers": {"mail": 7}}, "not callable"),
            ({"handlers": {"": nothing}}, "kind='' is empty"),
            ({"handlers": {"mail": coroutine}}, "use AsyncWorker"),
            ({"concurrency": 0}, "concurrency=0 is out of range"),
            ({"attempts": True}, "attempts=True is out of range"),
            ({"ttl": 0}, "ttl=0"),
            ({"poll": -1}, "poll=-1"),
            ({"grace": "soon"}, "grace='soon'"),
            ({"backoff": "often"}, "backoff='often'"),
            ({"source": 7}, "source=7 is no Table"),
            ({"locks": "redis://"}, "locks='redis://' is no Client"),
        ):
            given: dict[str, Any] = {
                "locks": locks,
                "source": one.table,
                "handlers": {"mail": nothing},
            } | wrong
            with pytest.raises(ConfigurationError, match=said.replace("(", r"\(")):
                jobs.Worker(given.pop("locks"), given.pop("source"), given.pop("handlers"), **given)
        with pytest.raises(ConfigurationError, match="is no AsyncClient"):
            jobs.AsyncWorker(locks, one.table, {"mail": coroutine})  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="is no AsyncTable: give one, or use Worker"):
            jobs.AsyncWorker(None, one.table, {"mail": coroutine})  # type: ignore[arg-type]
