"""Turns inside a client: one at a time, and none that an interrupt could lose for good."""

from __future__ import annotations

import threading
import time

import pytest

from holdfast.backends.ordered import turns
from holdfast.backends.ordered.turns import ThreadMutex
from holdfast.runtime import clock
from holdfast.runtime.blocking import run


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "GRACE", 0.2)
    monkeypatch.setattr(turns, "LOOK", 0.02)


def enter(turn: ThreadMutex, seconds: float) -> None:
    run(turn.until(clock.now() + seconds).__aenter__())


def leave(turn: ThreadMutex) -> None:
    run(turn.__aexit__(None, None, None))


def elsewhere(turn: ThreadMutex, seconds: float) -> bool:
    """Whether another thread gets the turn within so many seconds; it keeps it."""
    found: list[bool] = []

    def try_it() -> None:
        try:
            enter(turn, seconds)
            found.append(True)
        except TimeoutError:
            found.append(False)

    thread = threading.Thread(target=try_it)
    thread.start()
    thread.join()
    return found[0]


def test_one_at_a_time() -> None:
    turn = ThreadMutex()
    enter(turn, 5.0)
    assert not elsewhere(turn, 0.5)  # longer than the grace, but not past the deadline of who has it
    leave(turn)
    assert elsewhere(turn, 0.0)


def test_a_turn_that_was_lost_right_after_it_was_taken_is_ended() -> None:
    """The interrupt came before anybody knew whose it is."""
    turn = ThreadMutex()
    enter(turn, 0.0)
    leave(turn)
    turn._lock.acquire()
    assert not elsewhere(turn, 0.1)
    assert elsewhere(turn, 1.0)


def test_a_turn_that_was_not_given_back_is_ended_after_its_deadline() -> None:
    turn = ThreadMutex()
    enter(turn, 0.4)
    began = time.monotonic()
    assert elsewhere(turn, 5.0)
    assert time.monotonic() - began > 0.3


def test_whose_turn_was_ended_does_not_end_the_next() -> None:
    turn = ThreadMutex()
    enter(turn, 0.1)
    assert elsewhere(turn, 5.0)
    leave(turn)
    assert not elsewhere(turn, 0.3)


def test_waiting_ends_in_time_and_takes_nothing() -> None:
    turn = ThreadMutex()
    enter(turn, 5.0)
    assert not elsewhere(turn, 0.0)
    leave(turn)
    enter(turn, 0.0)
