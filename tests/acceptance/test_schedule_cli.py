"""`fencelock cron` and `fencelock once` as users run them: several processes, real signals, real time."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from cli_helpers import alive, fencelock_command, running
from crew import sqlite_url, wait_until

from fencelock import Client
from fencelock.schedule import Schedule


@pytest.fixture
def url(tmp_path: Path) -> str:
    return sqlite_url(tmp_path)


def states(url: str, name: str) -> list[str]:
    with Client(url) as locks, Schedule(locks) as schedule:
        return [run.state for run in schedule.history(name)]


def test_once_runs_on_one_host_in_each_period(url: str, tmp_path: Path) -> None:
    script = (
        'echo "$FENCELOCK_NAME $FENCELOCK_TICK" >> ran; test -n "$FENCELOCK_TOKEN$FENCELOCK_OWNER"; exit 3'
    )
    words = ("once", "report", "--per", "24h", "--", "sh", "-c", script)
    first = fencelock_command(url, *words, cwd=tmp_path)
    assert (first.returncode, first.stdout, first.stderr) == (3, "", "")
    second = fencelock_command(url, *words, cwd=tmp_path)
    assert second.returncode == 0
    assert second.stderr == "fencelock: 'report' was run in this period already\n"
    assert fencelock_command(url, words[0], "-q", *words[1:], cwd=tmp_path).stderr == ""
    today = int(time.time()) // 86_400 * 86_400
    assert (tmp_path / "ran").read_text() == f"schedule:report {today}\n"
    shown = fencelock_command(url, "cron", "--ls", "--json").stdout
    assert [(run["state"], run["detail"]) for run in json.loads(shown)] == [("failed", "exit status 3")]


def test_once_while_somebody_is_at_it(url: str, tmp_path: Path) -> None:
    with running(url, "once", "job", "--per", "24h", "--", "sleep", "60") as first:
        wait_until(lambda: states(url, "job") == ["running"], "it has begun")
        second = fencelock_command(
            url, "once", "job", "--per", "24h", "--", "touch", str(tmp_path / "second")
        )
        assert second.returncode == 0 and not (tmp_path / "second").exists()
        earlier = fencelock_command(url, "once", "job", "--per", "1", "--wait", "0", "--", "true")
        assert earlier.returncode == 75
        assert earlier.stderr == "fencelock: 'job' is still running for an earlier period: not run\n"
        first.send_signal(signal.SIGTERM)
        assert first.wait(30) == 128 + signal.SIGTERM
    assert states(url, "job") == ["failed"]


def test_at_most_for_ends_the_whole_group(url: str, tmp_path: Path) -> None:
    script = "sleep 600 & echo $! > child; wait"
    words = ("once", "job", "--per", "24h", "--at-most-for", "1", "--", "sh", "-c", script)
    done = fencelock_command(url, *words, cwd=tmp_path)
    assert done.returncode == 76
    assert "at_most_for of 1s is over: stopping the command" in done.stderr
    assert not alive(int((tmp_path / "child").read_text()))
    assert states(url, "job") == ["timed out"]
    with Client(url) as locks:
        assert locks.list() == []


def test_cron_on_three_hosts(url: str, tmp_path: Path) -> None:
    """Each tick once; the host that runs one is killed, and the others go on with the next."""
    script = 'echo "$FENCELOCK_TICK" >> ticks; sleep 0.1'
    words = ("cron", "--ttl", "1", "--catch-up", "all", "* * * * * *", "beat", "--", "sh", "-c", script)
    file = tmp_path / "ticks"

    def ticks() -> list[int]:
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    with ExitStack() as stack:
        hosts = [stack.enter_context(running(url, *words, cwd=tmp_path)) for _ in range(3)]
        wait_until(lambda: len(ticks()) >= 2, "ticks")
        os.kill(hosts[0].pid, signal.SIGKILL)
        before = len(ticks())
        wait_until(lambda: len(ticks()) >= before + 3, "ticks after the kill")
        for host in hosts[1:]:
            host.send_signal(signal.SIGTERM)
        assert [host.wait(30) for host in hosts[1:]] == [128 + signal.SIGTERM] * 2
        hosts[0].wait(30)
    with Client(url) as locks, Schedule(locks) as schedule:
        crashed = {run.tick for run in schedule.history("beat") if run.state == "crashed"}
    assert len(set(ticks())) == len(ticks()), "none twice"
    left_out = set(range(ticks()[0], ticks()[-1] + 1)) - set(ticks())
    assert left_out <= crashed and len(left_out) <= 1, "at most the one that was begun by who was killed"


def test_a_backend_that_is_away_from_the_start() -> None:
    url = "redis://127.0.0.1:1/"
    for words in (("cron", "* * * * *"), ("once", "--per", "5m")):
        done = fencelock_command(url, *words, "job", "--", "true")
        assert done.returncode == 69 and done.stderr.count("\n") == 1
