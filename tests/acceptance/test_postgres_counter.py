"""Eight processes add to one number without any care, and some of them are killed: nothing is lost.

The number lies in a file. An increment is acknowledged when it was written, in a file of its own; a process
that dies in between may have written one that it never acknowledged: the number may be higher, never lower.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crew import Crew, Member, wait_until
from postgres_desk import FLAVOURS, nothing_left, residue
from tools.servers import start
from workers.resources import Counter

from fencelock.testing import History, HistoryFile, check, kill

PROCESSES = 8
TIMES = {"direct": int(os.environ.get("FENCELOCK_TIMES", "100")), "transaction": 40}
"""Behind a pooler waiters poll, and everything takes its time."""
KILLS = 6
PATIENCE = 200.0


@pytest.fixture(params=["direct", "transaction"])
def place(request: pytest.FixtureRequest) -> Iterator[tuple[str, Any, int]]:
    with start("postgres" if request.param == "direct" else "pgbouncer") as group:
        yield group.urls.get(request.param, group.url), group.members[0], TIMES[request.param]


class Crowd:
    """The processes, and replacements for those that were killed."""

    def __init__(self, crew: Crew, url: str, folder: Path, times: int) -> None:
        self.crew, self.url, self.folder, self.times = crew, url, folder, times
        self.started = self.kills = 0
        self.alive = [self.enlist() for _ in range(PROCESSES)]
        for member in self.alive:
            assert member.hear()["ready"]

    def enlist(self) -> Member:
        name, flavour = f"counter-{self.started}", FLAVOURS[self.started % 2]
        self.started += 1
        return self.crew.start("postgres_count", self.url, self.folder, flavour, self.times, name, name=name)

    def strike(self, dice: random.Random, history: HistoryFile) -> None:
        victim = dice.choice([member for member in self.alive if member.process.poll() is None])
        history.crashed(victim.name)
        if kill(victim.process) != -9:  # it had done its part, a moment ago
            return
        self.kills += 1
        self.alive.remove(victim)
        member = self.enlist()
        assert member.hear()["ready"]
        member.tell("go")
        self.alive.append(member)

    def acknowledged(self) -> int:
        acks = self.folder / "acks"
        return acks.stat().st_size if acks.exists() else 0


def test_no_acknowledged_increment_is_lost(place: tuple[str, Any, int], tmp_path: Path) -> None:
    url, server, times = place
    dice = random.Random(11)
    with Crew() as crew, HistoryFile(tmp_path / "history") as history:
        crowd = Crowd(crew, url, tmp_path, times)
        for member in crowd.alive:
            member.tell("go")
        for _ in range(KILLS):
            before = crowd.acknowledged()
            wait_until(lambda before=before: crowd.acknowledged() >= before + 30, "the work goes on")
            time.sleep(dice.random() * 0.05)
            crowd.strike(dice, history)
        for member in crowd.alive:
            assert member.hear(PATIENCE) == {"done": times}
            assert member.end() == 0, member.errors
    counter = Counter(tmp_path / "counter")
    value, acknowledged = counter.read(), crowd.acknowledged()
    counter.close()
    assert acknowledged >= PROCESSES * times
    assert acknowledged <= value <= acknowledged + crowd.kills
    report = check(History.load(tmp_path / "history"))
    assert report.ok, str(report)
    assert crowd.kills >= KILLS / 2
    wait_until(lambda: residue(server) == [], "nothing is left of the dead")
    nothing_left(server)
