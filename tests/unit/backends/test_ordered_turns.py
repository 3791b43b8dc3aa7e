"""Turns inside a client: one at a time, and none that an interrupt could lose."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from fencelock.backends.line import Line
from fencelock.backends.ordered.turns import ThreadMutex, ThreadTurn
from fencelock.runtime import clock
from fencelock.runtime.blocking import run


def taken(turn: ThreadMutex, seconds: float) -> ThreadTurn:
    own = turn.until(clock.now() + seconds)
    run(own.__aenter__())
    return own


def left(own: ThreadTurn) -> None:
    run(own.__aexit__(None, None, None))


def elsewhere(turn: ThreadMutex, seconds: float) -> bool:
    """Whether another thread gets the turn within so many seconds; it gives it back."""
    found: list[bool] = []

    def try_it() -> None:
        try:
            left(taken(turn, seconds))
            found.append(True)
        except TimeoutError:
            found.append(False)

    thread = threading.Thread(target=try_it)
    thread.start()
    thread.join()
    return found[0]


def test_one_at_a_time() -> None:
    turn = ThreadMutex()
    own = taken(turn, 5.0)
    assert not elsewhere(turn, 0.2)
    left(own)
    assert elsewhere(turn, 0.0)


def test_a_turn_whose_end_was_interrupted_is_over_when_nobody_refers_to_it() -> None:
    """Python may interrupt `__aexit__` before its first step."""
    turn = ThreadMutex()
    own = taken(turn, 60.0)
    assert not elsewhere(turn, 0.0)
    del own
    assert elsewhere(turn, 0.0)


@pytest.mark.parametrize("step", ["_first", "call"])
def test_whoever_is_interrupted_while_it_waits_is_in_nobodys_way(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = ThreadMutex()

    def interrupted(self: Line) -> None:
        raise KeyboardInterrupt

    kept: list[BaseException] = []
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt) as error:
        patch.setattr(Line, step, interrupted)
        left(taken(turn, 60.0))
    kept.append(error.value)  # and with it every frame that it went through
    assert elsewhere(turn, 0.0)


def test_a_signals_handler_does_not_wait_for_the_thread_that_it_interrupts() -> None:
    turn = ThreadMutex()
    own = taken(turn, 60.0)
    left(taken(turn, 0.0))
    assert not elsewhere(turn, 0.0), "the thread still has its own"
    left(own)


def test_waiting_ends_in_time_and_takes_nothing() -> None:
    turn = ThreadMutex()
    own = taken(turn, 5.0)
    assert not elsewhere(turn, 0.0)
    left(own)
    assert elsewhere(turn, 0.0)


def test_whoever_leaves_lets_the_next_one_in() -> None:
    turn, order = ThreadMutex(), list[int]()
    own = taken(turn, 5.0)

    def work(number: int) -> Callable[[], None]:
        def wait() -> None:
            mine = taken(turn, 60.0)
            order.append(number)
            left(mine)

        return wait

    threads = []
    for number in range(4):
        threads.append(threading.Thread(target=work(number)))
        threads[-1].start()
        deadline = clock.now() + 10.0
        while len(turn._line) < number + 2:
            assert clock.now() < deadline
    left(own)
    for thread in threads:
        thread.join(10.0)
    assert order == [0, 1, 2, 3]
