"""A session: how it ends, in this process and in a forked child."""

from __future__ import annotations

import math

import pytest

from fencelock.core.acquire import acquire
from fencelock.core.hold import HELD, LOST, RELEASED, Hold
from fencelock.core.ports import Busy
from fencelock.core.release import release
from fencelock.core.session import CLOSE_LIMIT
from fencelock.errors import AcquireCancelled, BackendError, BackendUnavailable, ConfigurationError
from fencelock.runtime.blocking import run
from unit.core.scripted import Bench, after, down, keep, terms


def take(bench: Bench, **changes: object) -> Hold:
    return run(acquire(bench.session, terms(**changes), math.inf, keep))


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


def test_closing_runs_the_pending_cleanups(bench: Bench) -> None:
    hold = take(bench)
    bench.backend.say("release", down())
    with pytest.raises(BackendUnavailable):
        run(release(bench.session, hold))
    run(bench.session.close())
    assert bench.is_clean()


def test_closing_collects_the_dropped(bench: Bench) -> None:
    hold = take(bench)
    bench.session.dropped.add(hold)
    run(bench.session.close())
    assert bench.backend.count("abandon") == 1
    assert bench.is_clean()


def test_closing_in_the_middle_of_this_threads_own_wait_withdraws_its_request_and_does_not_wait_for_it(
    bench: Bench,
) -> None:
    """As a signal handler does. The wait that goes on then finds nothing to clean up."""

    def handler(*_: object) -> None:
        run(bench.session.close())

    bench.backend.say("acquire", Busy(1, None))
    bench.backend.say("wait", handler)
    with pytest.raises(AcquireCancelled, match="closed"):
        take(bench)
    assert bench.backend.count("abandon") == 1
    assert bench.runtime.time < 1000 + CLOSE_LIMIT
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


def test_in_a_child_nothing_of_the_parent_is_held_pending_or_awaited(bench: Bench) -> None:
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


def test_a_client_that_is_garbage_keeps_only_what_was_handed_out_until_its_ttl(bench: Bench) -> None:
    ended: list[object] = []
    bench.session.last_will = ended.append
    handed, in_a_block = take(bench, name="handed"), take(bench, name="in a block")
    handed.handed = True
    assert bench.session.has_handed_out()
    bench.session.retire()
    assert (handed.state, in_a_block.state) == (HELD, RELEASED)
    bench.runtime.go(40)
    assert handed.state is RELEASED
    assert bench.backend.count("renew") == 0
    assert ended[0] is bench.session
    assert bench.is_clean()


def test_a_client_that_was_never_closed_gives_back_what_it_holds_and_what_is_pending(
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
