"""`fencelock bench` as a real process on a real Redis: what it measures, and that it leaves nothing behind.

Not when it ends, not on Ctrl-C in any of its measurements, not when the server goes away, and not when it is
killed itself. Nothing here is about how fast anything is.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import FENCELOCK, environment, on_terminal
from crew import wait_until
from test_demo import read_all, read_until
from tools.servers import start

import fencelock

PREFIX = "fencelock-bench-"
PASSWORD = "a-password-nobody-may-see"
PATIENCE = 120.0
LOCKING = [
    *("pair_blocking", "pair_asyncio", "pairs_tasks"),
    *("handoff_threads", "handoff_processes", "renewal_sweep"),
]
SMALL = ["--tasks", "4", "--contenders", "3", "--leases", "30"]

ONLY = """
import sys
from fencelock.cli import bench, main
plan, key = bench.plan, sys.argv.pop(1)
bench.plan = lambda course: [step for step in plan(course) if step.key == key]
sys.exit(main(sys.argv[1:]))
"""
"""`fencelock`, with one measurement only."""


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with start("redis") as group:
        yield group


@pytest.fixture
def locks(server: Any) -> Iterator[fencelock.Client]:
    with fencelock.Client(server.url) as client:
        yield client


def command(url: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end. It starts processes one after the other: on a busy machine that takes a while."""
    return subprocess.run(
        [FENCELOCK, *args],
        env=environment(url),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@contextlib.contextmanager
def measuring(url: str, key: str, mark: str) -> Iterator[subprocess.Popen[str]]:
    """Let one measurement run for minutes; `mark` is in the environment of every process that it starts."""
    program = [sys.executable, "-c", ONLY, key, "bench", "--seconds", "4m", *SMALL]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    env = {**environment(url), "FENCELOCK_TEST_MARK": mark}
    with subprocess.Popen(program, env=env, stdin=subprocess.DEVNULL, **pipes) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            for pid in marked(mark):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def marked(mark: str) -> dict[int, str]:
    """Return the processes that have this mark, with their command lines."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"FENCELOCK_TEST_MARK={mark}\0" in (process / "environ").read_text(errors="replace"):
                found[int(process.name)] = (process / "cmdline").read_text()
    return found


def at_work(locks: fencelock.Client, key: str) -> None:
    """Wait until the measurement has locks."""

    def busy() -> bool:
        names = [state.name for state in locks.list(PREFIX)]
        return len(names) >= (10 if key == "renewal_sweep" else 1)

    wait_until(busy, f"{key} at work", PATIENCE)


def test_all_of_it(server: Any, locks: fencelock.Client) -> None:
    before = server.members[0].ask("DBSIZE")
    done = command(server.url, "bench", "--json", "--seconds", "500ms", *SMALL)
    assert (done.returncode, done.stderr) == (0, "")
    data = json.loads(done.stdout)
    assert (data["backend"], data["url"]) == ("redis", server.url)
    found = data["measurements"]
    assert list(found) == ["round_trip", *LOCKING]
    for key, one in found.items():
        # On a busy machine half a second may pass without a handoff.
        assert one["count"] or (key.startswith("handoff") and "no handoff" in one["note"]), one
        assert not one["count"] or one["latency_seconds"]["median"] <= one["latency_seconds"]["p99"]
    assert locks.list(PREFIX) == []
    assert server.members[0].ask("DBSIZE") - before <= 256, "counters, not names"
    assert PREFIX not in str(server.members[0].ask("KEYS", "*"))


def test_plain_table(server: Any) -> None:
    done = command(server.url, "bench", "--seconds", "100ms", *SMALL)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    assert lines[1] == server.url and lines[3].split()[:3] == ["STEP", "COUNT", "MEDIAN"]
    for title in (
        "round trip",
        "pair, blocking",
        "pairs, 4 tasks",
        "handoff, 3 processes",
        "renew 30 leases",
    ):
        assert any(line.startswith(title) for line in lines)


@pytest.mark.parametrize("key", LOCKING)
def test_interrupted_it_leaves_nothing(
    server: Any, locks: fencelock.Client, tmp_path: Path, key: str
) -> None:
    with measuring(server.url, key, str(tmp_path)) as process:
        at_work(locks, key)
        lines = marked(str(tmp_path))
        assert len(lines) == (4 if key == "handoff_processes" else 1)
        assert not any(server.url in line for line in lines.values()), "everybody could read a password there"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, out, err) == (130, "", "")
        assert locks.list(PREFIX) == [], "at once: nothing has to expire"
        assert marked(str(tmp_path)) == {}


def test_killed_it_leaves_no_process(server: Any, locks: fencelock.Client, tmp_path: Path) -> None:
    with measuring(server.url, "handoff_processes", str(tmp_path)) as process:
        at_work(locks, "handoff_processes")
        process.kill()
        wait_until(lambda: not marked(str(tmp_path)), "contenders end by themselves", PATIENCE)
        assert locks.list(PREFIX) == []


@pytest.mark.parametrize("key", LOCKING)
def test_the_server_goes_away(tmp_path: Path, key: str) -> None:
    with start("redis") as group, measuring(group.url, key, str(tmp_path)) as process:
        with fencelock.Client(group.url) as locks:
            at_work(locks, key)
        group.members[0].kill()
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, out) == (69, "")
        assert err.startswith("fencelock: redis: ") and len(err.splitlines()) == 1
        assert marked(str(tmp_path)) == {}


def test_no_server_and_no_password(server: Any) -> None:
    server.members[0].ask("ACL", "SETUSER", "locks", "reset", "on", f">{PASSWORD}", "~*", "&*", "+@all")
    try:
        url = server.url.replace("://", f"://locks:{PASSWORD}@")
        for output in ([], ["--json"]):
            done = command("memory://", "bench", url, "--seconds", "50ms", *SMALL, *output)
            assert done.returncode == 0 and "locks:***@" in done.stdout
            assert PASSWORD not in done.stdout + done.stderr
        wrong = command("memory://", "bench", url.replace(PASSWORD, f"{PASSWORD}-wrong"))
        nobody = command("memory://", "bench", f"redis://locks:{PASSWORD}@127.0.0.1:1/0")
        for done in (wrong, nobody):
            assert (done.returncode, done.stdout) == (69, "")
            assert done.stderr.startswith("fencelock: ") and len(done.stderr.splitlines()) == 1
            assert PASSWORD not in done.stderr
    finally:
        server.members[0].ask("ACL", "DELUSER", "locks")


def bench(url: str, *args: str) -> contextlib.AbstractContextManager[tuple[subprocess.Popen[bytes], int]]:
    """Run it on a terminal of 80 columns."""
    env = {key: value for key, value in environment(url).items() if key != "NO_COLOR"}
    env |= {"COLUMNS": "80", "LINES": "24", "TERM": "xterm-256color"}
    return on_terminal(env, "bench", *args)


def test_on_a_terminal(server: Any) -> None:
    with bench(server.url, "--seconds", "200ms", *SMALL) as (process, screen):
        told = read_all(screen)
        assert process.wait(PATIENCE) == 0, told
    assert told.count("\x1b[?25l") == told.count("\x1b[?25h") == 1, "the cursor is back"
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", told)
    assert "6/7 renew 30 leases" in plain, "a bar shows how far it is"
    assert "FAST TO SLOW" in plain and "█" in plain
    assert max(len(line) for line in re.split(r"[\r\n]+", plain.partition("STEP")[2])) <= 80, "no line wraps"


def test_ctrl_c_on_a_terminal(server: Any, locks: fencelock.Client) -> None:
    with bench(server.url, "--seconds", "5s", *SMALL) as (process, screen):
        seen = read_until(process, screen, "pair, blocking")
        at_work(locks, "pair_blocking")
        os.write(screen, b"\x03\x03\x03")  # who presses it again does not get less
        seen += read_all(screen)
        assert process.wait(PATIENCE) == 130, seen
    assert "Traceback" not in seen and "COUNT" not in seen
    assert seen.rindex("\x1b[?25h") > seen.rindex("\x1b[?25l"), "the cursor is back"
    assert locks.list(PREFIX) == []
