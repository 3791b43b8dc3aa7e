"""Leases that nobody has any more."""

from __future__ import annotations

import math
from collections import deque

from fencelock.core.acquire import acquire
from fencelock.core.hold import LOST, RELEASED, Hold
from fencelock.runtime.blocking import run
from unit.core.scripted import Bench, keep, terms


def take(bench: Bench, **changes: object) -> Hold:
    return run(acquire(bench.session, terms(**changes), math.inf, keep))


def test_a_lease_that_was_garbage_is_released_and_not_renewed(bench: Bench) -> None:
    hold = take(bench)
    bench.session.dropped.add(hold)
    bench.runtime.go(60)
    assert hold.state is RELEASED
    assert bench.backend.count("abandon") == 1
    assert bench.backend.count("renew") == 0
    assert bench.is_clean()


def test_of_two_leases_on_one_hold_the_last_to_go_releases_it(bench: Bench) -> None:
    hold = take(bench, reentrant=True)
    take(bench, reentrant=True)
    bench.session.dropped.add(hold)
    bench.session.dropped.collect()
    assert bench.session.holds.is_held(hold)
    bench.session.dropped.add(hold)
    bench.session.dropped.collect()
    assert hold.state is RELEASED
    assert bench.session.reentry.all() == []


def test_garbage_that_was_lost_already_is_left_alone(bench: Bench) -> None:
    hold = take(bench)
    bench.session.holds.lose(hold, "test", gone=True)
    bench.session.dropped.add(hold)
    bench.session.dropped.collect()
    assert hold.state is LOST
    assert bench.session.cleanups.all() == []


def test_garbage_that_another_thread_collects_first_is_left_to_it(bench: Bench) -> None:
    class TakenMeanwhile(deque[Hold]):
        def popleft(self) -> Hold:
            super().popleft()
            return super().popleft()

    hold = take(bench)
    bench.session.dropped._waiting = TakenMeanwhile([hold])
    bench.session.dropped.collect()
    assert bench.session.holds.is_held(hold)


def test_garbage_without_a_timekeeper_waits_for_the_next_one(bench: Bench) -> None:
    hold = take(bench)
    bench.session.timekeeper.signal = None
    bench.session.dropped.add(hold)
    assert bench.session.dropped.all() == [(hold, None)]
