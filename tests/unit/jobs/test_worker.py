"""What a worker does with a job: each ending, in each form and flavour. tests/acceptance has processes."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from holdfast import Client, ConfigurationError, LeaseLost, StaleToken, jobs
from holdfast.jobs.outcomes import LONGEST_PAUSE, pause_after, reason_of

from .conftest import Desk


def nothing(job: Any) -> None:
    """A handler for what is not to be looked at."""


def test_each_job_is_done(desk: Desk) -> None:
    for number in range(20):
        desk.table.enqueue("mail", {"n": number})
    seen: list[Any] = []
    tally = desk.work({"mail": lambda job: seen.append((job.payload["n"], job.attempt))}, concurrency=3)
    assert sorted(seen) == [(number, 1) for number in range(20)]
    assert (tally.done, tally.taken, tally.overtaken) == (20, 20, 0)
    assert desk.table.counts()["done"] == 20
    assert desk.worker.tally == tally and desk.worker.running() == []


def test_a_job_knows_itself(desk: Desk) -> None:
    id_ = desk.table.enqueue("mail", [1])
    seen: list[Any] = []

    def look(job: Any) -> None:
        assert job.lease.is_held() and 0 < job.lease.remaining() <= 5
        job.lease.check()
        assert job.lease.token <= job.token
        assert not job.lease.lost.is_set()
        seen.append((job.id, job.kind, job.key, job.attempt, job.attempts, job.progress, job.lease.name))
        assert f"{id_}#mail" in repr(job) and f"{id_}#mail" in repr(job.lease)
        (running,) = desk.worker.running()
        assert running.name == job.key and running.attempt == 1 and running.remaining > 0

    assert desk.work({"mail": look}, attempts=7).done == 1
    assert seen == [(id_, "mail", f"{id_}#mail", 1, 7, None, f"{id_}#mail")]


def test_the_highest_priority_goes_first(desk: Desk) -> None:
    for priority in (0, 5, -1, 9):
        desk.table.enqueue("mail", priority, priority=priority)
    seen: list[int] = []
    desk.work({"mail": lambda job: seen.append(job.payload)})
    assert seen == [9, 5, 0, -1]


def test_a_delay_is_kept(desk: Desk) -> None:
    desk.table.enqueue("mail", delay=timedelta(hours=1))
    assert desk.work({"mail": nothing}).taken == 0
    assert 3500 < desk.table.ls()[0].due_in <= 3600


def test_what_a_handler_raises_is_kept_and_tried_again(desk: Desk) -> None:
    desk.table.enqueue("mail")
    seen: list[tuple[int, int]] = []

    def fail(job: Any) -> None:
        seen.append((job.attempt, job.token))
        if job.attempt < 3:
            raise ValueError("no\nluck\x00 today")

    tally = desk.work({"mail": fail})
    assert [attempt for attempt, _ in seen] == [1, 2, 3]
    tokens = [token for _, token in seen]
    assert tokens == sorted(set(tokens)), "each attempt has a higher token"
    assert (tally.done, tally.retried) == (1, 2)
    assert desk.table.ls()[0].reason is None


def test_the_last_attempt_leaves_a_dead_job_with_its_reason(desk: Desk) -> None:
    desk.table.enqueue("mail")

    def fail(job: Any) -> None:
        raise ValueError("no\nluck\x00 today" + "x" * 1000)

    tally = desk.work({"mail": fail}, attempts=2)
    assert (tally.dead, tally.retried) == (1, 1)
    (dead,) = desk.table.ls(status="dead")
    assert dead.attempts == 2
    assert dead.reason is not None and dead.reason.startswith("ValueError: no luck today")
    assert len(dead.reason) == 500


def test_reject_is_dead_at_once(desk: Desk) -> None:
    desk.table.enqueue("mail")

    def reject(job: Any) -> None:
        raise jobs.Reject("no such address")

    assert desk.work({"mail": reject}).dead == 1
    assert desk.table.ls(status="dead")[0].reason == "no such address"


def test_retry_asks_for_another_time(desk: Desk) -> None:
    desk.table.enqueue("mail")

    def later(job: Any) -> None:
        raise jobs.Retry(after=60, reason="too many today")

    assert desk.work({"mail": later}, attempts=2).retried == 1
    (job,) = desk.table.ls(status="pending")
    assert 50 < job.due_in <= 60 and job.reason == "too many today"
    desk.table.retry(job.id)
    assert desk.work({"mail": later}, attempts=1).dead == 1


def test_a_payload_that_cannot_be_read_is_dead(desk: Desk) -> None:
    desk.table.enqueue("mail")
    desk.sql("UPDATE holdfast_jobs SET payload = '{broken'")
    assert desk.work({"mail": nothing}).dead == 1
    (dead,) = desk.table.ls(status="dead")
    assert (dead.reason or "").startswith("the payload cannot be read: ") and dead.payload == "{broken"


def test_a_crash_is_counted_as_an_attempt(desk: Desk) -> None:
    """A row that says running, whose deadline has passed: whoever had it is gone."""
    id_ = desk.table.enqueue("mail")
    desk.sql("UPDATE holdfast_jobs SET status = 'running', attempts = 2, token = 2, due = 1")
    seen: list[int] = []
    assert desk.work({"mail": lambda job: seen.append(job.attempt)}).done == 1
    assert seen == [3]
    desk.sql("UPDATE holdfast_jobs SET status = 'running', attempts = 5, due = 1")
    assert desk.work({"mail": nothing}, attempts=5).dead == 1
    dead = desk.table.get(id_)
    assert dead is not None and "attempt 5 of 5 did not end" in (dead.reason or "")


def test_a_job_whose_lock_is_taken_is_passed_over(one: Desk) -> None:
    for _ in range(3):
        one.table.enqueue("mail")
    with Client("memory://") as locks:
        lease = locks.lock("2#mail").acquire()
        assert jobs.Worker(locks, one.table, {"mail": nothing}).run_once().done == 2
        assert [job.id for job in one.table.ls(status="pending")] == [2]
        lease.release()
        assert jobs.Worker(locks, one.table, {"mail": nothing}).run_once().done == 1
        assert locks.list() == [], "no lock is left"


def test_what_was_left_behind_goes_first(desk: Desk) -> None:
    """Though fifty others have waited for longer."""
    for number in range(50):
        desk.table.enqueue("mail", number)
    desk.sql("UPDATE holdfast_jobs SET status = 'running', attempts = 1, due = due - 1 WHERE id = 50")
    seen: list[int] = []
    desk.work({"mail": lambda job: (seen.append(job.id), desk.worker.stop())}, once=False)
    assert seen == [50]


def test_a_job_that_runs_elsewhere_is_left_alone(desk: Desk) -> None:
    desk.table.enqueue("mail")
    desk.sql("UPDATE holdfast_jobs SET status = 'running', attempts = 1, token = 2, due = due + 1000")
    assert desk.work({"mail": nothing}).taken == 0


def test_a_higher_token_in_the_row_is_no_obstacle(desk: Desk) -> None:
    """Tokens of another lock backend, from before, may be higher than ours: the row's rises all the same."""
    desk.table.enqueue("mail")
    desk.sql("UPDATE holdfast_jobs SET token = 4000000000000000000")
    seen: list[int] = []
    assert desk.work({"mail": lambda job: seen.append(job.token)}).done == 1
    assert seen == [4000000000000000001]


