"""Ctrl-C at any place of a block: its lease is given back, though the program keeps the lock."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from fencelock import AsyncClient, Client
from fencelock.testing.conformance.scripts import Interrupter

LONG = 30.0
"""No lease ends by itself while a test waits."""
SHORT = 0.5
SOON = 20.0
LOOSE_ENDS = [
    "ignore:the lease on:ResourceWarning",
    "ignore:coroutine:RuntimeWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
]

pytestmark = [pytest.mark.filterwarnings(ends) for ends in LOOSE_ENDS]
Kept = list[Any]


@pytest.fixture(autouse=True)
def no_loose_end_is_left() -> Iterator[None]:
    """Collect what an interrupt has left in a cycle here: the warning of it would fail another test."""
    yield
    gc.collect()


def statement(lock: Any, kept: Kept) -> None:
    with lock as lease:
        kept += (lease,)


def generator(lock: Any, kept: Kept) -> None:
    def block() -> Generator[Any, None, None]:
        with lock as lease:
            yield lease

    running = block()
    kept += (next(running),)
    running.close()


def decorator(lock: Any, kept: Kept) -> None:
    lock(lambda: None)()


def entered_lease(lock: Any, kept: Kept) -> None:
    with lock.acquire() as lease:
        kept += (lease,)


def stack(lock: Any, kept: Kept) -> None:
    with contextlib.ExitStack() as stack:
        kept += (stack.enter_context(lock),)


def every_place(run: Callable[[int], str]) -> int:
    """Interrupt at every place in turn; return how many there were."""
    for place in itertools.count(1):
        if not run(place):
            return place - 1
    raise AssertionError


@pytest.mark.parametrize("form", [statement, generator, decorator])
@pytest.mark.parametrize("kind", ["lock", "multi", "reentrant"])
def test_a_block_that_is_interrupted_anywhere_is_released(form: Callable[..., None], kind: str) -> None:
    """While the lock and the lease live on; of a statement that was entered, the exception too."""
    kept: Kept = []
    places: dict[str, str] = {}
    with Client("memory://interrupted") as client:

        def run(place: int) -> str:
            name = f"{form.__name__}{place}"
            lock: Any = client.lock(name, ttl=LONG, reentrant=kind == "reentrant")
            kept.append(client.multi([name, f"{name}+"], ttl=LONG) if kind == "multi" else lock)
            interrupter = Interrupter(place)
            before = len(kept)
            try:
                with interrupter:
                    form(kept[-1], kept)
            except KeyboardInterrupt as error:
                if form is statement and len(kept) > before:
                    kept.append(error)  # with its traceback, as a handler has it
            places[name] = interrupter.where
            return interrupter.where

        assert every_place(run) > 20
        until = time.monotonic() + SOON
        while client.list() and time.monotonic() < until:
            time.sleep(0.02)
        assert [places.get(state.name, "") for state in client.list()] == []


@pytest.mark.parametrize("form", [entered_lease, stack])
def test_what_acquire_gave_and_what_a_stack_entered_end_when_they_are_interrupted(
    form: Callable[..., None],
) -> None:
    """At once or with their ttl: a stack may end before what it protects."""
    locks: Kept = []
    leases: Kept = []
    with Client("memory://interrupted") as client:

        def run(place: int) -> str:
            locks.append(client.lock(f"{form.__name__}{place}", ttl=SHORT))
            interrupter = Interrupter(place)
            with contextlib.suppress(KeyboardInterrupt), interrupter:
                form(locks[-1], leases)
            return interrupter.where

        assert every_place(run) > 20
        gc.collect()
        until = time.monotonic() + SOON
        while client.list() and time.monotonic() < until:
            time.sleep(0.02)
        assert [state.name for state in client.list()] == []


def test_an_async_block_that_is_interrupted_anywhere_is_released() -> None:
    """By an interrupt in the middle of a step, which is no cancellation. The locks and leases live on."""
    kept: Kept = []

    async def main() -> None:
        async with AsyncClient("memory://interrupted") as client:
            place = 0
            where = "the start"
            while where:
                place += 1
                kept.append(client.lock(f"async{place}", ttl=LONG))
                interrupter = Interrupter(place)
                with contextlib.suppress(KeyboardInterrupt), interrupter:
                    async with kept[-1] as lease:
                        kept.append(lease)
                where = interrupter.where
            assert place > 20
            gc.collect()
            until = time.monotonic() + SOON
            while await client.list() and time.monotonic() < until:
                await asyncio.sleep(0.02)
            assert [state.name for state in await client.list()] == []

    asyncio.run(main())


def test_looking_up_the_exit_of_a_block_ends_no_block() -> None:
    with Client("memory://interrupted") as client:
        lock = client.lock("x", ttl=LONG)
        looked_up = lock.__exit__
        with lock as lease:
            assert hasattr(lock, "__exit__") and hasattr(lease, "__exit__")
            del looked_up
            assert lease.is_held()
        looked_up = lock.__exit__
        lease = lock.__enter__()
        del looked_up
        assert lease.is_held(), "that was another block's"
        lock.__exit__(None, None, None)
        assert not lease.is_held()
        leave = lock.__exit__
        lease = lock.__enter__()
        leave(None, None, None)
        assert not lease.is_held()
        assert client.inspect("x").is_free


@pytest.mark.filterwarnings("ignore:the lease on:ResourceWarning")
def test_a_stack_that_is_dropped_without_being_closed_lets_its_lease_end_with_its_ttl() -> None:
    """What it protects may go on: releasing it would leave that work unprotected."""
    with Client("memory://interrupted") as client:
        lock = client.lock("x", ttl=SHORT)
        lease = contextlib.ExitStack().enter_context(lock)
        began = time.monotonic()
        lock.acquire(timeout=SOON).release()
        assert time.monotonic() - began > 0.5 * SHORT
        assert not lease.is_held()
