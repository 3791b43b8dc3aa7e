"""APScheduler on several hosts (processes): each run time once, though clocks differ and one host dies.

`FENCELOCK_TICKS=60` lets them run for so many seconds.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from collections import Counter
from pathlib import Path

import pytest
from crew import Crew, Member, wait_until

from fencelock.idempotency import create_table

TICKS = int(os.environ.get("FENCELOCK_TICKS", "4"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with sqlite3.connect(tmp_path / "runs.db") as conn:
        create_table(conn)
    conn.close()
    (tmp_path / "notes").touch()
    return tmp_path


def notes(folder: Path) -> list[tuple[str, int, int]]:
    lines = [line.split() for line in (folder / "notes").read_text().splitlines()]
    return [(what, int(token), int(pid)) for what, token, pid in lines]


def dismissed(hosts: list[Member]) -> list[dict[str, object]]:
    """End all hosts; return what their schedulers have reported."""
    for host in hosts:
        host.signal(signal.SIGTERM)
    told = []
    for host in hosts:
        assert host.end() == 0, host.errors
        while True:
            try:
                told.append(host.hear())
            except AssertionError:
                break
    return told


def test_each_run_time_is_run_once_by_one_of_four_hosts(folder: Path, crew: Crew) -> None:
    """Two with threads and two on a loop, and one of each is late."""
    cases = [("blocking", 0.0), ("blocking", 0.4), ("asyncio", 0.0), ("asyncio", 0.3)]
    hosts = [crew.start("contrib_apscheduler", folder, flavour, "cron", shift) for flavour, shift in cases]
    for host in hosts:
        assert host.hear()["kind"] == "ready"
    wait_until(lambda: len(notes(folder)) >= 2 * TICKS, f"{TICKS} runs", TICKS + 60)
    told = dismissed(hosts)
    assert {one["kind"] for one in told} == {"executed"}, told
    due = Counter(one["due"] for one in told)
    assert set(due.values()) == {1}, "each run time once"
    moments = sorted(due)
    assert moments == [moments[0] + number for number in range(len(moments))], "and none was left out"
    found = notes(folder)
    assert len(found) == 2 * len(moments)
    for begun, ended in zip(found[::2], found[1::2], strict=True):
        assert begun[0] == "begun" and ended == ("ended", *begun[1:]), "no two at once"
    tokens = [token for _, token, _ in found[::2]]
    assert tokens == sorted(set(tokens))


def test_a_host_killed_in_the_middle_is_followed_by_another(folder: Path, crew: Crew) -> None:
    (folder / "due").write_text(json.dumps(int(time.time()) + 4))
    hosts = [crew.start("contrib_apscheduler", folder, "blocking", "once", 0) for _ in range(3)]
    for host in hosts:
        assert host.hear()["kind"] == "ready"
    first = wait_until(lambda: notes(folder), "one has begun")[0]
    killed = next(host for host in hosts if host.pid == first[2])
    killed.signal(signal.SIGKILL)
    killed.end()
    (folder / "killed").touch()
    wait_until(lambda: len(notes(folder)) == 3, "another has done it")
    told = dismissed([host for host in hosts if host is not killed])
    assert [one["kind"] for one in told] == ["executed"]
    _, second, third = notes(folder)
    assert (second[0], third[0]) == ("begun", "ended")
    assert second[1] == third[1] > first[1]
    assert second[2] == third[2] != first[2]
