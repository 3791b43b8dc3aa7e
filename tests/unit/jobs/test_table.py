"""The table: what is added, seen and changed there; tables of the user's own; what does not fit."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from fencelock import BackendUnavailable, Client, ConfigurationError, jobs

from .conftest import Desk

OWN = (
    "CREATE TABLE emails (number INTEGER PRIMARY KEY, template TEXT NOT NULL, data TEXT, "
    "state INTEGER NOT NULL, fence BIGINT, tries INTEGER, send_at {time}, error VARCHAR(40), "
    "urgency INTEGER, sofar TEXT)"
)
COLUMNS = {
    "id": "number",
    "kind": "template",
    "payload": "data",
    "status": "state",
    "token": "fence",
    "attempts": "tries",
    "due": "send_at",
    "reason": "error",
    "priority": "urgency",
    "progress": "sofar",
}
STATUSES = {"pending": 0, "running": 1, "done": 2, "dead": 3, "cancelled": 4}


def test_enqueue_in_your_transaction(one: Desk) -> None:
    with one.engine.connect() as conn:
        one.table.enqueue("mail", conn=conn)
        conn.rollback()
    assert one.table.counts()["pending"] == 0
    with contextlib.closing(sqlite3.connect(one.file)) as own:
        assert one.table.enqueue("mail", conn=own) == 1
        own.commit()
    with Session(one.engine) as session:
        jobs.Table(one.engine).enqueue("mail", conn=session)
        session.commit()
    assert one.table.counts()["pending"] == 2


def test_a_key_is_unique(one: Desk) -> None:
    first = one.table.enqueue("mail", 1, key="order-7")
    assert one.table.enqueue("mail", 2, key="order-7") == first
    assert one.table.enqueue("mail", 2, key="ORDER-7") != first
    assert one.table.enqueue("mail", 2) != one.table.enqueue("mail", 2)
    job = one.table.get(first)
    assert job is not None and (job.payload, job.key) == (1, "order-7")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"kind": ""}, "kind='' is empty"),
        ({"kind": 7}, "kind=7 is not a string"),
        ({"payload": {1, 2}}, "is not JSON"),
        ({"payload": float("nan")}, "is not JSON"),
        ({"key": "x" * 300}, "is longer than 255"),
        ({"key": ""}, "key='' is empty"),
        ({"delay": -1}, "delay=-1"),
        ({"priority": 1.5}, "priority=1.5"),
        ({"priority": 2**31}, "out of range"),
        ({"conn": 7}, "conn=7 is not"),
    ],
)
def test_what_cannot_be_added(one: Desk, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        one.table.enqueue(**({"kind": "mail"} | wrong))


def test_looking(one: Desk) -> None:
    for kind in ("mail", "mail", "fax"):
        one.table.enqueue(kind, {"k": kind}, priority=3)
    assert one.table.counts() == {"pending": 3, "running": 0, "done": 0, "dead": 0, "cancelled": 0}
    assert [job.id for job in one.table.ls()] == [1, 2, 3]
    assert [job.id for job in one.table.ls(kind="fax", status="pending")] == [3]
    assert [job.id for job in one.table.ls(limit=2)] == [1, 2]
    assert one.table.ls(status="dead") == []
    job = one.table.get(1)
    assert job is not None
    shown = job.as_dict()
    assert 0 <= shown.pop("age") < 60 and -60 < shown.pop("due_in") <= 0
    assert shown == {
        "id": 1,
        "kind": "mail",
        "status": "pending",
        "attempts": 0,
        "token": 0,
        "priority": 3,
        "reason": None,
        "payload": {"k": "mail"},
        "progress": None,
        "key": None,
        "worker": None,
    }
    assert one.table.get("1") == one.table.get(1) or one.table.get("1") is not None
    assert one.table.get("one") is None and one.table.get(99) is None
    with pytest.raises(ConfigurationError, match="status='gone' is none of"):
        one.table.ls(status="gone")
    with pytest.raises(ConfigurationError, match="limit=0"):
        one.table.ls(limit=0)


def test_retry_and_cancel(one: Desk) -> None:
    id_ = one.table.enqueue("mail", delay=100)
    one.table.retry(id_)
    job = one.table.get(id_)
    assert job is not None and job.due_in <= 0, "a pending job is due now"
    one.sql("UPDATE fencelock_jobs SET status = 'running'")
    with pytest.raises(ConfigurationError, match="job 1 is running: wait until it ends, or cancel it first"):
        one.table.retry(id_)
    one.table.cancel(id_)
    with pytest.raises(ConfigurationError, match="job 1 is cancelled already"):
        one.table.cancel(id_)
    one.sql("UPDATE fencelock_jobs SET attempts = 5, reason = 'x', token = 9")
    one.table.retry(id_)
    job = one.table.get(id_)
    assert job is not None and (job.status, job.attempts, job.reason, job.token) == ("pending", 0, None, 9)
    one.sql("UPDATE fencelock_jobs SET status = 'done'")
    for change, said in (
        (one.table.retry, "is done: enqueue it again"),
        (one.table.cancel, "is done already"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            change(id_)
        with pytest.raises(ConfigurationError, match="there is no job 77"):
            change(77)


def test_purge_deletes_what_has_ended_long_ago(one: Desk) -> None:
    for status in ("pending", "running", "done", "dead", "cancelled", "done"):
        one.table.enqueue("mail")
        one.sql(
            "UPDATE fencelock_jobs SET status = :s WHERE id = (SELECT max(id) FROM fencelock_jobs)", s=status
        )
    assert one.table.purge() == 0, "a week is the default"
    assert one.table.purge(older_than=0, limit=1) == 1
    assert one.table.purge(older_than=0) == 3
    assert {job.status for job in one.table.ls()} == {"pending", "running"}
    assert one.table.enqueue("mail") == 7, "no id is used twice"


# A table of the user's own ------------------------------------------------------------------------


@pytest.mark.parametrize("time", ["REAL", "DATETIME", "TEXT"])
def test_your_own_table_by_mapping_alone(desk: Desk, time: str) -> None:
    """Other names, statuses that are numbers, times of the user's kind, NULL where nothing was written."""
    desk.sql(OWN.format(time=time))
    for number in range(4):
        desk.sql(
            "INSERT INTO emails (template, data, state, urgency) VALUES (:t, :d, 0, :n)",
            t="welcome" if number else "broken",
            d='{"to": "alice"}',
            n=number,
        )
    mapped: dict[str, Any] = {"name": "emails", "columns": COLUMNS, "statuses": STATUSES}
    table = jobs.Table(desk.engine, **mapped)
    later = table.enqueue("welcome", {"to": "carol"}, delay=3600)
    job = table.get(later)
    assert job is not None and 3500 < job.due_in <= 3600.1
    seen: list[Any] = []

    def broken(job: Any) -> None:
        raise ValueError("x" * 100)

    def welcome(job: Any) -> Any:
        seen.append(job.payload["to"])
        return job.checkpoint("half")

    tally = desk.work({"welcome": welcome, "broken": broken}, table=mapped, attempts=2)
    assert seen == ["alice"] * 3 and (tally.done, tally.dead, tally.retried) == (3, 1, 1)
    rows = desk.sql("SELECT state, tries, error, sofar FROM emails WHERE fence > 0 ORDER BY number")
    assert [tuple(row) for row in rows] == [(3, 2, ("ValueError: " + "x" * 100)[:40], None)] + [
        (2, 1, None, '"half"')
    ] * 3
    assert table.counts() == {"pending": 1, "running": 0, "done": 3, "dead": 1, "cancelled": 0}
    assert table.purge(older_than=0) == 4
    with pytest.raises(ConfigurationError, match="no column for key"):
        table.enqueue("welcome", key="k")


