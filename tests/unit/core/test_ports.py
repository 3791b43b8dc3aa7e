"""What the contract of a backend gives to those who implement it."""

from __future__ import annotations

import pytest

from fencelock.core.ports import LONGEST_PATIENCE, Origin, Request, patience
from fencelock.errors import Unsupported
from fencelock.findings import Finding
from fencelock.runtime.blocking import run
from fencelock.state import LockState
from unit.core.scripted import Bench, after, entry


@pytest.mark.parametrize("ttl", [0.001, 0.5, 1.0, 5.0, 3600.0])
def test_a_dead_waiter_delays_the_others_by_a_few_seconds_only(ttl: float) -> None:
    assert 1.0 < patience(ttl) <= min(LONGEST_PATIENCE, ttl + 2.0)


def test_a_request_shows_itself() -> None:
    request = Request("abcdef0123456789", "x", "exclusive", 1, 30.0, Origin("c", "h", 1), None)
    assert repr(request) == "<Request abcdef01 exclusive 'x'>"


def test_observing_by_polling_returns_when_holders_change_or_at_the_deadline() -> None:
    bench = Bench()
    before = LockState(name="x", holders=(entry("a", 1),))
    after = LockState(name="x", holders=(entry("b", 2),))
    bench.backend.say("inspect", before, before, after)
    assert run(bench.backend.observe("x", before, deadline=1010.0)) is after
    bench.backend.keep_saying("inspect", before)
    assert run(bench.backend.observe("x", None, deadline=1010.0)) is before
    assert run(bench.backend.observe("x", before, deadline=1010.0)) is before
    assert bench.runtime.time == pytest.approx(1010)


def test_a_backend_without_a_doctor_has_nothing_to_say() -> None:
    assert run(Bench().backend.doctor()) == ()
    assert repr(Bench().backend) == "<ScriptedBackend>"
    assert Finding("ok", "x", "fine").advice == ""


def test_a_backend_that_cannot_guard_says_so() -> None:
    bench = Bench()
    with pytest.raises(Unsupported, match="guard"):
        bench.backend.guard(bench.request(), 1, object())


def test_a_pulse_is_one_look_at_a_lock_that_is_free() -> None:
    bench = Bench()
    bench.backend.say("inspect", after(0.25, LockState(name="x")))
    (pulse,) = run(bench.backend.pulse(deadline=1010.0))
    assert (pulse.server, pulse.trip, pulse.offset) == ("scripted", 0.25, None)
    assert bench.backend.count("inspect") == 1
