"""Acquire and release: one request's way through the queue, and every way it can go wrong."""

from __future__ import annotations

import math

import pytest

from fencelock.core.acquire import RIDE_OUT, TOO_LATE, TRY_LIMIT, acquire
from fencelock.core.cleanup import ECHO
from fencelock.core.hold import HELD, Hold
from fencelock.core.ports import STEP_LIMIT, Busy, Grant, PoolExhausted, patience
from fencelock.errors import (
    AcquireCancelled,
    AcquireTimeout,
    BackendUnavailable,
    ConfigurationError,
)
from fencelock.runtime.blocking import run
from unit.core.scripted import Bench, after, down, entry, keep, terms


def take(bench: Bench, timeout: float = math.inf, **changes: object) -> Hold:
    return run(acquire(bench.session, terms(**changes), timeout, keep))


# The way that nothing disturbs ----------------------------------------------------------


def test_a_grant_becomes_a_hold_that_is_registered(bench: Bench) -> None:
    hold = take(bench)
    assert hold.state is HELD
    assert bench.session.holds.all() == [hold]
    assert bench.session.acquiring == {}


def test_validity_counts_from_before_the_step_was_sent(bench: Bench) -> None:
    bench.backend.say("acquire", after(4, Grant(7, 30)))
    hold = take(bench)
    assert hold.token == 7
    assert hold.deadline == 1000 + 30
    assert hold.due == 1000 + 10


def test_every_acquisition_has_an_owner_of_its_own(bench: Bench) -> None:
    assert take(bench).request.owner != take(bench).request.owner


def test_a_step_is_given_no_more_time_than_the_caller_has(bench: Bench) -> None:
    take(bench, timeout=2)
    take(bench, timeout=60)
    take(bench, timeout=0)
    assert [deadline for _, _, deadline in bench.backend.taken("acquire")] == [
        1002,
        1000 + STEP_LIMIT,
        1000 + TRY_LIMIT,
    ]


def test_a_closed_client_acquires_nothing(bench: Bench) -> None:
    bench.session.closed = True
    with pytest.raises(ConfigurationError, match="closed"):
        take(bench)
    assert bench.backend.calls == []


# Waiting ---------------------------------------------------------------------------------


def test_timeout_zero_tries_once_and_leaves_nothing_to_undo(bench: Bench) -> None:
    bench.backend.say("acquire", Busy(5, None))
    with pytest.raises(AcquireTimeout):
        take(bench, timeout=0)
    assert bench.backend.taken("acquire")[0][1] is False
    assert bench.backend.count("acquire") == 1
    assert bench.backend.count("abandon") == 0
    assert bench.is_clean()


def test_a_waiter_takes_another_step_at_every_heartbeat(bench: Bench) -> None:
    bench.backend.say("acquire", Busy(100, None), Busy(100, None), Busy(100, None))
    hold = take(bench)
    assert bench.backend.count("acquire") == 4
    assert bench.runtime.time == pytest.approx(1000 + 3 * patience(30) / 3)
    assert hold.deadline == bench.runtime.time + 30


def test_a_waiter_looks_when_somebody_before_it_may_have_expired(bench: Bench) -> None:
    bench.backend.say("acquire", Busy(0.25, None))
    take(bench)
    assert bench.runtime.time == pytest.approx(1000.25)


def test_a_recheck_that_is_overdue_does_not_spin(bench: Bench) -> None:
    bench.backend.say("acquire", Busy(-3, None))
    take(bench)
    assert bench.runtime.time > 1000


def test_the_request_is_the_same_one_in_every_step(bench: Bench) -> None:
    bench.backend.say("acquire", Busy(1, None), down(), Busy(1, None))
    take(bench)
    assert len({request.owner for request, _, _ in bench.backend.taken("acquire")}) == 1


def test_a_timeout_names_the_holder_and_how_long_it_has_held_by_now(bench: Bench) -> None:
    bench.backend.keep_saying("acquire", Busy(100, entry(age=12.0)))
    with pytest.raises(AcquireTimeout) as caught:
        take(bench, timeout=2.5)
    assert caught.value.waited == pytest.approx(2.5)
    assert caught.value.holder is not None
    # 12 s when the last step was sent, at 2 s; 12.5 s now.
    assert caught.value.holder.age == pytest.approx(12.5)
    assert bench.backend.count("abandon") == 1
    assert bench.is_clean()


def test_a_timeout_without_a_known_holder(bench: Bench) -> None:
    bench.backend.keep_saying("acquire", Busy(100, None))
    with pytest.raises(AcquireTimeout) as caught:
        take(bench, timeout=0.1)
    assert caught.value.holder is None