def test_a_table_of_one_kind(one: Desk) -> None:
    one.sql(OWN.format(time="REAL"))
    columns = {role: name for role, name in COLUMNS.items() if role not in {"kind", "priority", "progress"}}
    mapped: dict[str, Any] = {"name": "emails", "columns": columns, "statuses": STATUSES, "kind": "mail"}
    one.sql("INSERT INTO emails (template, data, state) VALUES ('x', '7', 0)")
    seen: list[Any] = []

    def handler(job: Any) -> None:
        with pytest.raises(ConfigurationError, match="no column for progress"):
            job.checkpoint(1)
        seen.append((job.kind, job.payload))

    assert one.work({"mail": handler}, table=mapped).done == 1
    assert seen == [("mail", 7)]
    table = jobs.Table(one.engine, **mapped)
    assert table.ls(kind="mail")[0].kind == "mail" and table.ls(kind="fax") == []
    with pytest.raises(ConfigurationError, match="kind='fax' is not the kind of this table: 'mail'"):
        table.enqueue("fax")
    with pytest.raises(ConfigurationError, match="no column for priority"):
        table.enqueue("mail", priority=1)
    with pytest.raises(ConfigurationError, match="handlers has none for 'mail'"):
        one.work({"fax": handler}, table=mapped)


def test_what_is_missing_is_named_with_what_to_add(one: Desk) -> None:
    one.sql("CREATE TABLE emails (number INTEGER PRIMARY KEY, template TEXT, data TEXT, state INTEGER)")
    few = {role: COLUMNS[role] for role in ("id", "kind", "payload", "status")}
    with pytest.raises(ConfigurationError) as caught:
        jobs.Table(one.engine, "emails", columns=few).check()
    said = str(caught.value)
    assert "\n" not in said
    assert "does not say which one is token, attempts, due, reason: map them" in said
    assert "ALTER TABLE `emails` ADD COLUMN `job_token` BIGINT NOT NULL DEFAULT 0" in said
    for line in said.partition("add it: ")[2].split("; "):
        one.sql(line)
    added = {role: f"job_{role}" for role in ("token", "attempts", "due", "reason")}
    mapped: dict[str, Any] = {"name": "emails", "columns": few | added, "statuses": STATUSES}
    one.sql("INSERT INTO emails (template, data, state) VALUES ('mail', '1', 0)")
    assert one.work({"mail": lambda job: None}, table=mapped).done == 1, "with them, it works"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"columns": COLUMNS | {"token": "nope"}}, "has no column 'nope': it has number, template"),
        ({"columns": COLUMNS | {"colour": "red"}}, "columns has 'colour': known are id, kind"),
        ({"columns": {}}, "does not say which one is id, kind, payload"),
        ({"statuses": {"open": 1}}, "statuses has 'open': known are pending"),
        ({"statuses": {"pending": "done"}}, "the same value"),
        ({"kind": "mail"}, "kind is given twice"),
        ({"name": "nowhere"}, "there is no table 'nowhere': make it, or give its name"),
        ({"name": "a.b.c"}, "too many dots"),
        ({"columns": None}, "has no column 'id'"),
    ],
)
def test_what_does_not_fit_is_refused_at_the_start(one: Desk, wrong: dict[str, Any], said: str) -> None:
    one.sql(OWN.format(time="REAL"))
    given: dict[str, Any] = {"name": "emails", "columns": COLUMNS, "statuses": STATUSES} | wrong
    with pytest.raises(ConfigurationError, match=said):
        one.work({"mail": lambda job: None}, table=given)


