"""Each rule is broken by one small history, and by that alone. Those of the guard and of availability agree
with their definitions, spelled out pair by pair and second by second.

Tokens, exclusion and order are compared with a search, in test_brute.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencelock.testing import Event, History, Rule, check, check_available, check_guard


def same_token() -> History:
    history = History()
    held(history, "a", token=7, start=1, end=2)
    held(history, "b", token=7, start=3, end=4)
    return history


def falling_token() -> History:
    history = History()
    held(history, "a", token=8, start=1, end=2)
    held(history, "b", token=7, start=3, end=4)
    return history


def two_at_once() -> History:
    history = History()
    held(history, "a", token=1, start=1, end=3)
    held(history, "b", token=2, start=2, end=4)
    return history


def stale_write() -> History:
    history = History()
    history.write("b", "file", token=2, base=1, seq=1, at=1)
    history.write("a", "file", token=1, base=2, seq=2, at=2)
    return history


def lost_twice() -> History:
    history = History()
    attempt = history.acquire("a", "x", at=0)
    attempt.granted(token=1, deadline=5, owner="a", at=1)
    attempt.lost(at=5)
    attempt.lost(at=6)
    return history


def jumped_queue() -> History:
    history = History()
    held(history, "a", token=1, start=0, end=5)
    early = history.acquire("b", "x", at=1)
    early.queued(at=2)
    held(history, "c", token=3, start=5, end=6, invoked=3)
    early.granted(token=2, deadline=99, owner="b", at=8)
    early.release(at=9)
    return history


def idle_lock() -> History:
    history = History()
    held(history, "a", token=1, start=0, end=1)
    waiter = history.acquire("b", "x", at=2)
    waiter.granted(token=2, deadline=99, owner="b", at=60)
    return history


BREAKERS: dict[str, Callable[[], History]] = {
    "unique-token": same_token,
    "token-order": falling_token,
    "exclusion": two_at_once,
    "guard": stale_write,
    "loss": lost_twice,
    "fifo": jumped_queue,
    "available": idle_lock,
}


def held(
    history: History, client: str, *, token: int, start: float, end: float, invoked: float | None = None
) -> None:
    attempt = history.acquire(client, "x", at=start - 0.5 if invoked is None else invoked)
    attempt.granted(token=token, deadline=99, owner=client, at=start)
    attempt.release(at=end)


def test_every_rule_is_here() -> None:
    assert set(BREAKERS) == set(get_args(Rule))


@pytest.mark.parametrize("rule", BREAKERS)
def test_one_history_breaks_this_rule_and_no_other(rule: str) -> None:
    history = BREAKERS[rule]()
    violations = [*check(history).violations, *check_available(history, healed=0.0, bound=10.0)]
    assert {violation.rule for violation in violations} == {rule}
    assert all(violation.name in str(violation) for violation in violations)


# The guard, pair by pair ----------------------------------------------------------------------


@st.composite
def guarded(draw: st.DrawFn) -> History:
    """Writes to two resources in the order in which these took them; some refused, some never answered."""
    history = History()
    for seq in range(draw(st.integers(0, 12))):
        history.write(
            "p",
            draw(st.sampled_from(["file", "row"])),
            token=draw(st.integers(1, 6)) + seq // 2,
            base=draw(st.none() | st.integers(0, 14)),
            seq=seq,
            accepted=draw(st.sampled_from([True, True, True, False, None])),
            at=float(seq),
        )
    return history


@settings(max_examples=100)
@given(guarded())
def test_the_guard_agrees_with_its_definition(history: History) -> None:
    def wrong(one: Event, other: Event) -> bool:
        falls = (one.token or 0) > (other.token or 0)
        return falls or (one.base is not None and one.base == other.base)

    accepted = [event for event in history if event.accepted]
    expected = {
        one.resource
        for place, one in enumerate(accepted)
        for other in accepted[place + 1 :]
        if one.resource == other.resource and wrong(one, other)
    }
    assert {violation.name for violation in check_guard(history)} == expected


# Availability, second by second ---------------------------------------------------------------

BOUND = 3
END = 40


@st.composite
def queues(draw: st.DrawFn) -> tuple[History, list[tuple[int, int]], list[tuple[int, int]]]:
    """Holds and waits of one name, at whole seconds; returns the two as spans, too."""
    history, holds, waits = History(), [], []
    now = 0
    for token in range(draw(st.integers(0, 5))):
        invoked = max(0, now + draw(st.integers(-8, 8)))
        granted = max(invoked, now) + draw(st.integers(0, 8))
        now = granted + draw(st.integers(1, 5))
        attempt = history.acquire(f"p{token}", "x", at=float(invoked))
        attempt.granted(token=token, deadline=1000.0, owner="o", at=float(granted))
        attempt.release(at=float(now))
        holds.append((granted, now))
        waits.append((invoked, granted))
    history.acquire("end", "end", at=float(max(END, now))).timeout(at=float(max(END, now)))
    return history, holds, waits


@settings(max_examples=100)
@given(queues(), st.integers(0, 10))
def test_availability_agrees_with_its_definition(
    case: tuple[History, list[tuple[int, int]], list[tuple[int, int]]], healed: int
) -> None:
    """Second by second: was there anybody who waited for more than the bound while nobody had it?"""
    history, holds, waits = case
    late = False
    for invoked, granted in waits:
        idle = 0
        for second in range(max(invoked, healed), granted):
            taken = any(start <= second < end for start, end in holds)
            idle = 0 if taken else idle + 1
            late = late or idle > BOUND
    found = check_available(history, healed=float(healed), bound=float(BOUND))
    assert bool(found) == late, str(history)
