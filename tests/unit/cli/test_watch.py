"""What has happened between two pictures."""

from __future__ import annotations

import json
import os
import socket
import subprocess

import pytest

import fencelock
from fencelock.changes import Change, changes
from fencelock.cli.look import entry_rows, process_found
from fencelock.cli.watch import json_line, line


def entry(owner: str, token: int = 1, host: str = "h", pid: int = 1) -> fencelock.Entry:
    return fencelock.Entry(
        owner=owner,
        token=token,
        mode="exclusive",
        client="c",
        host=host,
        pid=pid,
        since=0.0,
        expires_in=1.0,
        age=2.0,
    )


def state(holders: str = "", waiters: str = "", name: str = "n") -> fencelock.LockState:
    return fencelock.LockState(
        name=name,
        holders=tuple(entry(each) for each in holders),
        waiters=tuple(entry(each) for each in waiters),
    )


def told(before: list[fencelock.LockState] | None, after: list[fencelock.LockState]) -> list[tuple[str, str]]:
    return [(event.event, event.entry.owner) for event in changes(before, after)]


def test_how_things_stand() -> None:
    assert told(None, []) == []
    assert told(None, [state("a", "bc")]) == [("held", "a"), ("waiting", "b"), ("waiting", "c")]


def test_changes() -> None:
    assert told([], [state("a")]) == [("taken", "a")]
    assert told([state("a")], []) == [("released", "a")]
    assert told([state("a")], [state("a", "b")]) == [("queued", "b")]
    assert told([state("a", "b")], [state("a")]) == [("left", "b")]
    assert told([state("a", "bc")], [state("b", "c")]) == [("released", "a"), ("taken", "b")]
    assert told([state("a", "b")], [state("c")]) == [("released", "a"), ("left", "b"), ("taken", "c")]
    assert told([state("a")], [state("a")]) == []


def test_same_owner_of_two_names_is_two() -> None:
    assert told([state("a", name="x")], [state("a", name="y")]) == [("released", "a"), ("taken", "a")]


def test_forms() -> None:
    event = Change("taken", "job\x1b", entry("a", 17))
    assert line(event, 0).endswith(r" taken    job\x1b  c h:1  exclusive  token 17")
    assert line(Change("released", "job", entry("a")), 0).endswith("after 2.0s")
    data = json.loads(json_line(event, 1.5))
    assert (data["time"], data["event"], data["name"], data["token"]) == (1.5, "taken", "job\x1b", 17)


@pytest.fixture
def dead() -> fencelock.Entry:
    """Return a holder of this host whose process has ended."""
    with subprocess.Popen(["true"]) as process:
        process.wait()
    return entry("d", host=socket.gethostname(), pid=process.pid)


def test_a_process_that_is_gone_is_marked_while_it_is_in_the_queue(dead: fencelock.Entry) -> None:
    mark = f":{dead.pid} (process not found on this host)"
    assert [mark in row[1] for row in entry_rows([dead], [entry("a"), dead])] == [True, False, True]
    for event in ("held", "waiting", "taken", "queued"):
        assert mark in line(Change(event, "job", dead), 0)
    for event in ("released", "left"):
        assert mark not in line(Change(event, "job", dead), 0), "it has gone, as is told anyway"
    assert json.loads(json_line(Change("held", "job", dead), 0))["process_found"] is False


def test_nothing_is_claimed_that_is_not_known() -> None:
    here = socket.gethostname()
    assert process_found(entry("a", host=here, pid=os.getpid())) is True
    assert process_found(entry("a", host=here, pid=1)) is True, "another user's, perhaps"
    for host, pid in (("elsewhere", os.getpid()), (here, 0), (here, -1), (here, 2**80)):
        assert process_found(entry("a", host=host, pid=pid)) is None
