"""Clocks: what rises, what is before what, and what is refused."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelock import ConfigurationError
from fencelock.crdt import ClockAhead, HybridLogicalClock, Order, Timestamp, VectorClock


class Hand:
    """A wall clock that is set by hand."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self) -> float:
        return self.seconds


def test_timestamps_rise_while_the_wall_clock_stands_or_goes_back() -> None:
    hand = Hand(100.0)
    clock = HybridLogicalClock("a", time=hand)
    given_out = [clock.now(), clock.now()]
    hand.seconds = 50.0
    given_out.append(clock.now())
    hand.seconds = 101.0
    given_out.append(clock.now())
    assert given_out == sorted(set(given_out))
    assert given_out[-1] == Timestamp(101_000_000, 0, "a")


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.floats(-30, 30)), min_size=1, max_size=40))
def test_what_was_heard_of_is_before_what_follows(events: list[tuple[int, int, float]]) -> None:
    hands = [Hand(1000.0) for _ in range(3)]
    clocks = [HybridLogicalClock(name, time=hand) for name, hand in zip("abc", hands, strict=True)]
    seen: set[Timestamp] = set()
    for source, target, shift in events:
        hands[source].seconds = 1000.0 + shift
        stamp = clocks[source].now()
        assert stamp not in seen
        seen.add(stamp)
        clocks[target].observe(stamp)
        later = clocks[target].now()
        assert later > stamp
        assert later not in seen
        seen.add(later)
        assert later.wall <= 1_030_000_000, "it ran ahead of all wall clocks"


def test_a_timestamp_too_far_ahead_is_refused_and_changes_nothing() -> None:
    clock = HybridLogicalClock("a", max_ahead=10, time=Hand(100.0))
    clock.observe(Timestamp(110_000_000, 0, "b"))
    with pytest.raises(ClockAhead, match="'b' is 10s ahead of this clock, at most 10s") as caught:
        clock.observe(Timestamp(110_000_001, 0, "b"))
    assert (caught.value.replica, caught.value.limit) == ("b", 10.0)
    assert clock.now() == Timestamp(110_000_000, 1, "a")
    with pytest.raises(ClockAhead):
        clock.observe(Timestamp(100_000_000, 2**63 - 1, "b"))  # no tick would be left


@pytest.mark.parametrize(
    "stamp", [None, 7, (), (1, 2), (-1, 0, "a"), (1, 0, ""), (1.0, 0, "a"), (2**63, 0, "a")]
)
def test_bad_timestamps(stamp: Any) -> None:
    with pytest.raises(ConfigurationError, match="is not a Timestamp"):
        HybridLogicalClock("a").observe(stamp)


@pytest.mark.parametrize("ahead", [-1, float("nan"), "1", None])
def test_bad_limits(ahead: Any) -> None:
    with pytest.raises(ConfigurationError, match="max_ahead"):
        HybridLogicalClock("a", max_ahead=ahead)


def test_a_wall_clock_that_makes_no_sense() -> None:
    with pytest.raises(ConfigurationError, match="seconds since 1970"):
        HybridLogicalClock("a", time=lambda: -5.0).now()


def test_threads_share_a_clock() -> None:
    clock = HybridLogicalClock("a", time=Hand(1.0))
    taken: list[Timestamp] = []
    threads = [
        threading.Thread(target=lambda: taken.extend(clock.now() for _ in range(500))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(taken)) == 4000


def test_vector_clocks_compare() -> None:
    one, two = VectorClock({"a": 1}), VectorClock({"a": 1, "b": 2})
    assert one.compare(two) is Order.BEFORE
    assert two.compare(one) is Order.AFTER
    assert two.compare(VectorClock({"b": 2, "a": 1, "c": 0})) is Order.EQUAL
    assert one.tick("a").value.compare(two) is Order.CONCURRENT
    assert (one | two).compare(two) is Order.EQUAL
    assert (two["a"], two["z"], list(two), len(two)) == (1, 0, ["a", "b"], 2)


@given(*[st.dictionaries(st.sampled_from("abc"), st.integers(0, 3))] * 2)
def test_vector_clocks_agree_with_their_merge(one: dict[str, int], two: dict[str, int]) -> None:
    left, right = VectorClock(one), VectorClock(two)
    found = left.compare(right)
    assert (found in {Order.BEFORE, Order.EQUAL}) == right.includes(left)
    assert (found in {Order.AFTER, Order.EQUAL}) == left.includes(right)


@pytest.mark.parametrize("counts", [7, [("a", 1)], {"": 1}, {"a": -1}, {"a": True}, {"a": 2**63}, {1: 1}])
def test_bad_counts(counts: Any) -> None:
    with pytest.raises(ConfigurationError):
        VectorClock(counts)
    with pytest.raises(ConfigurationError, match="only values of one type"):
        VectorClock().compare(counts)
