"""Which jobs a worker tries: all of them in order while it is alone, a part of them where it meets others."""

from __future__ import annotations

from typing import Any

import pytest

from fencelock.jobs.base import SHORTEST_POLL
from fencelock.jobs.statements import Statements
from fencelock.jobs.ways import CALM, FEWEST, WINDOW, Unlocked, Way
from fencelock.runtime.blocking import BlockingRuntime, run

from .conftest import Desk


def found(way: Unlocked, desk: Desk) -> list[int]:
    link = desk.table._link()
    try:
        return [candidate.id for candidate in run(way.find(link, 1))]  # type: ignore[union-attr]
    finally:
        run(link.close())


def test_a_worker_that_meets_others_tries_a_part_of_what_was_due_first(desk: Desk) -> None:
    ids = [desk.table.enqueue("mail", number) for number in range(2 * WINDOW)]
    way = Unlocked(BlockingRuntime(), Statements(desk.table._known(), ["mail"]), 5.0, "host:1")
    assert found(way, desk) == ids[: FEWEST + 1]
    way.tried(8, 0)
    assert found(way, desk) == ids[: 2 * FEWEST + 1], "alone: more of them, in order"
    parts: list[list[int]] = []
    for _ in range(CALM):
        way.tried(1, 2)
        part = found(way, desk)
        assert part == sorted(part) and set(part) <= set(ids[:WINDOW]) and len(part) == FEWEST + 1
        parts.append(part)
    assert len(set(map(tuple, parts))) > 1, "workers that look at the same moment try different ones"
    for _ in range(CALM):
        assert found(way, desk) != ids[: len(found(way, desk))]
        way.tried(8, 0)
    assert found(way, desk)[: FEWEST + 1] == ids[: FEWEST + 1], "alone again"


def test_the_slots_of_one_worker_do_not_meet(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(120):
        desk.table.enqueue("mail", number)
    seen: list[Any] = []
    misses: list[int] = []
    tried = Way.tried

    def noted(self: Way, hits: int, missed: int) -> None:
        misses.append(missed)
        tried(self, hits, missed)

    monkeypatch.setattr(Way, "tried", noted)
    desk.work({"mail": lambda job: seen.append(job.payload)}, concurrency=4)
    assert sorted(seen) == list(range(120))
    assert misses and not any(misses), "a slot has found a job that another slot was just taking"


def test_a_look_that_takes_longer_than_poll_is_not_in_vain(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a slow database all that was found is old when it arrives, and a job of it is done all the same."""
    for number in range(10):
        desk.table.enqueue("mail", number)
    find = Way.find

    async def find_slowly(self: Way, link: Any, idle: int) -> Any:
        found = await find(self, link, idle)
        await self.runtime.sleep(2 * SHORTEST_POLL)
        return found

    monkeypatch.setattr(Way, "find", find_slowly)
    seen: list[Any] = []
    desk.work({"mail": lambda job: seen.append(job.payload)}, poll=SHORTEST_POLL, concurrency=2)
    assert sorted(seen) == list(range(10))
