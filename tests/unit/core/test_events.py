"""What the core tells, step by step, on a scripted backend."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from typing import Any

import pytest

from fencelock import events
from fencelock.core import events as core
from fencelock.core.acquire import acquire
from fencelock.core.election import resign
from fencelock.core.hold import Hold
from fencelock.core.multi import acquire_all
from fencelock.core.ports import Busy, Outcome
from fencelock.core.release import release
from fencelock.core.renew import extend, verify
from fencelock.errors import (
    AcquireCancelled,
    AcquireTimeout,
    BackendError,
    BackendUnavailable,
)
from fencelock.events import (
    Acquired,
    BackendFailed,
    Broken,
    Event,
    Lost,
    Released,
    Renewed,
    TimedOut,
    Waiting,
    Withdrawn,
)
from fencelock.runtime.blocking import run
from unit.core.scripted import Bench, after, down, entry, keep, terms

OWNER = f"{1:032x}"
BY = ("scripted", "test")


@pytest.fixture
def told() -> Iterator[list[Event]]:
    heard: list[Event] = []
    with events.subscribe(heard.append):
        yield heard


def take(bench: Bench, timeout: float = math.inf, **changes: Any) -> Hold:
    return run(acquire(bench.session, terms(**changes), timeout, keep))


def test_a_pair_is_told_with_its_times(bench: Bench, told: list[Event]) -> None:
    bench.backend.say("acquire", after(2.0, lambda *_: bench.backend.grant()))
    hold = take(bench)
    bench.runtime.time += 5
    assert run(release(bench.session, hold)) is True
    assert told == [
        Acquired("x", "exclusive", 1, OWNER, 2.0, *BY),
        Released("x", "exclusive", 1, OWNER, 5.0, *BY),
    ]


def test_a_wait_is_told_once_before_the_grant(bench: Bench, told: list[Event]) -> None:
    bench.backend.say("acquire", Busy(1.0, None), Busy(1.0, None))
    take(bench)
    assert [type(event) for event in told] == [Waiting, Acquired]
    assert told[0] == Waiting("x", "exclusive", OWNER, *BY)
    assert isinstance(told[1], Acquired) and told[1].waited >= 1.0


def test_a_timeout_says_who_holds_it(bench: Bench, told: list[Event]) -> None:
    bench.backend.keep_saying("acquire", Busy(1.0, entry("them")))
    with pytest.raises(AcquireTimeout):
        take(bench, timeout=3.0)
    assert [type(event) for event in told] == [Waiting, TimedOut]
    end = told[1]
    assert isinstance(end, TimedOut) and end.holder is not None
    assert (end.waited, end.timeout, end.holder.owner) == (pytest.approx(3.0), 3.0, "them")


def test_a_try_that_finds_it_busy_did_not_wait(bench: Bench, told: list[Event]) -> None:
    bench.backend.say("acquire", Busy(1.0, None))
    with pytest.raises(AcquireTimeout):
        take(bench, timeout=0.0)
    assert told == [TimedOut("x", "exclusive", OWNER, 0.0, 0.0, None, *BY)]


def test_a_backend_that_is_away_is_told_at_each_step(bench: Bench, told: list[Event]) -> None:
    bench.backend.keep_saying("acquire", down())
    with pytest.raises(BackendUnavailable):
        take(bench)
    assert told[0] == BackendFailed("acquire", "BackendUnavailable", *BY)
    assert told.count(told[0]) == bench.backend.count("acquire") > 1
    end = told[-1]
    assert isinstance(end, Withdrawn) and (end.error, end.owner) == ("BackendUnavailable", OWNER)


def test_an_error_of_the_backend_ends_the_call(bench: Bench, told: list[Event]) -> None:
    bench.backend.say("acquire", BackendError(backend="scripted", detail="broken"))
    with pytest.raises(BackendError):
        take(bench)
    assert [type(event) for event in told] == [BackendFailed, Withdrawn]


def test_a_wait_that_fails_is_told(bench: Bench, told: list[Event]) -> None:
    bench.backend.say("acquire", Busy(1.0, None))
    bench.backend.say("wait", down())
    take(bench)
    assert [type(event) for event in told] == [Waiting, BackendFailed, Acquired]
    assert told[1] == BackendFailed("wait", "BackendUnavailable", *BY)


def test_whoever_interrupts_withdraws(bench: Bench, told: list[Event]) -> None:
    bench.backend.say("acquire", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        take(bench)
    assert told == [Withdrawn("x", "exclusive", OWNER, 0.0, "KeyboardInterrupt", *BY)]


def test_a_release_that_fails_is_a_release_and_a_failure(bench: Bench, told: list[Event]) -> None:
    hold = take(bench)
    bench.backend.say("release", down())
    with pytest.raises(BackendUnavailable):
        run(release(bench.session, hold))
    assert [type(event) for event in told] == [Acquired, BackendFailed, Released]


def test_a_release_that_is_interrupted_is_a_release(bench: Bench, told: list[Event]) -> None:
    hold = take(bench)
    bench.backend.say("release", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run(release(bench.session, hold))
    assert [type(event) for event in told] == [Acquired, Released]


def test_a_release_that_is_interrupted_before_it_began_is_none(bench: Bench, told: list[Event]) -> None:
    hold = take(bench)
    end = bench.session.holds.end
    bench.session.holds.end = lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt())  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        run(release(bench.session, hold))
    bench.session.holds.end = end  # type: ignore[method-assign]
    assert [type(event) for event in told] == [Acquired]
    run(release(bench.session, hold))
    assert [type(event) for event in told] == [Acquired, Released]


def test_a_release_of_what_was_gone_is_a_loss_and_no_release(bench: Bench, told: list[Event]) -> None:
    hold = take(bench)
    bench.backend.say("release", False)
    assert run(release(bench.session, hold)) is False
    assert [type(event) for event in told] == [Acquired, Lost]


def test_a_loss_is_told_once_with_its_reason(bench: Bench, told: list[Event]) -> None:
    hold = take(bench)
    bench.runtime.time += 100
    assert bench.session.holds.is_held(hold) is False
    bench.session.holds.lose(hold, "again")
    run(release(bench.session, hold))
    (lost,) = [event for event in told if type(event) is not Acquired]
    assert lost == Lost("x", "exclusive", 1, OWNER, 100.0, "not renewed within its ttl of 30s", *BY)


def test_whoever_hears_of_a_loss_hears_it_after_the_work(bench: Bench) -> None:
    order: list[str] = []
    hold = take(bench, on_lost=lambda _: order.append("on_lost"))
    hold.lease = lambda: "the lease"
    with events.subscribe(lambda _: order.append("subscriber"), Lost):
        bench.session.holds.lose(hold, "test")
    assert order == ["on_lost", "subscriber"]


def test_to_resign_is_no_loss(bench: Bench, told: list[Event], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "fencelock")
    run(resign(bench.session, take(bench), in_office=True))
    assert [type(event) for event in told] == [Acquired, Released]
    assert {record.levelno for record in caplog.records} == {logging.DEBUG}


def test_what_was_garbage_and_what_a_closed_client_held_was_released(bench: Bench, told: list[Event]) -> None:
    garbage, kept = take(bench, name="garbage"), take(bench, name="kept")
    bench.session.dropped.add(garbage)
    bench.session.dropped.collect()
    run(bench.session.close())
    ends = [event for event in told if type(event) is Released]
    assert [event.owner for event in ends] == [garbage.request.owner, kept.request.owner]


def test_a_client_that_is_closed_meanwhile_gives_back_what_it_just_got(
    bench: Bench, told: list[Event]
) -> None:
    def lease(hold: Hold) -> Hold:
        bench.session.closed = True
        return keep(hold)

    with pytest.raises(AcquireCancelled, match="closed"):
        run(acquire(bench.session, terms(), math.inf, lease))
    assert [type(event) for event in told] == [Acquired, Released]


def test_a_subscriber_that_is_interrupted_leaves_no_hold(bench: Bench, told: list[Event]) -> None:
    def interrupt(event: Acquired) -> None:
        raise KeyboardInterrupt

    with events.subscribe(interrupt, Acquired), pytest.raises(KeyboardInterrupt):
        take(bench)
    assert [type(event) for event in told] == [Acquired, Released]
    assert bench.is_clean() and bench.backend.count("abandon") == 1


def test_an_interrupt_after_the_hold_is_in_the_table_is_told_by_whoever_ends_it(
    bench: Bench, told: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(when: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bench.session.timekeeper, "wake_by", interrupt)
    with pytest.raises(KeyboardInterrupt):
        take(bench)
    assert [type(event) for event in told] == [Acquired]
    monkeypatch.undo()
    (hold,) = bench.session.holds.all()
    bench.session.holds.end(hold)
    assert [type(event) for event in told] == [Acquired, Released]


def test_to_enter_again_is_no_event(bench: Bench, told: list[Event]) -> None:
    hold = take(bench, reentrant=True)
    assert take(bench, reentrant=True) is hold
    run(release(bench.session, hold))
    run(release(bench.session, hold))
    assert [type(event) for event in told] == [Acquired, Released]


def test_of_several_locks_each_is_told_and_what_was_taken_in_vain_is_released(
    bench: Bench, told: list[Event]
) -> None:
    bench.backend.say("acquire", lambda *_: bench.backend.grant(), Busy(1.0, None))
    with pytest.raises(AcquireTimeout):
        run(acquire_all(bench.session, [(terms("a"), keep), (terms("b"), keep)], 0.0))
    assert [(type(event), event.name) for event in told] == [  # type: ignore[union-attr]
        (Acquired, "a"),
        (TimedOut, "b"),
        (Released, "a"),
    ]


def test_a_batch_of_renewals_is_one_event(bench: Bench, told: list[Event]) -> None:
    for name in "abc":
        take(bench, name=name)
    told.clear()
    bench.backend.say("renew", after(0.5, [Outcome.RENEWED, Outcome.LOST, Outcome.UNKNOWN]))
    bench.runtime.go(10.6)
    assert next(event for event in told if type(event) is Renewed) == Renewed(1, 1, 1, 0.5, *BY)
    assert [event.name for event in told if type(event) is Lost] == ["b"]


def test_a_renewal_that_fails_is_told_whoever_asked(bench: Bench, told: list[Event]) -> None:
    hold = take(bench)
    bench.backend.say("renew", down(), down(), down())
    bench.runtime.go(10.5)
    for ask in (verify(bench.session, hold), extend(bench.session, hold, 60.0)):
        with pytest.raises(BackendUnavailable):
            run(ask)
    failed = [event for event in told if type(event) is BackendFailed]
    assert failed == [BackendFailed("renew", "BackendUnavailable", *BY)] * 3


def test_a_clean_up_that_fails_is_told(bench: Bench, told: list[Event]) -> None:
    bench.backend.say("acquire", KeyboardInterrupt())
    bench.backend.say("abandon", down())
    with pytest.raises(KeyboardInterrupt):
        take(bench)
    assert BackendFailed("abandon", "BackendUnavailable", *BY) in told


def test_a_lock_that_is_broken_names_who_is_out(
    bench: Bench, told: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def breaks(*_: object, **__: object) -> list[Any]:
        return [entry("a"), entry("b")]

    async def fails(*_: object, **__: object) -> list[Any]:
        raise down()

    monkeypatch.setattr(bench.backend, "force_release", breaks)
    assert len(run(bench.session.force_release("x", None))) == 2
    monkeypatch.setattr(bench.backend, "force_release", fails)
    with pytest.raises(BackendUnavailable):
        run(bench.session.force_release("x", None))
    assert told == [
        Broken("x", ("a", "b"), *BY),
        BackendFailed("force_release", "BackendUnavailable", *BY),
    ]


# Nobody listens, or badly -----------------------------------------------------------------


def test_without_subscribers_no_event_of_a_pair_is_made(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("an event was made for nobody")

    monkeypatch.setattr(core, "new", never)
    run(release(bench.session, take(bench)))
    with events.subscribe(lambda _: None, Lost):
        run(release(bench.session, take(bench)))


def test_a_subscriber_that_raises_is_logged_once_and_harms_nobody(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[Event] = []

    def bad(event: Event) -> None:
        raise RuntimeError("a bug of the user's")

    with events.subscribe(bad) as first, events.subscribe(heard.append):
        bench.backend.say("acquire", Busy(1.0, None))
        run(release(bench.session, take(bench)))
        run(release(bench.session, take(bench)))
        assert [type(event) for event in heard] == [Waiting, Acquired, Released, Acquired, Released]
        assert [record.message for record in caplog.records if "a subscriber" in record.message] == [
            f"a subscriber to events failed: {bad!r} (this is said once)"
        ]
        first.close()
    assert core.faulty == []


def test_who_only_counts_gets_plain_values_and_no_event_is_made(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    counted: list[tuple[str, str, str, float]] = []

    def count(*values: Any) -> None:
        counted.append(values)
        if len(counted) == 2:
            raise RuntimeError("a bug")

    with events.Subscription({Acquired: core.Plain(count)}):
        with monkeypatch.context() as patch:
            patch.setattr(core, "new", None)
            run(release(bench.session, take(bench)))
        heard: list[Event] = []
        with events.subscribe(heard.append):
            run(release(bench.session, take(bench)))
    assert counted == [("x", "exclusive", "scripted", 0.0)] * 2
    assert [type(event) for event in heard] == [Acquired, Released]
    assert "a bug" in caplog.text


def test_a_loss_is_a_warning_with_all_there_is_to_know(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    hold = take(bench, name="invoice:42")
    bench.runtime.time += 2
    bench.session.holds.lose(hold, "test")
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("fencelock", logging.WARNING)
    assert record.getMessage() == f"lease on 'invoice:42' (token 1, owner {OWNER}) was lost: test"
    assert record.fencelock == {  # type: ignore[attr-defined]
        "event": "Lost",
        "name": "invoice:42",
        "mode": "exclusive",
        "token": 1,
        "owner": OWNER,
        "held": 2.0,
        "reason": "test",
        "backend": "scripted",
        "client": "test",
    }
