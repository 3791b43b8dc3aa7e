"""Several locks as one: all or none, within one deadline."""

from __future__ import annotations

import math

import pytest

from fencelock.core.acquire import TRY_LIMIT, acquire
from fencelock.core.cleanup import ECHO, UNDO_LIMIT
from fencelock.core.hold import HELD, Hold
from fencelock.core.multi import acquire_all
from fencelock.core.ports import Busy
from fencelock.errors import AcquireTimeout, BackendUnavailable
from fencelock.runtime.blocking import run
from unit.core.scripted import DEFAULT, Bench, after, down, entry, keep, terms


def take_all(bench: Bench, names: str, timeout: float = math.inf) -> list[Hold]:
    return run(acquire_all(bench.session, [(terms(name), keep) for name in names], timeout))


def test_all_are_taken_in_the_order_given(bench: Bench) -> None:
    holds = take_all(bench, "abc")
    assert [hold.request.name for hold in holds] == ["a", "b", "c"]
    assert all(hold.state is HELD for hold in holds)


def test_one_deadline_covers_all_of_them(bench: Bench) -> None:
    bench.backend.say("acquire", after(2, DEFAULT), after(2, DEFAULT))
    bench.backend.keep_saying("acquire", Busy(100, entry()))
    with pytest.raises(AcquireTimeout) as caught:
        take_all(bench, "abc", timeout=5)
    assert bench.runtime.time == pytest.approx(1005)
    assert caught.value.name == "c"
    assert caught.value.waited == pytest.approx(5)
    assert caught.value.holder is not None
    assert given_back(bench) == ["c", "b", "a"]
    assert bench.is_clean()


def test_a_last_step_without_time_for_an_answer_is_a_timeout(bench: Bench) -> None:
    bench.backend.say("acquire", after(4.9, DEFAULT), after(0.1, down()))
    with pytest.raises(AcquireTimeout) as caught:
        take_all(bench, "ab", timeout=5)
    assert (caught.value.name, caught.value.holder) == ("b", None)
    assert caught.value.waited == pytest.approx(5)
    assert set(given_back(bench)) == {"a", "b"}


def test_an_outage_half_way_is_no_timeout(bench: Bench) -> None:
    bench.backend.say("acquire", after(1, DEFAULT))
    bench.backend.keep_saying("acquire", after(1, down()))
    with pytest.raises(BackendUnavailable):
        take_all(bench, "ab", timeout=5)


def test_no_answer_to_a_try_is_no_timeout(bench: Bench) -> None:
    bench.backend.say("acquire", DEFAULT, down())
    with pytest.raises(BackendUnavailable):
        take_all(bench, "ab", timeout=0)


def test_a_deadline_that_passed_half_way_still_tries_once(bench: Bench) -> None:
    bench.backend.say("acquire", after(9, DEFAULT))
    assert len(take_all(bench, "ab", timeout=5)) == 2
    assert bench.backend.taken("acquire")[1][1] is False


def test_timeout_zero_tries_each_once(bench: Bench) -> None:
    bench.backend.say("acquire", DEFAULT, Busy(100, None))
    with pytest.raises(AcquireTimeout):
        take_all(bench, "abc", timeout=0)
    assert bench.backend.count("acquire") == 2
    assert bench.is_clean()


def test_to_try_all_takes_no_longer_than_to_try_one(bench: Bench) -> None:
    """All answers together have the time that one has: seeds 95547 and 105995."""
    bench.backend.say("acquire", after(TRY_LIMIT * 0.6, DEFAULT), after(TRY_LIMIT * 0.3, DEFAULT))
    assert len(take_all(bench, "abc", timeout=0)) == 3
    assert [deadline for _, _, deadline in bench.backend.taken("acquire")] == [1000 + TRY_LIMIT] * 3


def given_back(bench: Bench) -> list[str]:
    """The locks that were taken and given back, in order."""
    return [request.name for request, _ in bench.backend.taken("abandon")]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("a bug")])
def test_whatever_goes_wrong_half_way_none_is_held(bench: Bench, error: BaseException) -> None:
    bench.backend.say("acquire", DEFAULT, DEFAULT, error)
    with pytest.raises(type(error)):
        take_all(bench, "abc")
    assert given_back(bench) == ["c", "b", "a"]
    bench.runtime.go(ECHO)
    assert given_back(bench) == ["c", "b", "a", "c"]
    assert bench.is_clean()


def test_when_the_backend_is_down_nobody_waits_for_giving_back(bench: Bench) -> None:
    bench.backend.say("acquire", DEFAULT, DEFAULT, down(transient=False))
    with pytest.raises(BackendUnavailable):
        take_all(bench, "abc")
    assert bench.session.holds.all() == []
    assert bench.backend.count("abandon") == 0
    bench.runtime.go(5)
    assert sorted(given_back(bench)) == ["a", "b", "c", "c"]
    assert bench.is_clean()


def test_an_interrupt_stays_an_interrupt_when_giving_back_fails(bench: Bench) -> None:
    bench.backend.say("acquire", DEFAULT, KeyboardInterrupt())
    bench.backend.say("abandon", down(), down())
    with pytest.raises(KeyboardInterrupt):
        take_all(bench, "ab")
    bench.runtime.go(5)
    assert bench.is_clean()


def test_a_timeout_stays_a_timeout_when_giving_back_fails(bench: Bench) -> None:
    bench.backend.say("acquire", DEFAULT, Busy(100, None))
    bench.backend.say("abandon", down())
    with pytest.raises(AcquireTimeout):
        take_all(bench, "ab", timeout=0)
    bench.runtime.go(5)
    assert bench.is_clean()


@pytest.mark.parametrize(("slow", "later"), [(0.4, []), (1.0, ["b", "a"])])
def test_giving_all_back_takes_no_longer_than_giving_one_back(
    bench: Bench, slow: float, later: list[str]
) -> None:
    bench.backend.say("acquire", DEFAULT, DEFAULT)
    bench.backend.keep_saying("acquire", Busy(100, None))
    bench.backend.say("abandon", after(slow, DEFAULT), after(0.2, DEFAULT), after(0.2, DEFAULT))
    with pytest.raises(AcquireTimeout):
        take_all(bench, "abc", timeout=5)
    assert bench.runtime.time <= 1000 + 5 + UNDO_LIMIT + 0.01
    at_once = [name for name in "cba" if name not in later]
    assert given_back(bench)[: len(at_once)] == at_once
    bench.runtime.go(5)
    assert bench.is_clean()


def test_what_was_held_before_stays_held(bench: Bench) -> None:
    outer = run(acquire(bench.session, terms("a", reentrant=True), math.inf, keep))
    bench.backend.say("acquire", Busy(100, None))
    wanted = [(terms(name, reentrant=True), keep) for name in "ab"]
    with pytest.raises(AcquireTimeout):
        run(acquire_all(bench.session, wanted, 0))
    bench.session.dropped.add(outer)  # as the destructor of the inner lease does
    bench.runtime.go(1)
    assert bench.session.holds.is_held(outer)
