"""`fencelock worker` as a process: it drains on SIGTERM, gives back after the grace, and ends well."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_helpers import FENCELOCK, PATIENCE, running
from crew import wait_until
from sqlalchemy import create_engine

from fencelock import jobs

APP = """
import time
from pathlib import Path
from sqlalchemy import create_engine
from fencelock import Client, jobs

table = jobs.Table(create_engine("sqlite:///app.db", connect_args={"timeout": 30}))

def mail(job):
    Path(f"began-{job.id}").touch()
    while not Path("go").exists():
        time.sleep(0.01)

def make(grace=30):
    locks = Client(f"sqlite://{Path.cwd()}/locks.db")
    return jobs.Worker(locks, table, {"mail": mail}, poll=0.05, grace=grace)

def hasty():
    return make(grace=0.2)
"""


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[jobs.Table]:
    (tmp_path / "app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    engine = create_engine("sqlite:///app.db", connect_args={"timeout": 30})
    table = jobs.Table(engine)
    table.create()
    yield table
    engine.dispose()


def test_sigterm_lets_jobs_end(table: jobs.Table) -> None:
    for _ in range(3):
        table.enqueue("mail")
    with running("memory://", "worker", "app:make") as process:
        wait_until(lambda: [*Path().glob("began-*")], "a job has begun")
        process.send_signal(signal.SIGTERM)
        Path("go").touch()
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (0, "")
    assert "done in attempt 1" in out
    assert (table.counts()["done"], table.counts()["pending"]) == (1, 2)


@pytest.mark.parametrize(("name", "signals"), [("make", 2), ("hasty", 1)])
def test_what_does_not_end_is_given_back(table: jobs.Table, name: str, signals: int) -> None:
    """After the grace, or at the second signal."""
    table.enqueue("mail")
    with running("memory://", "worker", f"app:{name}") as process:
        wait_until(lambda: [*Path().glob("began-*")], "a job has begun")
        process.send_signal(signal.SIGTERM)
        if signals == 2:
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (76, "")
    assert "job 1#mail was given back: the worker was stopped" in out
    job = table.get(1)
    assert job is not None and (job.status, job.attempts) == ("pending", 0)


def test_a_live_table_on_a_terminal(table: jobs.Table) -> None:
    """What is under way is seen there, and what is odd is said above it."""
    table.enqueue("mail")
    table.enqueue("fax")
    parent, child = os.openpty()
    process = subprocess.Popen(
        [FENCELOCK, "worker", "app:make"], stdin=child, stdout=child, stderr=child, start_new_session=True
    )
    os.close(child)
    seen = b""
    try:
        while b"1#mail" not in seen:
            seen += os.read(parent, 65536)
        process.send_signal(signal.SIGTERM)
        Path("go").touch()
        try:
            while part := os.read(parent, 65536):
                seen += part
        except OSError:
            pass  # the terminal ends with the process
        assert process.wait(PATIENCE) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(parent)
    assert b"EXPIRES" in seen and b"1 taken, 1 done" in seen
    assert b"no handler for are waiting: 'fax'" in seen