def test_checkpoints_are_there_for_the_next_attempt(desk: Desk) -> None:
    desk.table.enqueue("mail")
    seen: list[Any] = []

    async def kept(job: Any) -> None:
        seen.append(job.progress)
        if desk.is_async:
            await job.checkpoint({"sent": job.attempt})
        else:
            job.checkpoint({"sent": job.attempt})
        assert job.progress == {"sent": job.attempt}
        if job.attempt < 3:
            raise OSError

    handler: Any = kept
    if not desk.is_async:
        from holdfast.runtime.blocking import run

        handler = lambda job: run(kept(job))  # noqa: E731
    assert desk.work({"mail": handler}).done == 1
    assert seen == [None, {"sent": 1}, {"sent": 2}]


# Effects with the completion ----------------------------------------------------------------------


async def finished(desk: Desk, job: Any, *, fail: bool = False) -> None:
    insert = text("INSERT INTO effects VALUES (:job)")
    if desk.is_async:
        async with job.finish() as conn:
            await conn.execute(insert, {"job": job.id})
            if fail:
                raise OSError("no space left")
        return
    with job.finish() as conn:
        conn.execute(insert, {"job": job.id})
        if fail:
            raise OSError("no space left")


def finishing(desk: Desk, **how: Any) -> Any:
    if desk.is_async:
        return lambda job: finished(desk, job, **how)
    from holdfast.runtime.blocking import run

    return lambda job: run(finished(desk, job, **how))


