"""A session: what it holds, what it owes, and how it ends."""

from __future__ import annotations

import math
from collections import deque

import pytest

from fencelock.core.acquire import acquire
from fencelock.core.hold import LOST, RELEASED, Hold
from fencelock.core.release import release
from fencelock.core.session import CLOSE_LIMIT
from fencelock.errors import BackendError, BackendUnavailable, ConfigurationError
from fencelock.runtime.blocking import run
from unit.core.scripted import Bench, after, down, keep, terms


def take(bench: Bench, **changes: object) -> Hold:
    return run(acquire(bench.session, terms(**changes), math.inf, keep))


# Losses ----------------------------------------------------------------------------------


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


def test_a_loss_that_the_backend_knows_of_leaves_no_debt(bench: Bench) -> None:
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


# Leases that nobody has any more ---------------------------------------------------------


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


def test_garbage_that_another_thread_buries_first_is_left_to_it(bench: Bench) -> None:
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


# Reentrancy ------------------------------------------------------------------------------


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


# Debts -----------------------------------------------------------------------------------


def test_a_debt_is_one_debt_however_often_it_is_incurred(bench: Bench) -> None:
    request = bench.request()
    assert bench.session.cleanups.add(request, 30) is bench.session.cleanups.add(request, 30)


def test_paying_that_is_interrupted_stays_a_debt_and_is_due_at_once(bench: Bench) -> None:
    debt = bench.session.cleanups.add(bench.request(), 30)
    bench.backend.say("abandon", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run(bench.session.cleanups.run(debt))
    assert debt.due == bench.runtime.time
    bench.runtime.go(1)
    assert bench.is_clean()


def test_a_debt_that_is_being_paid_is_not_paid_by_the_renewer_too(bench: Bench) -> None:
    debt = bench.session.cleanups.add(bench.request(), 30)

    def meanwhile(*_: object) -> None:
        bench.runtime.go(1)

    bench.backend.say("abandon", meanwhile)
    run(bench.session.cleanups.run(debt))
    assert bench.backend.count("abandon") == 1


def test_a_debt_that_expired_is_forgotten_with_its_last_failure(bench: Bench) -> None:
    debt = bench.session.cleanups.add(bench.request(), 30)
    bench.runtime.time += 31
    bench.backend.say("abandon", down())
    with pytest.raises(BackendUnavailable):
        run(bench.session.cleanups.run(debt))
    assert bench.session.cleanups.all() == []


# The end ---------------------------------------------------------------------------------


def test_closing_releases_what_is_held_and_closes_the_backend_once(bench: Bench) -> None:
    holds = [take(bench, name=name) for name in "abc"]
    run(bench.session.close())
    run(bench.session.close())
    assert [hold.state for hold in holds] == [RELEASED] * 3
    assert bench.backend.count("abandon") == 3
    assert bench.backend.closed == 1
    assert bench.runtime.alive() == []
    assert bench.is_clean()


def test_closing_pays_the_debts(bench: Bench) -> None:
    hold = take(bench)
    bench.backend.say("release", down())
    with pytest.raises(BackendUnavailable):
        run(release(bench.session, hold))
    run(bench.session.close())
    assert bench.is_clean()


def test_closing_buries_the_dropped(bench: Bench) -> None:
    hold = take(bench)
    bench.session.dropped.add(hold)
    run(bench.session.close())
    assert bench.backend.count("abandon") == 1
    assert bench.is_clean()


def test_closing_does_not_insist_while_the_backend_is_down(bench: Bench) -> None:
    for name in "abc":
        take(bench, name=name)
    bench.backend.keep_saying("abandon", down())
    run(bench.session.close())
    assert bench.backend.count("abandon") <= 3
    assert bench.runtime.time < 1000 + CLOSE_LIMIT + 1
    assert bench.backend.closed == 1
    assert bench.runtime.alive() == []


def test_closing_goes_on_after_an_odd_error(bench: Bench) -> None:
    for name in "abc":
        take(bench, name=name)
    bench.backend.say("abandon", BackendError(backend="scripted", detail="odd"))
    run(bench.session.close())
    assert bench.backend.count("abandon") >= 3


def test_closing_a_slow_backend_ends_by_the_limit(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    for name in "abcdefgh":
        take(bench, name=name)
    bench.backend.keep_saying("abandon", after(2))
    run(bench.session.close())
    assert bench.runtime.time <= 1000 + CLOSE_LIMIT + 2
    assert "could not be released and will expire" in caplog.text
    assert bench.backend.closed == 1


def test_closing_waits_for_those_who_are_in_the_middle_of_acquiring(bench: Bench) -> None:
    bench.another_thread_acquires()
    sleep = bench.runtime.sleep

    async def leaves_after_a_second(seconds: float) -> None:
        await sleep(seconds)
        if bench.runtime.time >= 1001:
            bench.session.acquiring.clear()

    bench.runtime.sleep = leaves_after_a_second  # type: ignore[method-assign]
    run(bench.session.close())
    assert bench.runtime.time == pytest.approx(1001, abs=0.1)


def test_closing_does_not_wait_for_ever_for_those_who_are_stuck(bench: Bench) -> None:
    bench.another_thread_acquires()
    run(bench.session.close())
    assert bench.runtime.time == pytest.approx(1000 + CLOSE_LIMIT, abs=0.1)
    assert bench.backend.closed == 1


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), SystemExit(143)])
def test_closing_that_is_interrupted_releases_all_and_closes_the_backend_all_the_same(
    bench: Bench, interrupt: BaseException
) -> None:
    holds = [take(bench, name=name) for name in ("a", "b", "c")]
    bench.backend.say("abandon", interrupt)
    with pytest.raises(type(interrupt)):
        run(bench.session.close())
    given_back = [arguments[0] for step, arguments in bench.backend.calls if step == "abandon"]
    assert {request.owner for request in given_back[1:]} == {hold.request.owner for hold in holds}
    assert bench.session.cleanups.all() == []
    assert bench.backend.closed == 1


