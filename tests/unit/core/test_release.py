"""Release: a lock is given back, once, and what fails is cleaned up."""

from __future__ import annotations

import math

import pytest

from fencelock.core.acquire import acquire
from fencelock.core.hold import LOST, RELEASED, Hold
from fencelock.core.release import release
from fencelock.errors import BackendError, BackendUnavailable
from fencelock.runtime.blocking import run
from unit.core.scripted import Bench, down, keep, terms


def take(bench: Bench, **changes: object) -> Hold:
    return run(acquire(bench.session, terms(**changes), math.inf, keep))


def test_release_says_that_the_lock_was_held_until_now(bench: Bench) -> None:
    hold = take(bench)
    assert run(release(bench.session, hold)) is True
    assert hold.state is RELEASED
    assert bench.is_clean()


def test_a_second_release_does_nothing(bench: Bench) -> None:
    hold = take(bench)
    run(release(bench.session, hold))
    assert run(release(bench.session, hold)) is False
    assert bench.backend.count("release") == 1
    assert bench.backend.count("abandon") == 0


def test_a_release_that_finds_no_record_is_a_loss(bench: Bench) -> None:
    bench.backend.say("release", False)
    hold = take(bench)
    assert run(release(bench.session, hold)) is False
    assert hold.state is LOST
    assert "no record" in hold.reason


def test_a_release_after_the_deadline_is_a_loss_and_the_record_is_cleaned_up(bench: Bench) -> None:
    hold = take(bench, renew=False)
    bench.runtime.time += 31
    assert run(release(bench.session, hold)) is False
    assert hold.state is LOST
    assert bench.backend.count("release") == 0
    bench.runtime.go(0)
    assert bench.backend.count("abandon") == 1


def test_a_release_that_fails_is_pending_and_tried_again_by_the_next_call(bench: Bench) -> None:
    bench.backend.say("release", down())
    hold = take(bench)
    with pytest.raises(BackendUnavailable):
        run(release(bench.session, hold))
    assert hold.state is RELEASED
    assert bench.session.cleanups.get(hold.request) is not None
    assert run(release(bench.session, hold)) is False
    assert bench.backend.count("abandon") == 1
    assert bench.is_clean()


def test_a_release_that_is_interrupted_is_finished_first(bench: Bench) -> None:
    bench.backend.say("release", KeyboardInterrupt())
    hold = take(bench)
    with pytest.raises(KeyboardInterrupt):
        run(release(bench.session, hold))
    assert bench.backend.count("abandon") == 1
    assert bench.is_clean()


def test_two_releases_at_once_send_one(bench: Bench) -> None:
    hold = take(bench)

    def meanwhile(*_: object) -> bool:
        assert run(release(bench.session, hold)) is False
        return True

    bench.backend.say("release", meanwhile)
    assert run(release(bench.session, hold)) is True
    assert bench.backend.count("release") == 1


def test_a_hold_that_another_thread_has_just_taken_out_is_not_released_twice(bench: Bench) -> None:
    hold = take(bench)
    bench.session.holds._table.pop(hold.request.owner)  # as the first instruction of that thread's release
    assert run(release(bench.session, hold)) is False
    assert bench.backend.count("release") == 0


def test_a_cleanup_is_pending_after_a_backend_error_of_another_kind_too(bench: Bench) -> None:
    bench.backend.say("release", BackendError(backend="scripted", detail="corrupt"))
    hold = take(bench)
    with pytest.raises(BackendError, match="corrupt"):
        run(release(bench.session, hold))
    assert bench.session.cleanups.get(hold.request) is not None
