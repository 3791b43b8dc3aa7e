"""Completion: with its effect or not at all, and never by who was overtaken."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from fencelock import ConfigurationError, LeaseLost, StaleToken

from .conftest import Desk, either


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
    return either(desk, lambda job: finished(desk, job, **how))


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
        desk.sql("UPDATE fencelock_jobs SET token = token + 1, due = due + 1000")
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
        desk.sql("UPDATE fencelock_jobs SET token = token + 1, due = due + 1000 WHERE id = :id", id=job.id)
        if job.payload == "fails":
            raise ValueError

    for payload in ("succeeds", "fails"):
        desk.table.enqueue("mail", payload)
    tally = desk.work({"mail": overtaken})
    assert (tally.overtaken, tally.done, tally.retried) == (2, 0, 0)
    assert {job.status for job in desk.table.ls()} == {"running"}


def test_progress_of_who_was_overtaken_is_refused(desk: Desk) -> None:
    desk.table.enqueue("mail")

    def overtaken(job: Any) -> Any:
        desk.sql("UPDATE fencelock_jobs SET token = token + 1, due = due + 1000")
        return job.checkpoint("late")  # a coroutine under asyncio

    assert desk.work({"mail": overtaken}).overtaken == 1
    assert desk.table.ls()[0].progress is None


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
        one.sql("DELETE FROM fencelock_jobs")
        with pytest.raises(LeaseLost, match="was deleted"):
            job.checkpoint(1)

    assert one.work({"mail": deleted}).overtaken == 1


def test_stale_tokens_of_others_are_failures(one: Desk) -> None:
    """A resource of the handler's own that refuses a token is an error like any other."""
    one.table.enqueue("mail")

    def stale(job: Any) -> None:
        raise StaleToken(resource="elsewhere", token=1, newest=2)

    assert one.work({"mail": stale}, attempts=1).dead == 1