def test_a_closed_session_says_so(bench: Bench) -> None:
    run(bench.session.close())
    with pytest.raises(ConfigurationError, match="make a new one"):
        bench.session.check_open()


def test_a_hold_that_another_thread_releases_while_closing_is_not_given_back_twice(bench: Bench) -> None:
    take(bench, name="a")
    other = take(bench, name="b")
    add = bench.session.cleanups.add

    def meanwhile(*arguments: object) -> object:
        bench.session.holds.end(other)
        return add(*arguments)

    bench.session.cleanups.add = meanwhile  # type: ignore[method-assign]
    run(bench.session.close())
    assert [request.name for request, _ in bench.backend.taken("abandon")] == ["a"]


# Fork ------------------------------------------------------------------------------------


def test_in_a_child_nothing_of_the_parent_is_held_owed_or_awaited(bench: Bench) -> None:
    hold = take(bench, reentrant=True)
    bench.session.cleanups.add(bench.request(), 30)
    bench.another_thread_acquires()
    timekeeper = bench.session.timekeeper
    bench.session.forked()
    assert hold.state is LOST
    assert "parent" in hold.reason
    assert bench.is_clean()
    assert bench.session.timekeeper is not timekeeper
    assert bench.backend.was_forked == 1
    assert run(release(bench.session, hold)) is False
    assert bench.backend.count("release") == bench.backend.count("abandon") == 0


def test_a_child_may_use_the_client_at_once(bench: Bench) -> None:
    take(bench)
    bench.session.forked()
    hold = take(bench)
    bench.runtime.go(100)
    assert bench.session.holds.is_held(hold)


# Never closed ----------------------------------------------------------------------------


def test_a_client_that_was_never_closed_gives_back_what_it_holds_and_owes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgotten: list[object] = []
    monkeypatch.setattr(bench.backend, "forget", forgotten.extend)
    held, lost = take(bench), take(bench, name="other")
    bench.session.holds.lose(lost, "test")
    bench.session.forget()
    assert forgotten == [held.request, lost.request]
    assert held.state is RELEASED
    bench.session.forget()
    assert len(forgotten) == 2


def test_a_backend_that_is_down_at_the_end_of_the_program_is_no_error(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(requests: object) -> None:
        raise down()

    monkeypatch.setattr(bench.backend, "forget", fails)
    hold = take(bench)
    bench.session.forget()
    assert hold.state is RELEASED


def test_a_closed_client_has_nothing_to_forget(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    run(bench.session.close())
    monkeypatch.setattr(bench.backend, "forget", lambda requests: pytest.fail("forget was called"))
    bench.session.forget()
