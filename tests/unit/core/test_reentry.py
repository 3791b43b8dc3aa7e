"""Re-entry: which thread or task may enter a lock again."""

from __future__ import annotations

import math

import pytest

from fencelock.core.acquire import acquire
from fencelock.core.hold import Hold
from fencelock.core.release import release
from fencelock.errors import ConfigurationError
from fencelock.runtime.blocking import run
from unit.core.scripted import Bench, keep, terms


def take(bench: Bench, **changes: object) -> Hold:
    return run(acquire(bench.session, terms(**changes), math.inf, keep))


def test_entering_again_takes_no_step_and_gives_the_same_hold(bench: Bench) -> None:
    first = take(bench, reentrant=True)
    again = take(bench, reentrant=True)
    assert again is first
    assert bench.backend.count("acquire") == 1
    assert run(release(bench.session, first)) is True
    assert bench.backend.count("release") == 0
    assert run(release(bench.session, first)) is True
    assert bench.backend.count("release") == 1
    assert bench.is_clean()


def test_somebody_else_does_not_enter_again(bench: Bench) -> None:
    take(bench, reentrant=True)
    bench.runtime.who = "another thread"
    take(bench, reentrant=True)
    assert bench.backend.count("acquire") == 2


def test_a_lost_hold_is_not_entered_again(bench: Bench) -> None:
    take(bench, reentrant=True)
    bench.runtime.time += 31
    take(bench, reentrant=True)
    assert bench.backend.count("acquire") == 2


def test_a_reader_that_wants_to_write_is_told_so_instead_of_waiting_for_itself(bench: Bench) -> None:
    take(bench, reentrant=True, mode="shared", limit=0)
    with pytest.raises(ConfigurationError, match=r"'shared'.*'exclusive'"):
        take(bench, reentrant=True)
    assert bench.backend.count("acquire") == 1


def test_a_writer_may_read_again(bench: Bench) -> None:
    hold = take(bench, reentrant=True)
    assert take(bench, reentrant=True, mode="shared", limit=0) is hold


def test_an_interrupt_after_the_hold_was_registered_leaves_nothing_once_its_lease_is_gone(
    bench: Bench,
) -> None:
    made: list[Hold] = []

    def interrupted(hold: Hold) -> None:
        made.append(hold)
        raise KeyboardInterrupt

    bench.session.let_enter_again = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        take(bench, reentrant=True)
    assert bench.backend.count("abandon") == 1
    bench.session.dropped.add(made[0])  # as the destructor of its lease does
    bench.runtime.go(0)
    assert bench.is_clean()


def test_one_that_ends_before_it_is_noted_as_an_entrant_is_not_kept(bench: Bench) -> None:
    """Another thread sees its deadline pass right after it was added: seed 146771."""
    for end in (bench.session.holds.end, lambda hold: bench.session.holds.lose(hold, "over")):
        hold = take(bench)
        assert end(hold)
        bench.session.let_enter_again(hold)
        assert bench.session.reentry.all() == []


def test_forgetting_an_entrant_does_not_forget_its_successor(bench: Bench) -> None:
    old = take(bench, reentrant=True)
    bench.session.holds.lose(old, "test")
    new = take(bench, reentrant=True)
    bench.session.reentry.forget(old)
    assert take(bench, reentrant=True) is new
