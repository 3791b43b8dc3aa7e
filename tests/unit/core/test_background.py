"""A service that fails, and races at its beginning and end."""

from __future__ import annotations

import math
from collections.abc import Coroutine
from typing import Any

import pytest

from fencelock.core.acquire import acquire
from fencelock.core.background import Background
from fencelock.core.hold import Hold
from fencelock.runtime.blocking import run
from unit.core.scripted import Bench, ManualService, keep, terms


def take(bench: Bench, **changes: object) -> Hold:
    return run(acquire(bench.session, terms(**changes), math.inf, keep))


def test_a_service_that_failed_is_started_again(bench: Bench) -> None:
    take(bench)
    bench.backend.say("renew", ValueError("a bug"))
    bench.runtime.go(11)
    failed = [service for service in bench.runtime.services if service.failure is not None]
    assert [service.name for service in failed] == ["fencelock-renewer"]
    assert bench.session.renewer.licence
    bench.session.renewer.notify()
    assert bench.runtime.alive().count("fencelock-renewer") == 1


def test_a_service_that_cannot_be_started_may_be_started_later(bench: Bench) -> None:
    def fails(coroutine: Coroutine[Any, Any, None], name: str) -> ManualService:
        coroutine.close()
        raise RuntimeError("no more threads")

    spawn, bench.runtime.spawn = bench.runtime.spawn, fails  # type: ignore[method-assign]
    with pytest.raises(RuntimeError):
        bench.session.timekeeper.notify()
    bench.runtime.spawn = spawn  # type: ignore[method-assign]
    hold = take(bench)
    bench.runtime.go(100)
    assert bench.session.holds.is_held(hold)


class Taken(list[None]):
    """A licence that another thread takes between the look and the grab."""

    def pop(self, *_: object) -> None:
        self.clear()
        raise IndexError


def test_of_two_who_start_a_service_one_does_and_the_other_wakes_it(bench: Bench) -> None:
    background = bench.session.timekeeper
    background.licence = Taken([None])
    background.signal = bench.runtime.signal()
    background.wake_by(0)
    assert bench.runtime.services == []
    assert background.signal.tapped


def test_a_service_that_is_about_to_begin_needs_no_signal(bench: Bench) -> None:
    background = bench.session.timekeeper
    background.licence = Taken([None])
    background.notify()
    assert bench.runtime.services == []


def test_a_service_that_ends_while_another_is_started_ends(bench: Bench) -> None:
    take(bench)
    background = bench.session.timekeeper
    background.licence = Taken()
    assert background._may_end()


def test_a_service_ends_only_if_nothing_was_added_at_the_last_moment(bench: Bench) -> None:
    take(bench)
    background = bench.session.timekeeper
    assert not background._may_end()
    assert background.licence == []


def test_stopping_what_never_ran(bench: Bench) -> None:
    async def body(_: object) -> bool:
        raise AssertionError

    background = Background(bench.session, "n", body)
    run(background.stop(1.0))
    take(bench)
    bench.session.closed = True
    bench.session.timekeeper.signal = None
    run(bench.session.timekeeper.stop(1.0))
    assert bench.runtime.alive() == []
