"""The asyncio runtime: services are tasks, clean-ups are finished, and one loop is one loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from fencelock import ConfigurationError
from fencelock.runtime.asyncio import AsyncioRuntime
from fencelock.runtime.base import Runtime
from unit.support import until_async


def on_loop(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(main)


def test_it_is_a_runtime() -> None:
    assert isinstance(AsyncioRuntime(), Runtime)
    assert AsyncioRuntime().flavour == "asyncio"


def test_it_belongs_to_the_loop_it_was_first_used_on() -> None:
    runtime = AsyncioRuntime()

    async def first() -> None:
        assert runtime.loop is asyncio.get_running_loop()
        assert runtime.loop is asyncio.get_running_loop()

    async def second() -> None:
        with pytest.raises(ConfigurationError, match="one AsyncClient for each loop"):
            _ = runtime.loop

    on_loop(first())
    on_loop(second())
    runtime.forked()
    on_loop(first())


def test_current_is_the_task() -> None:
    async def main() -> None:
        assert AsyncioRuntime().current() is asyncio.current_task()

    on_loop(main())


def test_ids_are_random() -> None:
    runtime = AsyncioRuntime()
    assert len({runtime.new_id() for _ in range(1000)}) == 1000


# Calls on a thread -----------------------------------------------------------------------


def test_calls_run_on_one_thread_in_order() -> None:
    async def main() -> None:
        runtime = AsyncioRuntime()
        order: list[int] = []

        def work(number: int) -> threading.Thread:
            time.sleep(0.001)
            order.append(number)
            return threading.current_thread()

        threads = await asyncio.gather(*[runtime.call(work, number) for number in range(20)])
        assert order == list(range(20))
        assert len(set(threads)) == 1
        assert threads[0] is not threading.current_thread()
        runtime.close()
        runtime.close()

    on_loop(main())


def test_a_clean_up_runs_after_the_cancelled_call_that_it_cleans_up() -> None:
    async def main() -> None:
        runtime = AsyncioRuntime()
        order: list[str] = []
        begun = threading.Event()

        def slow() -> None:
            begun.set()
            time.sleep(0.05)
            order.append("work")

        task = asyncio.create_task(runtime.call(slow))
        await asyncio.to_thread(begun.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await runtime.finish(runtime.call(order.append, "clean-up"))
        assert order == ["work", "clean-up"]
        runtime.close()

    on_loop(main())


# Finishing -------------------------------------------------------------------------------


def test_finish_finishes_although_it_is_cancelled_again_and_again() -> None:
    async def main() -> None:
        runtime = AsyncioRuntime()
        done: list[bool] = []
        go = asyncio.Event()

        async def clean_up() -> None:
            await go.wait()
            done.append(True)

        task = asyncio.create_task(runtime.finish(clean_up()))
        for _ in range(5):
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done == [True]

    on_loop(main())


def test_finish_returns_what_the_clean_up_returns_and_raises_what_it_raises() -> None:
    async def main() -> None:
        runtime = AsyncioRuntime()

        async def answer() -> int:
            await asyncio.sleep(0)
            return 42

        async def fail() -> None:
            raise KeyError("x")

        assert await runtime.finish(answer()) == 42
        with pytest.raises(KeyError):
            await runtime.finish(fail())

    on_loop(main())


@pytest.mark.parametrize("ending", ["fails", "cancels itself"])
def test_a_cancelled_caller_sees_its_cancellation_however_the_clean_up_ended(ending: str) -> None:
    async def main() -> None:
        runtime = AsyncioRuntime()
        go = asyncio.Event()

        async def clean_up() -> None:
            await go.wait()
            if ending == "fails":
                raise KeyError("x")
            raise asyncio.CancelledError

        task = asyncio.create_task(runtime.finish(clean_up()))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    on_loop(main())


# Signals and events ----------------------------------------------------------------------


def test_a_tap_from_any_thread_wakes_a_sleeper() -> None:
    async def main() -> None:
        runtime = AsyncioRuntime()
        signal = runtime.signal()
        for tap in (signal.notify, lambda: threading.Thread(target=signal.notify).start()):
            waiting = asyncio.create_task(signal.wait(30))
            await asyncio.sleep(0)
            tap()
            await asyncio.wait_for(waiting, 10)

    on_loop(main())


def test_taps_before_a_look_count_as_one_and_waiting_is_bounded() -> None:
    async def main() -> None:
        signal = AsyncioRuntime().signal()
        signal.notify()
        signal.notify()
        await asyncio.wait_for(signal.wait(30), 10)
        before = time.monotonic()
        await signal.wait(0.05)
        assert time.monotonic() - before >= 0.04
        await signal.wait(-1)

    on_loop(main())


def test_taps_and_events_for_a_loop_that_is_gone_are_harmless() -> None:
    async def main() -> tuple[Any, Any]:
        runtime = AsyncioRuntime()
        return runtime.signal(), runtime.event()

    signal, event = on_loop(main())
    signal.notify()
    event.set()


def test_an_event_may_be_set_by_any_thread_and_awaited_with_a_timeout() -> None:
    async def main() -> None:
        event = AsyncioRuntime().event()
        assert not event.is_set()
        assert await event.wait(0.01) is False
        threading.Thread(target=event.set).start()
        assert await asyncio.wait_for(event.wait(), 10) is True
        assert await event.wait(30) is True
        assert event.is_set()

    on_loop(main())


def test_an_event_set_on_its_own_loop_is_set_at_once() -> None:
    async def main() -> None:
        event = AsyncioRuntime().event()
        event.set()
        assert event.is_set()

    on_loop(main())


# Services, interrupts, callbacks ---------------------------------------------------------


def test_a_service_is_a_task_with_a_name_and_failing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        runtime = AsyncioRuntime()
        names: list[str] = []

        async def look() -> None:
            task = asyncio.current_task()
            assert task is not None
            names.append(task.get_name())
            raise ValueError("a bug")

        service = runtime.spawn(look(), "fencelock-test")
        await service.join(10)
        await service.join(10)
        assert names == ["fencelock-test"]

    on_loop(main())
    assert "a background service of fencelock failed" in caplog.text


def test_joining_is_bounded_and_a_service_does_not_join_itself() -> None:
    async def main() -> None:
        runtime = AsyncioRuntime()
        stop = asyncio.Event()
        box: list[Any] = []

        async def body() -> None:
            await box[0].join(30)
            await stop.wait()

        box.append(runtime.spawn(body(), "x"))
        await box[0].join(0.01)
        await box[0].join(-1)
        stop.set()
        await box[0].join(10)

    on_loop(main())


def test_a_task_is_interrupted_from_any_thread_if_that_is_still_wanted() -> None:
    async def main() -> None:
        runtime = AsyncioRuntime()
        for wanted in (True, False):
            task = asyncio.create_task(asyncio.sleep(0.05))
            await asyncio.sleep(0)
            await asyncio.to_thread(runtime.interrupt, task, lambda wanted=wanted: wanted)
            (outcome,) = await asyncio.gather(task, return_exceptions=True)
            assert isinstance(outcome, asyncio.CancelledError) is wanted

    on_loop(main())


def test_a_task_that_runs_is_interrupted_only_at_its_next_await() -> None:
    async def main() -> None:
        runtime = AsyncioRuntime()
        task = asyncio.current_task()
        asked: list[bool] = []

        def wanted() -> bool:
            asked.append(True)
            return False

        runtime.interrupt(task, wanted)
        assert asked == []
        await asyncio.sleep(0)
        assert asked == [True]

    on_loop(main())


def test_tasks_of_a_loop_that_is_gone_are_left_alone() -> None:
    async def main() -> Any:
        return asyncio.current_task()

    task = on_loop(main())
    AsyncioRuntime().interrupt(task, lambda: pytest.fail("asked"))


def test_a_callback_may_be_a_function_or_a_coroutine_function(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        runtime = AsyncioRuntime()
        _ = runtime.loop
        found: list[object] = []

        async def later(lease: object) -> None:
            await asyncio.sleep(0)
            found.append(lease)

        runtime.callback(found.append, "plain")
        await asyncio.to_thread(runtime.callback, later, "coroutine")
        assert await until_async(lambda: len(found) == 2)
        assert set(found) == {"plain", "coroutine"}
        runtime.callback(lambda lease: 1 / 0, "x")
        assert await until_async(lambda: "on_lost failed" in caplog.text)

    on_loop(main())


def test_a_callback_without_a_loop_is_dropped() -> None:
    runtime = AsyncioRuntime()
    runtime.callback(lambda lease: pytest.fail("called"), "x")

    async def main() -> None:
        _ = runtime.loop

    on_loop(main())
    runtime.callback(lambda lease: pytest.fail("called"), "x")