def test_an_answer_that_comes_after_the_deadline_is_a_timeout(bench: Bench) -> None:
    bench.backend.say("acquire", after(3, Busy(100, None)))
    with pytest.raises(AcquireTimeout) as caught:
        take(bench, timeout=1)
    assert caught.value.waited == pytest.approx(3)
    assert bench.backend.count("wait") == 0


def test_one_deadline_covers_everything_that_happens_inside(bench: Bench) -> None:
    bench.backend.say("acquire", Busy(1, None), down(), Busy(0.5, None), down(), down())
    bench.backend.keep_saying("acquire", Busy(100, None))
    with pytest.raises(AcquireTimeout):
        take(bench, timeout=4)
    assert bench.runtime.time == pytest.approx(1004)


def test_a_client_that_is_closed_lets_its_waiters_go(bench: Bench) -> None:
    def close(*_: object) -> None:
        bench.session.closed = True

    bench.backend.say("acquire", Busy(100, None))
    bench.backend.say("wait", close)
    with pytest.raises(AcquireCancelled, match="closed"):
        take(bench)
    assert bench.backend.count("abandon") == 1
    assert bench.session.acquiring == {}


# Pushed grants ---------------------------------------------------------------------------


def test_a_pushed_grant_counts_from_before_the_latest_step(bench: Bench) -> None:
    bench.backend.say("acquire", Busy(100, None), Busy(100, None))
    bench.backend.say("wait", after(1, None), after(0.5, Grant(9, 30)))
    hold = take(bench)
    assert hold.token == 9
    assert hold.deadline == pytest.approx(1001 + 30)
    assert bench.backend.count("acquire") == 2


def test_a_pushed_grant_that_is_over_already_is_no_grant(bench: Bench) -> None:
    bench.backend.say("acquire", Busy(100, None), Grant(10, 30))
    bench.backend.say("wait", after(40, Grant(9, 30)))
    assert take(bench).token == 10


def test_a_pushed_grant_is_short_until_it_is_renewed_soon(bench: Bench) -> None:
    bench.backend.say("acquire", Busy(100, None))
    bench.backend.say("wait", after(0.5, Grant(9, 3)))
    hold = take(bench)
    assert hold.deadline == pytest.approx(1000 + 3)
    assert hold.due == pytest.approx(1000.5 + 0.25)


def test_a_pushed_grant_that_is_nearly_over_is_asked_for_again(bench: Bench) -> None:
    bench.backend.say("acquire", Busy(100, None), Grant(9, 30))
    bench.backend.say("wait", after(1.6, Grant(9, 3)))
    assert take(bench).deadline == pytest.approx(1001.6 + 30)


def test_a_short_pushed_grant_is_not_enough_without_renewals(bench: Bench) -> None:
    bench.backend.say("acquire", Busy(100, None), Grant(9, 30))
    bench.backend.say("wait", after(0.5, Grant(9, 3)))
    hold = take(bench, renew=False)
    assert hold.deadline == pytest.approx(1000.5 + 30)
    assert bench.backend.count("acquire") == 2


def test_a_whole_pushed_grant_is_enough_without_renewals(bench: Bench) -> None:
    bench.backend.say("acquire", Busy(100, None))
    bench.backend.say("wait", after(0.5, Grant(9, 30)))
    assert take(bench, renew=False).deadline == pytest.approx(1000 + 30)


# Grants that arrive too late -------------------------------------------------------------


def test_a_grant_that_is_over_when_it_arrives_is_asked_for_again(bench: Bench) -> None:
    bench.backend.say("acquire", after(31, Grant(1, 30)), after(30, Grant(1, 30)), Grant(1, 30))
    hold = take(bench)
    assert bench.backend.count("acquire") == 3
    assert hold.deadline == 1000 + 31 + 30 + 30


def test_a_backend_that_is_always_too_late_is_unavailable(bench: Bench) -> None:
    bench.backend.keep_saying("acquire", after(31, Grant(1, 30)))
    with pytest.raises(BackendUnavailable, match="longer than the ttl of 30s"):
        take(bench)
    assert bench.backend.count("acquire") == TOO_LATE
    assert bench.session.holds.all() == []
    bench.runtime.go(1)
    assert bench.backend.count("abandon") == 1
    assert bench.is_clean()


def test_a_late_grant_after_the_deadline_is_not_asked_for_again(bench: Bench) -> None:
    bench.backend.say("acquire", after(31, Grant(1, 30)))
    with pytest.raises(BackendUnavailable):
        take(bench, timeout=10)
    assert bench.backend.count("acquire") == 1


# Outages ---------------------------------------------------------------------------------


