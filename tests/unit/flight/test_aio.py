"""Cancellation: of one caller, of all, of the computation itself; and closing in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fencelock import AsyncClient, ConfigurationError
from fencelock.flight import AsyncFlight

PATIENCE = 60


class Computing:
    """A computation that says when it has begun, waits until it may end, and knows if it was cancelled."""

    def __init__(self) -> None:
        self.calls = 0
        self.is_cancelled = False
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()

    async def __call__(self) -> str:
        self.calls += 1
        self.begun.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.is_cancelled = True
            raise
        return "value"


def flying(url: str, test: Callable[[AsyncClient, AsyncFlight], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE), AsyncClient(url) as locks, AsyncFlight(locks) as flight:
            await test(locks, flight)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not others, f"left behind: {others}"

    asyncio.run(main())


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory://{tmp_path.name}" if request.param == "memory" else f"sqlite://{tmp_path}/locks.db"


async def until(condition: Callable[[], Awaitable[Any]]) -> None:
    while not await condition():
        await asyncio.sleep(0.002)


@pytest.mark.parametrize("who", [0, 1])
def test_one_caller_is_cancelled_and_the_others_are_not(url: str, who: int) -> None:
    """Neither whoever has begun it, nor whoever has joined, ends it for the others."""

    async def test(locks: AsyncClient, flight: AsyncFlight) -> None:
        compute = Computing()
        callers = [asyncio.create_task(flight.get("k", compute, 60)) for _ in range(3)]
        await compute.begun.wait()
        callers[who].cancel()
        with pytest.raises(asyncio.CancelledError):
            await callers.pop(who)
        compute.may_end.set()
        assert await asyncio.gather(*callers) == ["value"] * 2
        assert not compute.is_cancelled and compute.calls == 1

    flying(url, test)


def test_nobody_is_left(url: str) -> None:
    """Then it is cancelled, and leaves neither lock nor claim; who comes next computes."""

    async def test(locks: AsyncClient, flight: AsyncFlight) -> None:
        compute = Computing()
        callers = [asyncio.create_task(flight.get("k", compute, 60)) for _ in range(3)]
        await compute.begun.wait()
        for caller in callers:
            caller.cancel()
        await asyncio.wait(callers)
        assert all(caller.cancelled() for caller in callers)

        async def is_free() -> bool:
            return (await locks.inspect("flight:k")).is_free

        await until(is_free)
        assert compute.is_cancelled and compute.calls == 1
        again = Computing()
        again.may_end.set()
        assert await flight.get("k", again, 60) == "value"

    flying(url, test)


def test_cancelled_in_the_queue(url: str) -> None:
    async def test(locks: AsyncClient, flight: AsyncFlight) -> None:
        async with locks.lock("flight:k"):
            caller = asyncio.create_task(flight.get("k", Computing(), 60))

            async def is_waited_for() -> bool:
                return len((await locks.inspect("flight:k")).waiters) == 1

            await until(is_waited_for)
            caller.cancel()
            with pytest.raises(asyncio.CancelledError):
                await caller

            async def is_not() -> bool:
                return not await is_waited_for()

            await until(is_not)

    flying(url, test)


def test_the_last_one_loses_patience(url: str) -> None:
    async def test(locks: AsyncClient, flight: AsyncFlight) -> None:
        compute = Computing()
        first = asyncio.create_task(flight.get("k", compute, 60))
        await compute.begun.wait()
        second = asyncio.create_task(flight.get("k", compute, 60, timeout=0.05))
        first.cancel()
        with pytest.raises(TimeoutError):
            await second

        async def is_cancelled() -> bool:
            return compute.is_cancelled

        await until(is_cancelled)

    flying(url, test)


def test_a_computation_that_cancels_itself(url: str) -> None:
    """Its caller gets the cancellation; another one tries."""

    async def test(locks: AsyncClient, flight: AsyncFlight) -> None:
        begun, may_end = asyncio.Event(), asyncio.Event()

        async def cancelled() -> str:
            begun.set()
            await may_end.wait()
            raise asyncio.CancelledError

        first = asyncio.create_task(flight.get("k", cancelled, 60))
        await begun.wait()
        good = Computing()
        good.may_end.set()
        second = asyncio.create_task(flight.get("k", good, 60))
        await asyncio.sleep(0)
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await second == "value"

    flying(url, test)


def test_closed_in_the_middle(url: str) -> None:
    async def test(locks: AsyncClient, flight: AsyncFlight) -> None:
        compute, refreshing = Computing(), Computing()
        await flight.put("stale", "old", 0.001, stale=60)
        await asyncio.sleep(0.002)
        assert await flight.get("stale", refreshing, 60, stale=60) == "old"
        callers = [asyncio.create_task(flight.get("k", compute, 60)) for _ in range(3)]
        await compute.begun.wait()
        await refreshing.begun.wait()
        await flight.close()
        assert compute.is_cancelled and refreshing.is_cancelled
        for caller in callers:
            with pytest.raises(ConfigurationError, match="this flight is closed"):
                await caller
        assert await locks.list() == []

    flying(url, test)


def test_errors_of_nobody_are_not_complained_of(url: str) -> None:
    async def test(locks: AsyncClient, flight: AsyncFlight) -> None:
        complaints: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
        begun = asyncio.Event()

        async def stubborn() -> str:
            begun.set()
            try:
                await asyncio.sleep(PATIENCE)
            except asyncio.CancelledError:
                raise LookupError("instead") from None
            return ""

        caller = asyncio.create_task(flight.get("k", stubborn, 60))
        await begun.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller

        async def is_free() -> bool:
            return await locks.list() == []

        await until(is_free)
        assert complaints == []

    flying(url, test)


def test_the_wrong_flavour(tmp_path: Path) -> None:
    async def test(locks: AsyncClient, flight: AsyncFlight) -> None:
        with pytest.raises(ConfigurationError, match="is no coroutine function: use Flight"):
            await flight.get("k", lambda: 1, 60)  # type: ignore[arg-type, return-value]
        with pytest.raises(ConfigurationError, match="compute=7 is not a coroutine function"):
            await flight.get("k", 7, 60)  # type: ignore[arg-type]

    flying("memory://", test)
