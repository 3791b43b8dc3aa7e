"""`fencelock worker` and `fencelock jobs`: targets, statuses, lines. tests/acceptance runs them."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from fencelock import jobs
from fencelock.cli import main
from fencelock.cli.target import made
from fencelock.cli.worker import picture

numbers = itertools.count()
MODULE = """
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from fencelock import AsyncClient, Client, jobs

table = jobs.Table(create_engine("sqlite:///app.db"))
table.create()
async_table = jobs.AsyncTable(create_async_engine("sqlite+aiosqlite:///app.db"))

def mail(job):
    if job.payload == "bad":
        raise jobs.Reject("no such address")

async def async_mail(job):
    pass

worker = jobs.Worker(Client("memory://"), table, {"mail": mail})
missing = jobs.Worker(None, jobs.Table(table.engine, "nowhere"), {"mail": mail})

def make():
    return jobs.Worker(None, table, {"mail": mail})

def make_async():
    return jobs.AsyncWorker(None, async_table, {"mail": async_mail})

def broken():
    raise ValueError("no settings")

def nothing():
    return None
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module of the user's, in the current directory."""
    name = f"app{next(numbers)}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / f"{name}bad.py").write_text("import nowhere_at_all")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield name
    module = sys.modules.pop(name, None)
    if module is not None:
        module.worker.locks.close()
        module.table.engine.dispose()


@pytest.fixture
def table(app: str) -> Iterator[jobs.Table]:
    engine = create_engine("sqlite:///app.db")
    table = jobs.Table(engine)
    table.create()
    yield table
    engine.dispose()


@pytest.mark.parametrize("name", ["worker", "make", "make_async"])
def test_a_worker_of_yours(
    app: str, table: jobs.Table, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table.enqueue("mail")
    assert main(["worker", f"{app}:{name}", "--once", "--concurrency", "2"]) == 0
    assert table.counts()["done"] == 1
    out = capsys.readouterr().out
    assert "INFO    job 1#mail done in attempt 1" in out


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("worker", "'worker' is no target: write module:name, as in myapp.jobs:worker"),
        ("./app.py:worker", "is no target"),
        ("nowhere_at_all:worker", "there is no module 'nowhere_at_all'"),
        ("{app}bad:worker", "bad' failed: No module named 'nowhere_at_all'"),
        ("{app}:nobody", "has no 'nobody'"),
        ("{app}:table", "is Table: give Worker or AsyncWorker, or a function that makes one"),
        ("{app}:nothing", "is NoneType: give Worker"),
        ("{app}:broken", "broken() failed: ValueError: no settings"),
        ("{app}:missing", "there is no table 'nowhere'"),
    ],
)
def test_targets_that_are_none(app: str, target: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["worker", target.format(app=app), "--once"]) == 64
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1 and err.startswith("fencelock: ")


def test_a_concurrency_that_is_none(app: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["worker", f"{app}:worker", "--concurrency", "0"]) == 64
    assert "concurrency=0 is out of range" in capsys.readouterr().err


def test_the_picture_says_what_it_is_at(app: str, table: jobs.Table) -> None:
    from rich.console import Console

    table.enqueue("mail")
    seen: list[str] = []
    worker = made(f"{app}:worker", "worker", (jobs.Worker,))

    def look(job: Any) -> None:
        out = StringIO()
        Console(file=out, width=80).print(picture(worker))
        seen.append(out.getvalue())

    worker.handlers["mail"] = look
    assert worker.run_once().done == 1
    assert "1#mail" in seen[0] and "1 taken" in seen[0]
    out = StringIO()
    Console(file=out, width=80).print(picture(worker))
    assert "1 taken, 1 done" in out.getvalue()


# Jobs -------------------------------------------------------------------------------------------