def test_no_table_and_no_create(one: Desk) -> None:
    one.sql("DROP TABLE fencelock_jobs")
    with pytest.raises(ConfigurationError, match=r"no table 'fencelock_jobs': make it once, with create\(\)"):
        one.table.counts()
    with pytest.raises(ConfigurationError, match="create"):
        jobs.Table(one.engine, "emails", columns=COLUMNS).create()


def test_a_table_without_an_index_is_said_at_the_start(one: Desk, caplog: pytest.LogCaptureFixture) -> None:
    one.sql(OWN.format(time="REAL"))
    mapped: dict[str, Any] = {"name": "emails", "columns": COLUMNS, "statuses": STATUSES}
    one.work({"mail": lambda job: None}, table=mapped)
    assert "every poll reads the whole table: CREATE INDEX" in caplog.text
    one.sql(caplog.records[0].getMessage().partition("table: ")[2])
    caplog.clear()
    one.work({"mail": lambda job: None}, table=mapped)
    assert caplog.text == ""


def test_engines_of_the_wrong_kind(one: Desk) -> None:
    other = create_async_engine(f"sqlite+aiosqlite:///{one.file}")
    with pytest.raises(ConfigurationError, match="of the other flavour: use AsyncTable"):
        jobs.Table(other)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="of the other flavour: use Table"):
        jobs.AsyncTable(one.engine)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="a database for each thread: give a file"):
        jobs.Table(create_engine("sqlite://"))
    with pytest.raises(ConfigurationError, match="engine='sqlite://' is no Engine"):
        jobs.Table("sqlite://")  # type: ignore[arg-type]


def test_a_database_that_cannot_be_reached(tmp_path: Path) -> None:
    table = jobs.Table(create_engine(f"sqlite:///{tmp_path}/no/such/folder/jobs.db"))
    with pytest.raises(BackendUnavailable, match="the jobs' database"):
        table.counts()
    with Client("memory://") as locks, pytest.raises(BackendUnavailable):
        jobs.Worker(locks, table, {"mail": print}).run()


def test_both_tables_have_the_same_methods() -> None:
    def signatures(cls: type) -> dict[str, str]:
        public = [name for name, thing in vars(cls).items() if name[0] != "_" and callable(thing)]
        return {name: ", ".join(inspect.signature(getattr(cls, name)).parameters) for name in public}

    assert signatures(jobs.Table) == signatures(jobs.AsyncTable)
    assert signatures(jobs.Worker) == signatures(jobs.AsyncWorker)
    assert signatures(jobs.Job) == signatures(jobs.AsyncJob)


def test_the_asyncio_table(tmp_path: Path) -> None:
    async def main() -> None:
        engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/jobs.db")
        table = jobs.AsyncTable(engine)
        await table.create()
        first = await table.enqueue("mail", {"n": 1}, key="k")
        async with engine.begin() as conn:
            assert await table.enqueue("mail", {"n": 1}, key="k", conn=conn) == first
            second = await jobs.AsyncTable(engine).enqueue("mail", conn=conn)
        assert (await table.counts())["pending"] == 2
        assert [job.id for job in await table.ls(kind="mail")] == [first, second]
        await table.cancel(1)
        await table.retry(1)
        await table.cancel(second)
        job = await table.get(1)
        assert job is not None and job.status == "pending"
        assert await table.purge(older_than=0) == 1
        await table.check()
        async with engine.begin() as conn:
            assert (await conn.execute(text("SELECT count(*) FROM fencelock_jobs"))).scalar() == 1
        await engine.dispose()

    asyncio.run(main())


def test_without_sqlalchemy_one_line_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['sqlalchemy'] = None\n"
        "from fencelock import jobs\n"
        "try: jobs.Table('sqlite://')\n"
        "except ValueError as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip().endswith("pip install 'fencelock[jobs]'")
