"""`fencelock ls`, `show`, `watch`, `break`, `doctor`, `conform` as real processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import fencelock_command, running, wait_until

import fencelock
from fencelock.findings import SEVERITIES

NASTY = "<script>alert(1)</script>\x1b]0;owned\x07\x1b[31m\u202e\x9b2J\n[red]x[/red]"
ESCAPED = r"<script>alert(1)</script>\x1b]0;owned\x07\x1b[31m\u202e\x9b2J\n[red]x[/red]"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite://{tmp_path}/locks.db"


@pytest.fixture
def locks(url: str) -> Iterator[fencelock.Client]:
    with fencelock.Client(url, client_name="tester") as client:
        yield client


def assert_harmless(text: str) -> None:
    assert all(char.isprintable() or char == "\n" for char in text), repr(text)


def test_nothing_to_see(url: str) -> None:
    for args, empty in (("ls",), []), (("show", "job"), {"name": "job", "holders": [], "waiters": []}):
        result = fencelock_command(url, *args)
        assert (result.returncode, result.stdout) == (0, "")
        assert result.stderr.strip()
        assert json.loads(fencelock_command(url, *args, "--json").stdout) == empty


def test_ls_and_show(url: str, locks: fencelock.Client) -> None:
    with (
        locks.lock("a:1", metadata={"ticket": 17}) as lease,
        locks.semaphore("a:2", 3),
        locks.rwlock("b").read(),
        running(url, "run", "a:1", "--", "true") as waiter,
    ):
        wait_until(lambda: locks.inspect("a:1").waiters, "a waiter")
        lines = fencelock_command(url, "ls").stdout.splitlines()
        assert [line.split()[0] for line in lines] == ["NAME", "a:1", "a:2", "b"]
        assert str(lease.token) in lines[1] and "tester" in lines[1] and lines[1].endswith("1")
        assert "3 slots" in lines[2] and "shared" in lines[3]
        listed = fencelock_command(url, "ls", "a:").stdout
        assert "a:2" in listed and "\nb " not in listed

        shown = fencelock_command(url, "show", "a:1").stdout.splitlines()
        assert shown[1].startswith("holds") and shown[2].startswith("waits")
        assert lease.owner in shown[1] and '{"ticket": 17}' in shown[1]
        assert f":{waiter.pid}" in shown[2]

        state = json.loads(fencelock_command(url, "show", "--json", "a:1").stdout)
        assert state["holders"][0]["token"] == lease.token
        assert state["holders"][0]["metadata"] == {"ticket": 17}
        assert [entry["pid"] for entry in state["waiters"]] == [waiter.pid]
        states = json.loads(fencelock_command(url, "ls", "--json").stdout)
        assert [each["name"] for each in states] == ["a:1", "a:2", "b"]


def test_a_holder_whose_process_has_died_is_marked(url: str, locks: fencelock.Client) -> None:
    mark = "(process not found on this host)"
    with locks.lock("alive"), fencelock.Client(url) as far:
        origin = far._session.origin
        with running(url, "run", "--ttl", "600", "dead", "--", "sleep", "600") as holder:
            wait_until(lambda: locks.inspect("dead").holders, "a holder")
            assert mark not in fencelock_command(url, "ls").stdout
            holder.kill()
            holder.wait(30)
        far._session.origin = origin._replace(host="elsewhere", pid=holder.pid)
        with far.lock("far"):
            lines = fencelock_command(url, "ls").stdout.splitlines()
            assert [line.split()[0] for line in lines if mark in line] == ["dead"]
            found = json.loads(fencelock_command(url, "ls", "--json").stdout)
            assert {state["name"]: state["holders"][0]["process_found"] for state in found} == {
                "alive": True,
                "dead": False,
                "far": None,
            }
        (line,) = fencelock_command(url, "show", "dead").stdout.splitlines()[1:]
        assert f"{holder.pid} {mark}" in line
        state = json.loads(fencelock_command(url, "show", "--json", "dead").stdout)
        assert state["holders"][0]["process_found"] is False
        top = fencelock_command(url, "top", "--once").stdout.splitlines()
        assert [line.split()[0] for line in top if mark in line] == ["dead"]
        with running(url, "watch", "--interval", "50ms") as watcher:
            assert watcher.stdout is not None
            held = sorted(watcher.stdout.readline() for _ in range(2))
        assert [mark in line for line in held] == ["dead" in line for line in held]


def test_a_waiters_expiry_is_explained(url: str, locks: fencelock.Client) -> None:
    with locks.lock("job"):
        assert fencelock_command(url, "show", "job").stderr == "", "a holder alone needs no words"
        with running(url, "run", "job", "--", "true"):
            wait_until(lambda: locks.inspect("job").waiters, "a waiter")
            shown = fencelock_command(url, "show", "job")
            assert len(shown.stdout.splitlines()) == 3
            assert "a waiter its place unless it gives a sign of life" in shown.stderr
    assert "a waiter loses its place unless" in " ".join(
        fencelock_command(url, "show", "--help").stdout.split()
    )


def test_nothing_reaches_the_terminal_raw(url: str) -> None:
    with fencelock.Client(url, client_name=NASTY) as locks:
        lease = locks.lock(NASTY, metadata={NASTY: [NASTY]}).acquire()
        for args in (["ls"], ["show", NASTY], ["break", "--yes", "--owner", "nobody", NASTY]):
            result = fencelock_command(url, *args)
            assert_harmless(result.stdout + result.stderr)
            assert ESCAPED in result.stdout + result.stderr
        refused = fencelock_command(url, "run", "--try", NASTY, "--", "true")
        assert refused.returncode == 75
        assert_harmless(refused.stderr)
        assert json.loads(fencelock_command(url, "ls", "--json").stdout)[0]["name"] == NASTY
        broken = fencelock_command(url, "break", "--yes", NASTY)
        assert_harmless(broken.stdout)
        assert lease.owner in broken.stdout


def events(process: subprocess.Popen[str], count: int) -> list[dict[str, Any]]:
    assert process.stdout is not None
    return [json.loads(process.stdout.readline()) for _ in range(count)]


def test_watch_tells_what_happens(url: str, locks: fencelock.Client) -> None:
    before = locks.lock("before").acquire()
    with running(url, "watch", "--json", "--interval", "50ms") as watcher:
        assert [(event["event"], event["name"]) for event in events(watcher, 1)] == [("held", "before")]
        lease = locks.lock("job").acquire()
        taken = events(watcher, 1)[0]
        assert (taken["event"], taken["name"], taken["owner"]) == ("taken", "job", lease.owner)
        with running(url, "run", "--wait", "20s", "job", "--", "sleep", "0.5") as waiter:
            queued = events(watcher, 1)[0]
            assert (queued["event"], queued["pid"]) == ("queued", waiter.pid)
            lease.release()
            released, taken, gone = events(watcher, 3)
            assert [event["event"] for event in (released, taken, gone)] == ["released", "taken", "released"]
            assert (released["owner"], taken["pid"], gone["pid"]) == (lease.owner, waiter.pid, waiter.pid)
        with running(url, "run", "before", "--", "true") as waiter:
            assert events(watcher, 1)[0]["event"] == "queued"
            waiter.terminate()
            assert events(watcher, 1)[0]["event"] == "left"
        watcher.send_signal(signal.SIGINT)
        stdout, stderr = watcher.communicate(timeout=30)
        assert (watcher.returncode, stdout, stderr) == (130, "", "")
    before.release()


def test_watch_writes_lines_for_people(url: str, locks: fencelock.Client) -> None:
    with locks.lock("joker"), running(url, "watch", "jo", "--interval", "50ms") as watcher:
        assert watcher.stdout is not None
        assert " held " in watcher.stdout.readline()
        with locks.lock("job\x1b") as lease, locks.lock("other"):
            line = watcher.stdout.readline()
            assert_harmless(line)
            assert " taken " in line and r"job\x1b" in line and f"token {lease.token}" in line
        assert " released " in watcher.stdout.readline()
        watcher.send_signal(signal.SIGINT)
        assert watcher.wait(30) == 130


def test_watch_ends_when_nobody_reads(url: str) -> None:
    with running(url, "watch", "--interval", "50ms") as watcher:
        assert watcher.stdout is not None and watcher.stderr is not None
        watcher.stdout.close()
        assert watcher.wait(30) == 0
        assert watcher.stderr.read() == ""


def test_closed_pipe_is_no_error(url: str, locks: fencelock.Client) -> None:
    with locks.multi([f"job{number:05d}" for number in range(2000)]):
        result = subprocess.run(
            ["sh", "-c", f'"$0" ls --url "{url}" | head -1', *_fencelock()],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert (result.returncode, result.stderr) == (0, "")


def _fencelock() -> list[str]:
    from cli_helpers import FENCELOCK

    return [FENCELOCK]


def test_watch_refuses_a_silly_interval(url: str) -> None:
    assert fencelock_command(url, "watch", "--interval", "0").returncode == 64


def test_break(url: str, locks: fencelock.Client) -> None:
    lease = locks.lock("job", ttl=1).acquire()
    refused = fencelock_command(url, "break", "job")
    assert refused.returncode == 64 and "--yes" in refused.stderr
    assert lease.verify()
    assert fencelock_command(url, "break", "--yes", "--owner", "nobody", "job").returncode == 1
    assert lease.verify()
    broken = fencelock_command(url, "break", "--yes", "job")
    assert broken.returncode == 0 and lease.owner in broken.stdout
    assert lease.lost.wait(10)
    again = fencelock_command(url, "break", "--yes", "job")
    assert (again.returncode, again.stdout) == (1, "")
    assert len(again.stderr.splitlines()) == 1


def test_a_break_is_recorded_with_its_reason(
    url: str, locks: fencelock.Client, state_folder: Path, tmp_path: Path
) -> None:
    lease = locks.lock("job").acquire()
    reason = "host-a lost its disk \x1b[31m"
    broken = fencelock_command(url, "break", "--yes", "--reason", f" {reason} ", "job")
    log = state_folder / "audit.jsonl"
    assert broken.returncode == 0
    assert broken.stdout.endswith(r": host-a lost its disk \x1b[31m" + "\n")
    assert broken.stderr == f"fencelock: recorded in {log}\n"
    line = json.loads(log.read_text().splitlines()[-1])
    assert (line["name"], line["reason"], line["backend"]) == ("job", reason, url)
    assert line["user"] and line["address"] == socket.gethostname()
    assert [(each["owner"], each["token"]) for each in line["broken"]] == [(lease.owner, lease.token)]
    assert log.stat().st_mode & 0o077 == 0

    own = tmp_path / "own.jsonl"
    leases = [locks.semaphore("many", 3).acquire() for _ in range(2)]
    words = ("break", "--yes", "--audit-log", str(own), "many")
    assert fencelock_command(url, *words).returncode == 0
    assert fencelock_command(url, *words).returncode == 1, "nothing to break, nothing to write"
    (line,) = map(json.loads, own.read_text().splitlines())
    assert line["reason"] == ""
    assert {each["owner"] for each in line["broken"]} == {lease.owner for lease in leases}
    assert not any(each.verify() for each in [lease, *leases])


def test_a_break_that_cannot_be_recorded(url: str, locks: fencelock.Client, tmp_path: Path) -> None:
    """By default it is made all the same. A log that was asked for is refused before anything is broken."""
    (tmp_path / "file").write_text("")
    lease = locks.lock("job").acquire()
    for words in (["--reason", " "], ["--reason", "x" * 501], ["--audit-log", f"{tmp_path}/file/log"]):
        refused = fencelock_command(url, "break", "--yes", *words, "job")
        assert refused.returncode == 64 and len(refused.stderr.splitlines()) == 1
    assert lease.verify()
    environment = {**os.environ, "FENCELOCK_URL": url, "XDG_STATE_HOME": f"{tmp_path}/file"}
    command = [*_fencelock(), "break", "--yes", "--reason", "full", "job"]
    broken = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert broken.returncode == 0 and broken.stdout.endswith(": full\n")
    assert "cannot be written" in broken.stderr and not lease.verify()


def test_break_one_owner(url: str, locks: fencelock.Client) -> None:
    with locks.semaphore("job", 2) as kept:
        other = locks.semaphore("job", 2).acquire()
        assert fencelock_command(url, "break", "--yes", "--owner", other.owner, "job").returncode == 0
        assert not other.verify()
        assert kept.verify()


def test_break_a_waiter(url: str, locks: fencelock.Client) -> None:
    with locks.lock("job") as lease, running(url, "run", "job", "--", "true"):
        waiter = wait_until(lambda: locks.inspect("job").waiters, "a waiter")[0]
        assert fencelock_command(url, "break", "--yes", "--owner", waiter.owner, "job").returncode == 0
        assert lease.verify()


def test_doctor(url: str) -> None:
    result = fencelock_command(url, "doctor")
    assert result.returncode == 0, result.stderr
    assert "With this set-up fencelock promises" in result.stdout
    assert "acquire + release" in result.stdout
    data = json.loads(fencelock_command("memory://", "doctor", url, "--json").stdout)
    assert data["guarantees"]["scope"] == "host"
    assert data["promise"].startswith("With this set-up fencelock promises")
    assert (
        0
        < data["latency_seconds"]["acquire_release"]["min"]
        <= data["latency_seconds"]["acquire_release"]["p99"]
    )
    assert data["latency_seconds"]["renew"]["rounds"] >= 1
    assert {finding["severity"] for finding in data["findings"]} <= set(SEVERITIES)


def test_doctor_leaves_nothing(url: str, locks: fencelock.Client) -> None:
    fencelock_command(url, "doctor")
    assert locks.list() == []


@pytest.mark.parametrize(
    "args", [["doctor"], ["ls"], ["show", "x"], ["watch"], ["conform"], ["break", "--yes", "x"]]
)
def test_unreachable_is_69(tmp_path: Path, args: list[str]) -> None:
    result = fencelock_command(f"sqlite://{tmp_path}/no/such/folder/locks.db", *args)
    assert result.returncode == 69
    assert result.stderr.startswith("fencelock: ") and len(result.stderr.splitlines()) == 1


def test_two_urls_are_one_too_many(url: str) -> None:
    assert fencelock_command(url, "doctor", "memory://", "--url", url).returncode == 64


def test_conform(url: str) -> None:
    args = ["conform", "memory://", "--only", "tokens_rise_across_releases"]
    result = fencelock_command(url, *args)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "2 passed, 0 failed"
    data = fencelock_command(url, *args, "--json", "--flavour", "asyncio")
    assert [each["flavour"] for each in json.loads(data.stdout)["results"]] == ["asyncio"]
    assert fencelock_command(url, "conform", "memory://", "--only", "no_such_check").returncode == 64