def asked(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def ask(*arguments: str) -> tuple[int, str, str]:
        status = main(["jobs", *arguments])
        told = capsys.readouterr()
        return status, told.out, told.err

    return ask


DB = ("--db", "sqlite:///app.db")


def test_ls_and_show(app: str, table: jobs.Table, capsys: pytest.CaptureFixture[str]) -> None:
    ask = asked(capsys)
    assert ask("ls", *DB) == (0, "", "no jobs\n")
    table.enqueue("mail", {"to": "al\x1bice"}, key="k")
    table.enqueue("fax", delay=7200)
    status, out, err = ask("ls", *DB)
    assert status == 0 and err == "2 pending\n"
    assert out.splitlines()[0].split() == [
        *("ID", "KIND", "STATUS", "ATTEMPTS", "DUE", "PRIORITY", "WORKER", "REASON"),
    ]
    assert "now" in out.splitlines()[1] and "in 2h00m" in out.splitlines()[2]
    status, out, _ = ask("ls", "--json", "--kind", "fax", "--status", "pending", *DB)
    assert [job["id"] for job in json.loads(out)["jobs"]] == [2]
    assert json.loads(out)["counts"]["pending"] == 2
    for source in ("table", "worker", "async_table", "make"):
        status, out, _ = ask("show", "1", "--json", "--source", f"{app}:{source}")
        assert status == 0 and json.loads(out)[0]["key"] == "k"
    status, out, _ = ask("show", "1", "2", *DB)
    assert 'payload   {"to": "al\\u001bice"}' in out and "kind      fax" in out


def test_retry_cancel_and_purge(app: str, table: jobs.Table, capsys: pytest.CaptureFixture[str]) -> None:
    ask = asked(capsys)
    table.enqueue("mail", "bad")
    assert main(["worker", f"{app}:worker", "--once"]) == 0
    assert "ERROR   job 1#mail is dead after attempt 1: no such address" in capsys.readouterr().out
    assert "no such address" in ask("ls", *DB)[1]
    assert ask("retry", "1", *DB) == (0, "job 1 is pending\n", "")
    with table.engine.begin() as conn:
        conn.exec_driver_sql("UPDATE fencelock_jobs SET status = 'running'")
    assert ask("retry", "1", *DB) == (
        64,
        "",
        "fencelock: job '1' is running: wait until it ends, or cancel it first\n",
    )
    status, out, _ = ask("cancel", "1", "--json", *DB)
    assert status == 0 and json.loads(out)[0]["status"] == "cancelled"
    assert ask("purge", *DB) == (0, "0 deleted\n", "")
    assert ask("purge", "--older-than", "0s", "--json", *DB)[1] == '{\n  "deleted": 1\n}\n'


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ls",), "give --source module:name, or --db URL"),
        (("ls", "--source", "a:b", *DB), "give --source module:name, or --db URL"),
        (("ls", "--source", "a:b", "--table", "x"), "--table goes with --db"),
        (("show", *DB), "show needs which: give the ids of jobs"),
        (("ls", "1", *DB), "ls needs no ids"),
        (("show", "99", *DB), "there is no job '99' in 'fencelock_jobs'"),
        (("show", "x", *DB), "there is no job 'x'"),
        (("cancel", "99", *DB), "there is no job '99'"),
        (("ls", *DB, "--table", "nowhere"), "there is no table 'nowhere'"),
        (("ls", "--db", "sqlite:///nowhere.db"), "there is no file 'nowhere.db'"),
        (("ls", "--db", "what is this"), "cannot be used"),
        (("ls", "--db", "oracle9://u:secret@h/d"), "cannot be used"),
        (("ls", "--db", "sqlite+aiosqlite:///app.db"), "has an asynchronous driver"),
        (("ls", "--limit", "0", *DB), "limit=0"),
        (("ls", "--source", "json:dumps"), "failed"),
        (("ls", "--source", "json:JSONDecoder"), "is JSONDecoder: give Table or AsyncTable or Worker"),
    ],
)
def test_wrong_usage_is_one_line(
    app: str, table: jobs.Table, arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = asked(capsys)(*arguments)
    assert (status, out) == (64, "")
    assert said in err and err.count("\n") == 1 and "secret" not in err
