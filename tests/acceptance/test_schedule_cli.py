"""`fencelock cron` and `fencelock once` as users run them: several processes, real signals, real time."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from cli_helpers import alive, fencelock_command, running
from crew import sqlite_url, wait_until
from tools.servers import start

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
    today = int(time.time()) // 86_400 * 86_400
    assert (tmp_path / "ran").read_text() == f"schedule:report {today}\n"
    shown = fencelock_command(url, "cron", "--ls", "--json").stdout
    (run,) = json.loads(shown)
    assert (run["state"], run["detail"], run["exit_status"]) == ("failed", "exit status 3", 3)


def test_once_tells_of_a_run_that_failed_and_repeats_it_on_demand(url: str, tmp_path: Path) -> None:
    def once(*options: str, script: str = "echo ran >> ran; exit 3") -> subprocess.CompletedProcess[str]:
        words = ("once", "report", "--per", "24h", *options, "--", "sh", "-c", script)
        return fencelock_command(url, *words, cwd=tmp_path)

    assert once().returncode == 3
    host = f"{socket.gethostname()}:"
    for options in ((), ("-q",)):
        told = once(*options)
        assert told.returncode == 3, "as the host that ran it has exited"
        assert told.stderr.startswith(
            f"fencelock: 'report' failed in this period (exit status 3), on {host}"
        ) and told.stderr.endswith("Z: --retry-failed runs it again\n")
    assert (tmp_path / "ran").read_text() == "ran\n"
    assert once("--retry-failed", script="echo again >> ran; exit 4").returncode == 4
    assert once().returncode == 4
    assert once("--retry-failed", script="echo well >> ran").returncode == 0
    for options in ((), ("--retry-failed",)):
        told = once(*options)
        assert told.returncode == 0
        assert told.stderr == "fencelock: 'report' was run in this period already\n"
    assert once("--retry-failed", "-q").stderr == ""
    assert (tmp_path / "ran").read_text() == "ran\nagain\nwell\n"


@pytest.mark.parametrize("kind", ["sqlite", "redis", "postgres"])
def test_many_hosts_retry_at_once(kind: str, url: str, tmp_path: Path) -> None:
    """One of them runs the command again, alone; a run that ends well is the last."""
    script = "echo begins >> ran; sleep 0.5; echo ends >> ran"
    words = ("once", "job", "--per", "24h", "--retry-failed", "--", "sh", "-c", script)
    with ExitStack() as stack:
        if kind != "sqlite":
            url = stack.enter_context(start(kind)).url
        assert fencelock_command(url, "once", "job", "--per", "24h", "--", "false").returncode == 1
        hosts = [stack.enter_context(running(url, *words, cwd=tmp_path)) for _ in range(4)]
        assert [host.wait(30) for host in hosts] == [0] * 4
        assert states(url, "job") == ["done", "failed"]
    assert (tmp_path / "ran").read_text() == "begins\nends\n"


def test_once_tells_of_a_run_that_was_lost(url: str, tmp_path: Path) -> None:
    words = ("once", "job", "--per", "24h", "--ttl", "2")
    with running(url, *words, "--", "sleep", "60") as host:
        wait_until(lambda: states(url, "job") == ["running"], "it has begun")
        now = fencelock_command(url, *words, "--", "true")
        assert (now.returncode, now.stderr) == (0, "fencelock: 'job' is running now\n")
        host.kill()
        host.wait(30)
    with Client(url) as locks:
        wait_until(lambda: locks.inspect("schedule:job").is_free, "the lease has ended")
    told = fencelock_command(url, *words, "--", "touch", str(tmp_path / "ran"))
    assert told.returncode == 76 and not (tmp_path / "ran").exists()
    assert "'job' crashed in this period (its host died or lost the lease), on " in told.stderr
    again = fencelock_command(url, *words, "--retry-failed", "--", "touch", str(tmp_path / "ran"))
    assert again.returncode == 0 and (tmp_path / "ran").exists()
    assert states(url, "job") == ["done", "crashed"]


def test_once_finds_a_dead_host_and_repeats_its_run_at_once(url: str, tmp_path: Path) -> None:
    words = ("once", "job", "--per", "24h", "--ttl", "1")
    with running(url, *words, "--", "sleep", "60") as host:
        wait_until(lambda: states(url, "job") == ["running"], "it has begun")
        host.kill()
        host.wait(30)
    with Client(url) as locks:
        wait_until(lambda: locks.inspect("schedule:job").is_free, "the lease has ended")
    assert states(url, "job") == ["running"], "no host has looked yet"
    assert fencelock_command(url, *words, "--retry-failed", "--", "true").returncode == 0
    assert states(url, "job") == ["done", "crashed"]


def test_once_tells_of_a_function_of_python_that_failed(url: str) -> None:
    with Client(url) as locks, Schedule(locks) as schedule, pytest.raises(ZeroDivisionError):
        schedule.once("job", lambda: 1 / 0, per=86_400)
    told = fencelock_command(url, "once", "job", "--per", "24h", "--", "true")
    assert told.returncode == 1
    assert "failed in this period (ZeroDivisionError: division by zero)" in told.stderr


def test_a_retry_waits_for_the_lock_of_the_run_that_failed(url: str) -> None:
    """`--at-least-for` keeps it: no second run before that is over."""
    words = ("once", "job", "--per", "24h")
    with running(url, *words, "--at-least-for", "600", "--", "false") as host:
        wait_until(lambda: states(url, "job") == ["failed"], "it has failed")
        refused = fencelock_command(url, *words, "--retry-failed", "--wait", "0", "--", "true")
        assert refused.returncode == 75
        assert refused.stderr == "fencelock: 'job' is not run: the run before it has not ended\n"
        host.send_signal(signal.SIGTERM)
        host.wait(30)
    assert fencelock_command(url, *words, "--retry-failed", "--", "true").returncode == 0


def test_once_while_somebody_is_at_it(url: str, tmp_path: Path) -> None:
    with running(url, "once", "job", "--per", "24h", "--", "sleep", "60") as first:
        wait_until(lambda: states(url, "job") == ["running"], "it has begun")
        second = fencelock_command(
            url, "once", "job", "--per", "24h", "--", "touch", str(tmp_path / "second")
        )
        assert second.returncode == 0 and not (tmp_path / "second").exists()
        earlier = fencelock_command(url, "once", "job", "--per", "1", "--wait", "0", "--", "true")
        assert earlier.returncode == 75
        assert earlier.stderr == "fencelock: 'job' is not run: the run before it has not ended\n"
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
    told = fencelock_command(url, "once", "job", "--per", "24h", "--", "true")
    assert (
        told.returncode == 76 and "timed out in this period (at_most_for of 1s is over), on " in told.stderr
    )
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
