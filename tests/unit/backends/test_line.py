"""A line of threads: first come, first served, and nobody in the way who is gone."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable

import pytest

from fencelock.backends.line import Line, Turn
from fencelock.runtime import clock

LONG = 60.0


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_what_is_there_is_had_at_once() -> None:
    line = Line()
    assert line.wait(lambda: "it", clock.now()) == "it"
    assert len(line) == 0


def test_nothing_by_the_deadline_is_none() -> None:
    line = Line()
    assert line.wait(lambda: None, clock.now()) is None
    assert line.wait(lambda: None, clock.now() + 0.1) is None
    assert len(line) == 0


def test_threads_are_served_in_the_order_in_which_they_came() -> None:
    line, things, served = Line(), list[str](), list[int]()

    def work(number: int) -> None:
        found = line.wait(lambda: things.pop() if things else None, clock.now() + LONG)
        assert found == "it"
        served.append(number)
        things.append(found)
        line.call()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for number, thread in enumerate(threads, 1):
        thread.start()
        until(lambda number=number: len(line) == number)
    things.append("it")
    line.call()
    for thread in threads:
        thread.join(LONG)
    assert served == list(range(8))
    assert len(line) == 0


def test_one_that_is_not_first_takes_nothing() -> None:
    line, things = Line(), list[str]()
    found: list[str | None] = []
    first = threading.Thread(
        target=lambda: found.append(line.wait(lambda: things.pop() if things else None, clock.now() + LONG))
    )
    first.start()
    until(lambda: len(line))
    assert line.wait(lambda: "somebody else's", clock.now()) is None
    things.append("it")
    line.call()
    first.join(LONG)
    assert found == ["it"]


def test_one_that_was_interrupted_is_in_nobodys_way() -> None:
    line = Line()
    line._turns.append(weakref.ref(Turn()))
    gc.collect()
    assert len(line) == 1
    assert line.wait(lambda: "it", clock.now()) == "it"
    assert len(line) == 0


def test_a_signal_handler_does_not_wait_for_the_thread_that_it_interrupts() -> None:
    line, interrupted = Line(), Turn()
    line._turns.append(weakref.ref(interrupted))
    assert line.wait(lambda: "it", clock.now()) == "it"
    assert len(line) == 1


def test_one_that_fails_lets_the_next_look() -> None:
    line, things = Line(), list[str]()
    found: list[str | None] = []

    def refuse() -> None:
        until(lambda: len(line) == 2)
        raise KeyError("no")

    def work() -> None:
        found.append(line.wait(lambda: things.pop() if things else None, clock.now() + LONG))

    def fail() -> None:
        with pytest.raises(KeyError):
            line.wait(refuse, clock.now() + LONG)

    first, second = threading.Thread(target=fail), threading.Thread(target=work)
    first.start()
    until(lambda: len(line) == 1)
    things.append("it")
    second.start()
    first.join(LONG)
    second.join(LONG)
    assert found == ["it"]
