"""Pending cleanups: they run until the record is gone, once at a time."""

from __future__ import annotations

import math

import pytest

from fencelock.core.acquire import acquire
from fencelock.core.cleanup import Cleanup
from fencelock.core.hold import Hold
from fencelock.core.release import release
from fencelock.errors import BackendError, BackendUnavailable, ConfigurationError
from fencelock.runtime.blocking import run
from unit.core.scripted import Bench, down, keep, terms


def take(bench: Bench, **changes: object) -> Hold:
    return run(acquire(bench.session, terms(**changes), math.inf, keep))


def test_a_request_has_one_cleanup_however_often_it_is_added(bench: Bench) -> None:
    request = bench.request()
    assert bench.session.cleanups.add(request, 30) is bench.session.cleanups.add(request, 30)


def test_a_cleanup_that_is_interrupted_stays_pending_and_is_due_at_once(bench: Bench) -> None:
    cleanup = bench.session.cleanups.add(bench.request(), 30)
    bench.backend.say("abandon", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run(bench.session.cleanups.run(cleanup))
    assert cleanup.due == bench.runtime.time
    bench.runtime.go(1)
    assert bench.is_clean()


def test_a_cleanup_that_runs_is_not_run_by_the_renewer_too(bench: Bench) -> None:
    cleanup = bench.session.cleanups.add(bench.request(), 30)

    def meanwhile(*_: object) -> None:
        bench.runtime.go(1)

    bench.backend.say("abandon", meanwhile)
    run(bench.session.cleanups.run(cleanup))
    assert bench.backend.count("abandon") == 1


def test_a_cleanup_whose_record_expired_is_forgotten_with_its_last_failure(bench: Bench) -> None:
    cleanup = bench.session.cleanups.add(bench.request(), 30)
    bench.runtime.time += 31
    bench.backend.say("abandon", down())
    with pytest.raises(BackendUnavailable):
        run(bench.session.cleanups.run(cleanup))
    assert bench.session.cleanups.all() == []


def test_a_cleanup_is_tried_until_the_record_must_have_expired(bench: Bench) -> None:
    hold = take(bench, ttl=6.0)
    bench.backend.say("release", down())
    bench.backend.keep_saying("abandon", down())
    with pytest.raises(BackendUnavailable):
        run(release(bench.session, hold))
    bench.runtime.go(60)
    assert bench.session.cleanups.all() == []
    assert 4 <= bench.backend.count("abandon") <= 8
    assert bench.runtime.alive() == []


def test_one_cleanup_that_fails_does_not_keep_the_others(bench: Bench) -> None:
    odd = BackendError(backend="scripted", detail="odd")
    for name in ("a", "b"):
        bench.backend.say("release", odd)
        with pytest.raises(BackendError):
            run(release(bench.session, take(bench, name=name)))
    bench.backend.say("abandon", odd)
    bench.runtime.go(0)
    assert bench.backend.count("abandon") == 2
    bench.runtime.go(5)
    assert bench.is_clean()


def test_cleanups_run_when_the_backend_is_back(bench: Bench) -> None:
    for name in ("a", "b", "c"):
        bench.backend.say("release", down())
        with pytest.raises(BackendUnavailable):
            run(release(bench.session, take(bench, name=name)))
    bench.backend.say("abandon", down(), down(), down(), down())
    bench.runtime.go(5)
    assert bench.is_clean()


def test_a_cleanup_that_another_thread_has_begun_to_run_is_left_to_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        bench.backend.say("release", down())
        with pytest.raises(BackendUnavailable):
            run(release(bench.session, take(bench, name=name)))
    _, second = bench.session.cleanups.all()
    run_cleanup = bench.session.cleanups.run

    async def running(cleanup: Cleanup) -> None:
        second.due = math.inf  # as by a thread whose own call this is
        await run_cleanup(cleanup)

    monkeypatch.setattr(bench.session.cleanups, "run", running)
    bench.runtime.go(1)
    assert bench.backend.count("abandon") == 1
    assert bench.session.cleanups.all() == [second]


def test_a_cleanup_on_a_backend_that_cannot_be_used_at_all_is_forgotten(bench: Bench) -> None:
    cleanup = bench.session.cleanups.add(bench.request(), 30)
    bench.backend.say("abandon", ConfigurationError("there is no such file"))
    with pytest.raises(ConfigurationError):
        run(bench.session.cleanups.run(cleanup))
    assert bench.session.cleanups.all() == []
