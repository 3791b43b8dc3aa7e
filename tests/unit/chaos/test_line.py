"""When the harness believes that a waiter has kept its place: only while nothing can have taken it."""

from __future__ import annotations

import pytest
from chaos import ours
from chaos.ours import Line, certainly
from chaos.subject import Ask

TTL = 0.5


class Desk:
    """A request whose steps take as long as it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.told: list[str] = []
        monkeypatch.setattr(ours, "boottime", lambda: self.now)
        ask = Ask(
            "job",
            "exclusive",
            None,
            TTL,
            10.0,
            queued=lambda: self.told.append("queued"),
            requeued=lambda: self.told.append("requeued"),
        )
        self.line = Line(ask)

    def step(self, seconds: float, *, kept: bool = True) -> None:
        sent = self.now
        self.now += seconds
        self.line.answered(sent, certainly if kept else lambda: False, busy=True)


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(monkeypatch)


def test_quick_steps_keep_the_place(desk: Desk) -> None:
    for _ in range(3):
        desk.step(0.1)
        desk.now += 1.0
    assert desk.told == ["queued"]


def test_silence_loses_it(desk: Desk) -> None:
    desk.step(0.1)
    desk.now += 3.0
    desk.step(0.1)
    desk.step(0.1)
    assert desk.told == ["queued", "requeued"]


def test_after_a_slow_step_the_next_one_stands_anew(desk: Desk) -> None:
    """It was granted while nobody listened, and ran out: where it stands is known after another step."""
    desk.step(0.1)
    desk.step(TTL + 0.1)
    desk.step(0.1)
    desk.step(0.1)
    assert desk.told == ["queued", "requeued", "requeued"]


def test_a_step_without_an_answer_and_a_session_that_ended(desk: Desk) -> None:
    desk.step(0.1)
    desk.line.failed()
    desk.step(0.1, kept=False)
    desk.step(0.1)
    assert desk.told == ["queued", "requeued", "requeued"]
