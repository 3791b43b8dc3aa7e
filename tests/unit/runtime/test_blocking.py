"""The blocking runtime: nothing suspends, everything happens on the caller's thread."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from fencelock.runtime import clock
from fencelock.runtime.base import Runtime
from fencelock.runtime.blocking import BlockingRuntime, BlockingSignal, run
from unit.support import until


@pytest.fixture
def runtime() -> BlockingRuntime:
    return BlockingRuntime()


def test_it_is_a_runtime(runtime: BlockingRuntime) -> None:
    assert isinstance(runtime, Runtime)
    assert runtime.flavour == "blocking"


def test_run_returns_the_result_and_raises_the_error() -> None:
    async def answer() -> int:
        return 42

    async def fail() -> None:
        raise KeyError("x")

    assert run(answer()) == 42
    with pytest.raises(KeyError):
        run(fail())


def test_run_refuses_what_suspends_and_closes_it() -> None:
    closed = []

    async def foreign() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            closed.append(True)

    with pytest.raises(RuntimeError, match="foreign"):
        run(foreign())
    assert closed == [True]


def test_the_clock_is_the_one_that_goes_on_during_suspend(runtime: BlockingRuntime) -> None:
    expected = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert expected <= runtime.now() <= expected + 60
    assert runtime.now() <= runtime.now()


def test_a_boot_has_a_name() -> None:
    assert clock.boot_id() == clock.boot_id()
    assert len(clock.boot_id() or "") == 36


def test_ids_are_random_and_32_hexadecimal_digits(runtime: BlockingRuntime) -> None:
    ids = {runtime.new_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(len(one) == 32 and int(one, 16) >= 0 for one in ids)


def test_jitter_is_from_0_up_to_1(runtime: BlockingRuntime) -> None:
    assert all(0 <= runtime.jitter() < 1 for _ in range(100))


def test_current_is_the_thread(runtime: BlockingRuntime) -> None:
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(runtime.current()))
    thread.start()
    thread.join()
    assert found == [thread]
    assert runtime.current() is threading.current_thread()


def test_call_runs_here_and_now(runtime: BlockingRuntime) -> None:
    assert run(runtime.call(lambda a, b: (a + b, threading.current_thread()), 1, 2)) == (
        3,
        threading.current_thread(),
    )


def test_sleep_sleeps_but_not_for_negative_times(runtime: BlockingRuntime) -> None:
    before = time.monotonic()
    run(runtime.sleep(0.02))
    assert time.monotonic() - before >= 0.02
    run(runtime.sleep(-5))


def test_several_taps_before_a_look_count_as_one(runtime: BlockingRuntime) -> None:
    signal = runtime.signal()
    for _ in range(3):
        signal.notify()
    before = time.monotonic()
    run(signal.wait(30))
    assert time.monotonic() - before < 10
    before = time.monotonic()
    run(signal.wait(0.05))
    assert time.monotonic() - before >= 0.04


def test_a_signal_waits_no_longer_than_asked_and_never_a_negative_time(runtime: BlockingRuntime) -> None:
    run(runtime.signal().wait(-1))


def test_a_tap_wakes_a_sleeper_on_another_thread(runtime: BlockingRuntime) -> None:
    signal = runtime.signal()
    woken = threading.Event()

    async def sleeper() -> None:
        await signal.wait(30)
        woken.set()

    service = runtime.spawn(sleeper(), "sleeper")
    signal.notify()
    assert woken.wait(10)
    run(service.join(10))


def test_a_service_is_a_daemon_thread_with_a_name(runtime: BlockingRuntime) -> None:
    found: list[threading.Thread] = []

    async def look() -> None:
        found.append(threading.current_thread())

    run(runtime.spawn(look(), "fencelock-test").join(10))
    assert found[0].name == "fencelock-test"
    assert found[0].daemon


def test_a_service_that_fails_is_logged(runtime: BlockingRuntime, caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ValueError("a bug")

    run(runtime.spawn(fail(), "x").join(10))
    assert "a background service of fencelock failed" in caplog.text
    assert "a bug" in caplog.text


def test_a_service_does_not_join_itself(runtime: BlockingRuntime) -> None:
    joined = threading.Event()
    box: list[object] = []

    async def main() -> None:
        until(lambda: box)
        await box[0].join(30)  # type: ignore[attr-defined]
        joined.set()

    box.append(runtime.spawn(main(), "x"))
    assert joined.wait(10)


def test_joining_is_bounded(runtime: BlockingRuntime) -> None:
    stop = threading.Event()

    async def main() -> None:
        stop.wait(30)

    service = runtime.spawn(main(), "x")
    run(service.join(0.01))
    run(service.join(-1))
    stop.set()
    run(service.join(10))


def test_finish_is_just_doing_it(runtime: BlockingRuntime) -> None:
    async def answer() -> int:
        return 42

    assert run(runtime.finish(answer())) == 42


def test_threads_are_not_interrupted(runtime: BlockingRuntime) -> None:
    runtime.interrupt(threading.current_thread(), lambda: pytest.fail("asked"))


def test_a_callback_runs_elsewhere_and_what_it_raises_is_logged(
    runtime: BlockingRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    found: list[object] = []
    runtime.callback(lambda lease: found.append((lease, threading.current_thread())), "lease")
    assert until(lambda: found)
    assert found[0][0] == "lease"  # type: ignore[index]
    assert found[0][1] is not threading.current_thread()  # type: ignore[index]
    runtime.callback(lambda lease: 1 / 0, "lease")
    assert until(lambda: "on_lost failed" in caplog.text)


def test_a_signal_that_never_comes_is_not_waited_for_beyond_the_time() -> None:
    """However short the time: a new signal each time, as each waiter has one of its own."""
    ended = threading.Event()

    def wait_often() -> None:
        for number in range(5_000):
            run(BlockingSignal().wait(number % 50 * 1e-6))
        ended.set()

    threads = [threading.Thread(target=wait_often, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert ended.is_set()