def test_a_waiter_rides_out_a_short_outage(bench: Bench) -> None:
    bench.backend.say("acquire", Busy(1, None), down(), down(), down())
    assert take(bench).state is HELD


def test_an_outage_that_lasts_is_reported(bench: Bench) -> None:
    bench.backend.keep_saying("acquire", down())
    with pytest.raises(BackendUnavailable):
        take(bench)
    assert RIDE_OUT <= bench.runtime.time - 1000 <= RIDE_OUT + 0.2


def test_outages_with_answers_in_between_do_not_add_up(bench: Bench) -> None:
    for _ in range(10):
        bench.backend.say("acquire", after(1, down()), Busy(0.1, None))
    assert take(bench).state is HELD


def test_the_length_of_an_outage_counts_from_when_the_first_failing_step_was_sent(bench: Bench) -> None:
    bench.backend.say("acquire", after(RIDE_OUT, down()))
    with pytest.raises(BackendUnavailable):
        take(bench)
    assert bench.backend.count("acquire") == 1


def test_a_try_does_not_wait_for_an_outage_to_end(bench: Bench) -> None:
    bench.backend.say("acquire", down())
    with pytest.raises(BackendUnavailable):
        take(bench, timeout=0)
    assert bench.backend.count("acquire") == 1


def test_a_caller_does_not_wait_for_the_clean_up_of_what_does_not_answer(bench: Bench) -> None:
    bench.backend.keep_saying("acquire", after(1, down()))
    bench.backend.keep_saying("abandon", after(1, down()))
    with pytest.raises(BackendUnavailable):
        take(bench, timeout=1)
    assert bench.runtime.time == pytest.approx(1001)
    assert bench.backend.count("abandon") == 0
    bench.runtime.go(5)
    assert bench.backend.count("abandon") >= 1


def test_what_cannot_get_better_is_reported_at_once(bench: Bench) -> None:
    bench.backend.say("acquire", down(transient=False))
    with pytest.raises(BackendUnavailable):
        take(bench)
    assert bench.runtime.time == 1000


def test_an_outage_at_the_deadline_is_unavailable_and_not_a_timeout(bench: Bench) -> None:
    bench.backend.say("acquire", after(1, down()))
    with pytest.raises(BackendUnavailable):
        take(bench, timeout=1)


def test_a_waiter_whose_last_step_had_no_time_left_timed_out(bench: Bench) -> None:
    """It was told who holds the lock; that the step at the deadline was cut short says nothing."""
    bench.backend.say("acquire", Busy(0.9, entry()), after(0.1, down()))
    with pytest.raises(AcquireTimeout) as caught:
        take(bench, timeout=1)
    assert caught.value.holder is not None


# A pool that is used up ---------------------------------------------------------------------


def crowded() -> PoolExhausted:
    return PoolExhausted(backend="scripted", label="a:1")


def test_no_connection_by_the_deadline_is_a_timeout(bench: Bench) -> None:
    bench.backend.say("acquire", after(1, crowded()))
    with pytest.raises(AcquireTimeout) as caught:
        take(bench, timeout=1)
    assert caught.value.holder is None
    assert bench.backend.count("abandon") == 1
    assert bench.is_clean()


def test_no_connection_for_a_try_is_a_timeout_and_leaves_nothing_to_undo(bench: Bench) -> None:
    bench.backend.say("acquire", after(TRY_LIMIT, crowded()))
    with pytest.raises(AcquireTimeout):
        take(bench, timeout=0)
    assert bench.backend.count("abandon") == 0
    assert bench.is_clean()


def test_a_timeout_without_a_connection_names_the_holder_that_was_known(bench: Bench) -> None:
    bench.backend.say("acquire", Busy(0.5, entry()), after(2, crowded()))
    with pytest.raises(AcquireTimeout) as caught:
        take(bench, timeout=2)
    assert caught.value.holder is not None


def test_a_waiter_without_a_deadline_waits_for_a_connection_for_as_long_as_it_takes(bench: Bench) -> None:
    bench.backend.say("acquire", *(after(STEP_LIMIT, crowded()) for _ in range(5)))
    assert take(bench).state is HELD
    assert bench.runtime.time > 1000 + 5 * STEP_LIMIT


def test_an_outage_ends_when_the_server_answers_others(bench: Bench) -> None:
    bench.backend.say("acquire", after(RIDE_OUT / 2, down()), after(RIDE_OUT, crowded()), down())
    assert take(bench).state is HELD


def test_a_waiter_survives_when_pushes_do_not_come_through(bench: Bench) -> None:
    bench.backend.say("acquire", Busy(100, None), Busy(100, None))
    bench.backend.say("wait", down(), down())
    assert take(bench).state is HELD
    assert bench.runtime.time > 1000


