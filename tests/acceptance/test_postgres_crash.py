"""kill -9 of the server under load, again and again: no token twice or falling, no lock held twice.

Several processes of both flavours pass a few locks on as fast as they can, so every crash finds handovers
under way; what was handed over and not yet written is lost with the shared memory. Two kinds of crash:
of the whole server, which is then started again, and of one of its processes, upon which it drops its
shared memory and recovers by itself.

FENCELOCK_CRASHES=100 asks for more than a few.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crew import Crew, wait_until
from postgres_desk import FLAVOURS, activity, ask, until_ready
from tools.servers import start
from workers.resources import Guarded

from fencelock.testing import History, Report, boottime, check, check_available

ROUNDS = int(os.environ.get("FENCELOCK_CRASHES", "2"))
TTL = 1.0
BOUND = TTL + 2.0
SLACK = 10.0
"""For a machine that runs other tests at the same time, and a server that starts."""
LAZY = {"wal_writer_delay": "10000", "wal_writer_flush_after": "1GB"}
"""WAL is flushed by nobody but whoever needs it flushed: all that may be lost is lost."""


def grants(folder: Path) -> int:
    history = folder / "history"
    return history.read_text().count('"granted"') if history.exists() else 0


def crash(server: Any, dice: random.Random) -> None:
    """The whole server."""
    server.kill()
    time.sleep(dice.choice([0.0, 0.2]))
    server.restart()


def crash_one(server: Any, dice: random.Random) -> None:
    """One of its processes, of those that serve the clients."""
    os.kill(dice.choice(activity(server))["pid"], signal.SIGKILL)
    time.sleep(0.05)
    until_ready(server)


def rounds(server: Any, folder: Path, how: list[Callable[[Any, random.Random], None]]) -> float:
    """Crash it again and again, each time after the work has gone on; return when it was back at last."""
    dice = random.Random(7)
    for number in range(ROUNDS):
        before = grants(folder)
        wait_until(lambda before=before: grants(folder) >= before + 30, "the work goes on")
        time.sleep(dice.random() * 0.3)
        how[number % len(how)](server, dice)
    back = boottime()
    before = grants(folder)
    wait_until(lambda: grants(folder) >= before + 30, "the work goes on")
    return back


def finish(crew: Crew, folder: Path, server: Any) -> tuple[History, Report]:
    (folder / "stop").touch()
    for member in crew.members:
        assert member.end() == 0, member.errors
        assert not member.errors, member.errors
    history = History.load(folder / "history")
    report = check(history)
    assert report.ok, str(report)
    # What was left before a crash may be back after it; it goes by its deadline, and then whoever
    # acquires the name next, or sweeps, removes it.
    wait_until(lambda: not living(server), "nobody is in a queue", BOUND + SLACK)
    return history, report


def living(server: Any) -> list[Any]:
    return ask(server, "SELECT place, owner FROM fencelock.queue WHERE deadline > clock_timestamp()")


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    with start("postgres", settings=LAZY if request.param == "lazy" else {}) as group:
        yield group.members[0]


@pytest.mark.parametrize(
    ("server", "how"),
    [("lazy", [crash]), ("lazy", [crash_one]), ("plain", [crash, crash_one])],
    ids=["lazy server", "lazy process", "plain"],
    indirect=["server"],
)
def test_handovers(server: Any, tmp_path: Path, how: list[Any], record_property: Any) -> None:
    with Crew() as crew:
        for number in range(4):
            client, flavour = f"client-{number}", FLAVOURS[number % 2]
            member = crew.start(
                "postgres_churn", server.url, tmp_path, client, flavour, TTL, 2, 4, name=client
            )
            assert member.hear()["ready"]
        back = rounds(server, tmp_path, how)
        history, report = finish(crew, tmp_path, server)
    record_property("crashes", f"{ROUNDS} crashes, {report.grants} grants, {report.losses} losses")
    print(f"{ROUNDS} crashes, {report.grants} grants, {report.losses} losses")
    assert report.grants > 30 * ROUNDS
    assert not check_available(history, healed=back, bound=BOUND + SLACK, names=["job-0", "job-1"])


@pytest.mark.parametrize(
    ("server", "kinds"),
    [("plain", ["lock"] * 5), ("lazy", ["read", "write", "read", "write", "permit"])],
    ids=["lock", "mixed"],
    indirect=["server"],
)
def test_a_guarded_resource(server: Any, tmp_path: Path, kinds: list[str]) -> None:
    """Nothing that was accepted is lost, and no older token comes after a newer one."""
    with Crew() as crew:
        for number, kind in enumerate(kinds):
            name, flavour = f"{kind}-{number}", FLAVOURS[number % 2]
            member = crew.start("redis_append", server.url, tmp_path, name, flavour, kind, TTL, name=name)
            assert member.hear()["ready"]
        rounds(server, tmp_path, [crash, crash_one])
        history, _ = finish(crew, tmp_path, server)
    words = Guarded(tmp_path / "list.db")
    kept = words.look()
    words.close()
    accepted = [event.value for event in history if event.kind == "write" and event.accepted]
    assert sorted(kept) == sorted(accepted)
