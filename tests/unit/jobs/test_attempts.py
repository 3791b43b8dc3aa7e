"""How an attempt at a job begins and ends, in each form and flavour. tests/acceptance has processes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fencelock import Client, jobs
from fencelock.jobs.outcomes import LONGEST_PAUSE, pause_after, reason_of

from .conftest import Desk, either, nothing


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
    desk.sql("UPDATE fencelock_jobs SET payload = '{broken'")
    assert desk.work({"mail": nothing}).dead == 1
    (dead,) = desk.table.ls(status="dead")
    assert (dead.reason or "").startswith("the payload cannot be read: ") and dead.payload == "{broken"


def test_a_crash_is_counted_as_an_attempt(desk: Desk) -> None:
    """A row that says running, whose deadline has passed: whoever had it is gone."""
    id_ = desk.table.enqueue("mail")
    desk.sql("UPDATE fencelock_jobs SET status = 'running', attempts = 2, token = 2, due = 1")
    seen: list[int] = []
    assert desk.work({"mail": lambda job: seen.append(job.attempt)}).done == 1
    assert seen == [3]
    desk.sql("UPDATE fencelock_jobs SET status = 'running', attempts = 5, due = 1")
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
    desk.sql("UPDATE fencelock_jobs SET status = 'running', attempts = 1, due = due - 1 WHERE id = 50")
    seen: list[int] = []
    desk.work({"mail": lambda job: (seen.append(job.id), desk.worker.stop())}, once=False)
    assert seen == [50]


def test_a_job_that_runs_elsewhere_is_left_alone(desk: Desk) -> None:
    desk.table.enqueue("mail")
    desk.sql("UPDATE fencelock_jobs SET status = 'running', attempts = 1, token = 2, due = due + 1000")
    assert desk.work({"mail": nothing}).taken == 0


def test_a_higher_token_in_the_row_is_no_obstacle(desk: Desk) -> None:
    """Tokens of another lock backend, from before, may be higher than ours: the row's rises all the same."""
    desk.table.enqueue("mail")
    desk.sql("UPDATE fencelock_jobs SET token = 4000000000000000000")
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

    handler = either(desk, kept)
    assert desk.work({"mail": handler}).done == 1
    assert seen == [None, {"sent": 1}, {"sent": 2}]


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