def test_a_pause_in_an_outage_does_not_pass_the_deadline(bench: Bench) -> None:
    bench.backend.say("acquire", down())
    bench.backend.keep_saying("acquire", Busy(100, None))
    with pytest.raises(AcquireTimeout):
        take(bench, timeout=0.01)
    assert bench.runtime.slept == [pytest.approx(0.01)]


@pytest.mark.parametrize("transient", [True, False])
def test_a_client_that_is_closed_during_an_outage_gives_up(bench: Bench, transient: bool) -> None:
    def fail(*_: object) -> None:
        bench.session.closed = True
        raise down(transient=transient)

    bench.backend.say("acquire", fail)
    with pytest.raises(AcquireCancelled, match="closed"):
        take(bench)


# Whatever goes wrong ---------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("a bug"), ConfigurationError("limit")])
def test_a_request_that_failed_is_withdrawn_before_the_error_travels_on(
    bench: Bench, error: BaseException
) -> None:
    bench.backend.say("acquire", error)
    with pytest.raises(type(error)):
        take(bench)
    assert bench.backend.count("abandon") == 1
    bench.runtime.go(ECHO)
    assert bench.is_clean()


def test_a_withdrawal_is_repeated_where_a_step_got_no_answer(bench: Bench) -> None:
    bench.backend.say("acquire", down(transient=False))
    with pytest.raises(BackendUnavailable):
        take(bench)
    bench.runtime.go()
    assert bench.backend.count("abandon") == 1
    (cleanup,) = bench.session.cleanups.all()
    assert cleanup.was_answered
    bench.runtime.go(ECHO)
    assert bench.backend.count("abandon") == 2
    assert bench.is_clean()


def test_a_step_without_an_answer_is_doubted_though_the_next_one_was_answered(bench: Bench) -> None:
    bench.backend.say("acquire", down(), Busy(1, None))
    bench.backend.say("wait", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        take(bench)
    bench.runtime.go(ECHO)
    assert bench.backend.count("abandon") == 2
    assert bench.is_clean()


def test_closing_does_not_wait_for_an_echo(bench: Bench) -> None:
    bench.backend.say("acquire", down(transient=False))
    with pytest.raises(BackendUnavailable):
        take(bench)
    run(bench.session.close())
    assert bench.backend.count("abandon") == 1
    assert bench.is_clean()


def test_an_interrupt_while_waiting_withdraws_the_request(bench: Bench) -> None:
    bench.backend.say("acquire", Busy(1, None))
    bench.backend.say("wait", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        take(bench)
    assert bench.backend.count("abandon") == 1
    assert bench.is_clean()


def test_a_lease_that_cannot_be_made_leaves_nothing(bench: Bench) -> None:
    def fail(hold: Hold) -> Hold:
        raise MemoryError

    with pytest.raises(MemoryError):
        run(acquire(bench.session, terms(), 1, fail))
    assert bench.backend.count("abandon") == 1
    assert bench.is_clean()


def test_what_cannot_be_withdrawn_is_cleaned_up_by_the_renewer(bench: Bench) -> None:
    bench.backend.say("acquire", KeyboardInterrupt())
    bench.backend.say("abandon", down(), down())
    with pytest.raises(KeyboardInterrupt):
        take(bench)
    assert len(bench.session.cleanups) == 1
    bench.runtime.go(3)
    assert bench.backend.count("abandon") == 4
    assert bench.is_clean()


def test_a_client_that_is_closed_while_the_grant_is_on_its_way_holds_nothing(bench: Bench) -> None:
    def close(*_: object) -> Grant:
        bench.session.closed = True
        return bench.backend.grant()

    bench.backend.say("acquire", close)
    with pytest.raises(AcquireCancelled, match="closed"):
        take(bench)
    assert bench.backend.count("abandon") == 1
    assert bench.is_clean()


def test_the_first_error_of_an_outage_is_the_one_that_is_raised(bench: Bench) -> None:
    first = BackendUnavailable(backend="scripted", detail="it is out of memory")
    last = BackendUnavailable(backend="scripted", detail="no answer in time")
    bench.backend.say("acquire", first, after(3, last))
    with pytest.raises(BackendUnavailable, match="out of memory"):
        take(bench, 1)


def test_what_comes_after_an_outage_is_an_outage_of_its_own(bench: Bench) -> None:
    first = BackendUnavailable(backend="scripted", detail="it is out of memory")
    last = BackendUnavailable(backend="scripted", detail="no answer in time")
    bench.backend.say("acquire", first, Busy(100, None), after(3, last))
    bench.backend.say("wait", after(1, None))
    with pytest.raises(BackendUnavailable, match="no answer in time"):
        take(bench)
