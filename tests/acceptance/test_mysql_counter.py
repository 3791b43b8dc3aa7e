"""Eight processes add to one number without any care of their own, and some are killed: nothing is lost.

The number lies in a file. An increment is acknowledged when it was written, in a file of its own; a process
that dies in between may have written one that it never acknowledged: the number may be higher, not lower.
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
from mysql_desk import FLAVOURS, ask, getlock, nothing_left
from tools.servers import start
from workers.resources import Counter

from fencelock.testing import History, HistoryFile, check, kill

PROCESSES = 8
TIMES = int(os.environ.get("FENCELOCK_TIMES", "120"))
KILLS = 6
PATIENCE = 200.0


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with start("mariadb") as group:
        yield group.members[0]


class Crowd:
    """The processes, and replacements for those that were killed."""

    def __init__(self, crew: Crew, url: str, folder: Path) -> None:
        self.crew, self.url, self.folder = crew, url, folder
        self.started = self.kills = 0
        self.alive = [self.enlist() for _ in range(PROCESSES)]
        for member in self.alive:
            assert member.hear()["ready"]

    def enlist(self) -> Member:
        name, flavour = f"counter-{self.started}", FLAVOURS[self.started % 2]
        self.started += 1
        return self.crew.start("postgres_count", self.url, self.folder, flavour, TIMES, name, name=name)

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


@pytest.mark.parametrize("form", ["mysql", "mysql+getlock"])
def test_no_acknowledged_increment_is_lost(server: Any, tmp_path: Path, form: str) -> None:
    url = server.url if form == "mysql" else getlock(server.url)
    dice = random.Random(11)
    with Crew() as crew, HistoryFile(tmp_path / "history") as history:
        crowd = Crowd(crew, url, tmp_path)
        for member in crowd.alive:
            member.tell("go")
        for _ in range(KILLS):
            before = crowd.acknowledged()
            wait_until(lambda before=before: crowd.acknowledged() >= before + 30, "the work goes on")
            time.sleep(dice.random() * 0.05)
            crowd.strike(dice, history)
        for member in crowd.alive:
            assert member.hear(PATIENCE) == {"done": TIMES}
            assert member.end() == 0, member.errors
    counter = Counter(tmp_path / "counter")
    value, acknowledged = counter.read(), crowd.acknowledged()
    counter.close()
    assert acknowledged >= PROCESSES * TIMES
    assert acknowledged <= value <= acknowledged + crowd.kills
    report = check(History.load(tmp_path / "history"))
    assert report.ok, str(report)
    assert crowd.kills >= KILLS / 2
    if form == "mysql":
        now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
        live = f"SELECT COUNT(*) FROM fencelock_queue WHERE deadline > {now}"
        wait_until(lambda: ask(server, live) == ((0,),), "nothing is left of the dead")
    nothing_left(server)
