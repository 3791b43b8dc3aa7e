"""Holds: how one ends, once, and what a loss tells."""

from __future__ import annotations

import math

from fencelock.core.acquire import acquire
from fencelock.core.hold import LOST, Hold
from fencelock.core.release import release
from fencelock.runtime.blocking import run
from unit.core.scripted import Bench, keep, terms


def take(bench: Bench, **changes: object) -> Hold:
    return run(acquire(bench.session, terms(**changes), math.inf, keep))


def test_a_loss_is_reported_once_however_many_see_it(bench: Bench) -> None:
    told: list[object] = []
    hold = take(bench, on_lost=told.append)
    hold.lease = lambda: "the lease"
    assert bench.session.holds.lose(hold, "first") is True
    assert bench.session.holds.lose(hold, "second") is False
    bench.runtime.time += 100
    assert bench.session.holds.is_held(hold) is False
    assert (hold.reason, told) == ("first", ["the lease"])


def test_on_lost_is_not_called_for_a_lease_that_nobody_has(bench: Bench) -> None:
    told: list[object] = []
    hold = take(bench, on_lost=told.append)
    hold.lease = lambda: None
    bench.session.holds.lose(hold, "test")
    assert told == []


def test_a_lease_without_on_lost_is_just_lost(bench: Bench) -> None:
    hold = take(bench)
    hold.lease = lambda: "the lease"
    assert bench.session.holds.lose(hold, "test") is True


def test_a_loss_that_the_backend_knows_of_leaves_no_cleanup(bench: Bench) -> None:
    hold = take(bench)
    bench.backend.lost(hold.request.owner, "its session ended")
    assert (hold.state, hold.reason) == (LOST, "its session ended")
    assert bench.session.cleanups.all() == []


def test_a_backend_may_speak_of_strangers(bench: Bench) -> None:
    bench.backend.lost("nobody", "whatever")


def test_the_event_is_set_by_a_loss_and_by_nothing_else(bench: Bench) -> None:
    lost, released, late = (take(bench, name=name) for name in "abc")
    events = [bench.session.holds.event(hold) for hold in (lost, released)]
    assert bench.session.holds.event(lost) is events[0]
    bench.session.holds.lose(lost, "test")
    run(release(bench.session, released))
    assert [event.is_set() for event in events] == [True, False]
    bench.session.holds.lose(late, "test")
    assert bench.session.holds.event(late).is_set()


def test_an_event_shared_by_several_holds_is_set_by_the_first_loss(bench: Bench) -> None:
    a, b = take(bench, name="a"), take(bench, name="b")
    event = bench.runtime.event()
    bench.session.holds.share_event(a, event)
    bench.session.holds.share_event(b, event)
    assert not event.is_set()
    bench.session.holds.lose(b, "test")
    assert event.is_set()


def test_an_event_shared_by_a_hold_that_is_lost_already_is_set(bench: Bench) -> None:
    hold = take(bench)
    bench.session.holds.lose(hold, "test")
    event = bench.runtime.event()
    bench.session.holds.share_event(hold, event)
    assert event.is_set()


def test_sharing_an_event_does_not_silence_one_that_somebody_has_already(bench: Bench) -> None:
    hold = take(bench)
    before = bench.session.holds.event(hold)
    bench.session.holds.share_event(hold, bench.runtime.event())
    bench.session.holds.lose(hold, "test")
    assert before.is_set()