def test_effect_and_completion_are_one(desk: Desk) -> None:
    desk.sql("CREATE TABLE effects (job INTEGER)")
    desk.table.enqueue("mail")
    assert desk.work({"mail": finishing(desk)}).done == 1
    assert len(desk.sql("SELECT * FROM effects")) == 1
    desk.table.enqueue("mail")
    assert desk.work({"mail": finishing(desk, fail=True)}, attempts=2).dead == 1
    assert len(desk.sql("SELECT * FROM effects")) == 1, "what failed is rolled back"


def test_who_was_overtaken_has_no_effect(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.sql("CREATE TABLE effects (job INTEGER)")
    id_ = desk.table.enqueue("mail")

    def overtaken(job: Any) -> Any:
        desk.sql("UPDATE holdfast_jobs SET token = token + 1, due = due + 1000")
        return finishing(desk)(job)

    tally = desk.work({"mail": overtaken})
    assert (tally.overtaken, tally.done) == (1, 0)
    assert desk.sql("SELECT * FROM effects") == []
    row = desk.table.get(id_)
    assert row is not None and row.status == "running"
    assert "is not counted" in caplog.text


def test_who_was_overtaken_cannot_report(desk: Desk) -> None:
    """Success, failure and progress are all refused."""

    def overtaken(job: Any) -> None:
        desk.sql("UPDATE holdfast_jobs SET token = token + 1, due = due + 1000 WHERE id = :id", id=job.id)
        if job.payload == "fails":
            raise ValueError

    for payload in ("succeeds", "fails"):
        desk.table.enqueue("mail", payload)
    tally = desk.work({"mail": overtaken})
    assert (tally.overtaken, tally.done, tally.retried) == (2, 0, 0)
    assert {job.status for job in desk.table.ls()} == {"running"}


def test_progress_of_who_was_overtaken_is_refused(desk: Desk) -> None:
    desk.table.enqueue("mail")
    raised: list[BaseException] = []

    def overtaken(job: Any) -> Any:
        desk.sql("UPDATE holdfast_jobs SET token = token + 1, due = due + 1000")
        return job.checkpoint("late")  # a coroutine under asyncio

    assert desk.work({"mail": overtaken}).overtaken == 1
    assert raised == [] and desk.table.ls()[0].progress is None


def test_a_cancelled_job_cannot_be_completed(desk: Desk) -> None:
    id_ = desk.table.enqueue("mail")
    tally = desk.work({"mail": lambda job: desk.table.cancel(id_)})
    assert (tally.overtaken, tally.done) == (1, 0)
    assert desk.table.counts()["cancelled"] == 1


def test_finish_twice_is_refused(one: Desk) -> None:
    one.table.enqueue("mail")

    def twice(job: Any) -> None:
        with job.finish():
            pass
        with pytest.raises(ConfigurationError, match="finished already"), job.finish():
            pass
        raise OSError("after the end")

    assert one.work({"mail": twice}).done == 1, "what comes after the completion changes nothing"


def test_a_deleted_job_says_so(one: Desk) -> None:
    one.table.enqueue("mail")

    def deleted(job: Any) -> None:
        one.sql("DELETE FROM holdfast_jobs")
        with pytest.raises(LeaseLost, match="was deleted"):
            job.checkpoint(1)

    assert one.work({"mail": deleted}).overtaken == 1


def test_stale_tokens_of_others_are_failures(one: Desk) -> None:
    """A resource of the handler's own that refuses a token is an error like any other."""
    one.table.enqueue("mail")

    def stale(job: Any) -> None:
        raise StaleToken(resource="elsewhere", token=1, newest=2)

    assert one.work({"mail": stale}, attempts=1).dead == 1


# Loss ---------------------------------------------------------------------------------------------


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
                desk.sql("UPDATE holdfast_jobs SET status = 'cancelled'")
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                ends.append("cancelled")
                raise
            return
        if locks is not None:
            locks.force_release(job.key)
        else:
            desk.sql("UPDATE holdfast_jobs SET status = 'cancelled'")
        assert job.lease.lost.wait(30)
        ends.append("seen")
        job.lease.check()

    handler: Any = wait
    if not desk.is_async:
        from holdfast.runtime.blocking import run

        handler = lambda job: run(wait(job))  # noqa: E731
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

    handler: Any = slow
    if not desk.is_async:
        from holdfast.runtime.blocking import run

        handler = lambda job: run(slow(job))  # noqa: E731
    tally = desk.work({"mail": handler}, ttl=1.5)
    assert tally.done == 1
    assert max(dues[3:]) > 0


# Starting and ending --------------------------------------------------------------------------------


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

    handler: Any = stuck
    if not desk.is_async:
        from holdfast.runtime.blocking import run

        handler = lambda job: run(stuck(job))  # noqa: E731
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
        assert "mail" in repr(worker) and "sqlite" in repr(worker)


def test_kinds_nobody_serves_are_said_once(one: Desk, caplog: pytest.LogCaptureFixture) -> None:
    one.table.enqueue("mail")
    one.table.enqueue("fax")
    with caplog.at_level(logging.WARNING, "holdfast.jobs"):
        assert one.work({"mail": nothing}).done == 1
    assert [record.message for record in caplog.records] == [
        "jobs of kinds that this worker has no handler for are waiting: 'fax'"
    ]
    with pytest.raises(ConfigurationError, match="no handler for are waiting: 'fax'"):
        one.work({"mail": nothing}, strict=True)
    assert one.table.counts()["pending"] == 1


def test_looking_for_nothing_is_one_query(desk: Desk) -> None:
    """However many slots there are, and it goes by the index."""
    with desk.engine.begin() as conn:
        for number in range(300):
            desk.table.enqueue("mail", number, delay=0 if number < 5 else 3600, conn=conn)
    assert desk.work({"mail": nothing}).done == 5
    statements = desk.listen()
    if desk.is_async:
        return  # statements of the other engine; the count is the same loop's
    timer = threading.Timer(1.0, lambda: desk.worker.stop())  # noqa: PLW0108 - there is another by then
    timer.start()
    desk.work({"mail": nothing}, once=False, concurrency=8, poll=0.2)
    polls = [statement for statement in statements if "UNION ALL" in statement]
    assert 2 <= len(polls) <= 8, "one in each interval of a second, not one for each slot"
    assert len(statements) <= len(polls) + 12, "beside what is looked at when it starts"
    plan = desk.sql(f"EXPLAIN QUERY PLAN {polls[0].replace('?', ':v')}", v="pending")
    uses = [row[3] for row in plan if "holdfast_jobs" in row[3]]
    assert uses and all("USING INDEX holdfast_jobs_due" in use or "COVERING INDEX" in use for use in uses)
    assert not any("TEMP B-TREE" in row[3] for row in plan), "nothing is sorted"


def test_a_handler_that_cancels_itself_has_failed(tmp_path: Any) -> None:
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
def test_a_worker_that_is_cancelled_gives_its_jobs_back(tmp_path: Any, form: str) -> None:
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


def test_backoff_doubles_with_jitter() -> None:
    for attempt, middle in ((1, 2.0), (2, 4.0), (5, 32.0)):
        assert all(middle / 2 <= pause_after(2.0, attempt) <= middle * 1.5 for _ in range(50))
    assert pause_after(10.0, 400) <= LONGEST_PAUSE * 1.5
    assert pause_after(lambda attempt: timedelta(minutes=attempt), 3) == 180


def test_reasons_are_one_line() -> None:
    assert reason_of(ValueError("a\n b\0c")) == "ValueError: a b c"
    assert reason_of(KeyError()) == "KeyError"
    assert reason_of(jobs.Reject("no\nsuch")) == "no such"
    assert reason_of(ValueError("\ud800")) == "ValueError: ?"


def test_a_name_too_long_for_a_lock_is_dead(one: Desk) -> None:
    one.sql(
        "CREATE TABLE own (id TEXT PRIMARY KEY, body TEXT, state TEXT, tok BIGINT, n INT, at REAL, why TEXT)"
    )
    one.sql("INSERT INTO own VALUES (:id, '1', 'pending', 0, 0, 0, NULL)", id="x" * 600)
    mapping = {"id": "id", "payload": "body", "status": "state", "token": "tok"}
    mapping |= {"attempts": "n", "due": "at", "reason": "why"}
    assert one.work({"mail": nothing}, table={"name": "own", "columns": mapping, "kind": "mail"}).dead == 1
    assert "its lock has no name" in one.sql("SELECT why FROM own")[0][0]
