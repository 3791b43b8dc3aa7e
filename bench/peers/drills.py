"""What a child is asked to do with its adapter. A drill gives a function of one number.

    pairs        that many pairs, one after the other; the seconds they took
    threads      the same by several threads, each with a name of its own
    tasks        the same by several asyncio tasks
    latencies    that many pairs, one after the other; the seconds of each
    leases       that many sweeps that renew all leases held; the seconds of each, and what leases take
    wakeups      that many times one process leaves and another, which waited, enters; the seconds between

An adapter that brings a function of the same name has its own way of doing it. Races for one lock are in
`contests`.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.peers import AsyncMake

__all__ = [
    "PATIENCE",
    "Run",
    "at_length",
    "latencies",
    "leases",
    "looping",
    "pairs",
    "tasks",
    "threads",
    "wakeups",
]

PATIENCE = 60.0
"""Seconds after which it is called off."""

SHORTEST = 0.1
"""Seconds below which a run says more about the scheduler than about the contestant."""

Run = Callable[[int], Any]


def at_length(run: Callable[[int], float]) -> Callable[[int], float]:
    """Repeat a run that is too short, and take the mean."""

    def longer(count: int) -> float:
        total, times = 0.0, 0
        while total < SHORTEST:
            total += run(count)
            times += 1
        return total / times

    return longer


@contextmanager
def pairs(adapter: Any, url: str, **options: Any) -> Iterator[Run]:
    with adapter.blocking(url, **options) as make:
        section = make("pair")

        def run(count: int) -> float:
            gc.collect()
            started = time.perf_counter()
            for _ in range(count):
                with section:
                    pass
            return time.perf_counter() - started

        yield at_length(run)


@contextmanager
def threads(adapter: Any, url: str, threads: int, **options: Any) -> Iterator[Run]:
    with adapter.blocking(url, **options) as make, ThreadPoolExecutor(threads) as pool:
        sections = [make(f"thread-{number}") for number in range(threads)]
        barrier = threading.Barrier(threads + 1)

        def work(section: AbstractContextManager[Any], each: int) -> None:
            barrier.wait(PATIENCE)
            for _ in range(each):
                with section:
                    pass

        def run(count: int) -> float:
            gc.collect()
            each = max(1, count // threads)
            working = [pool.submit(work, section, each) for section in sections]
            barrier.wait(PATIENCE)
            started = time.perf_counter()
            for one in working:
                one.result(PATIENCE)
            return (time.perf_counter() - started) * count / (each * threads)

        yield at_length(run)


@contextmanager
def looping(
    adapter: Any, url: str, tasks: int, options: Mapping[str, Any]
) -> Iterator[tuple[asyncio.AbstractEventLoop, AsyncMake]]:
    """Give an event loop, and the adapter opened in it; both are closed with the block."""
    loop, stack = asyncio.new_event_loop(), AsyncExitStack()
    make = loop.run_until_complete(stack.enter_async_context(adapter.asynchronous(url, tasks, **options)))
    yield loop, make
    loop.run_until_complete(stack.aclose())
    loop.close()


@contextmanager
def tasks(adapter: Any, url: str, tasks: int, **options: Any) -> Iterator[Run]:
    async def work(section: Any, each: int) -> None:
        for _ in range(each):
            async with section:
                pass

    with looping(adapter, url, tasks, options) as (loop, make):
        sections = [make(f"task-{number}") for number in range(tasks)]

        async def together(count: int) -> float:
            gc.collect()
            each = max(1, count // tasks)
            started = time.perf_counter()
            await asyncio.gather(*(work(section, each) for section in sections))
            return (time.perf_counter() - started) * count / (each * tasks)

        yield at_length(lambda count: loop.run_until_complete(together(count)))


@contextmanager
def latencies(adapter: Any, url: str, flavour: str = "blocking", **options: Any) -> Iterator[Run]:
    """The seconds of each single pair, by one thread or one task."""
    clock = time.perf_counter

    if flavour == "blocking":
        with adapter.blocking(url, **options) as make:
            section = make("latency")

            def run(count: int) -> list[float]:
                gc.collect()
                taken = []
                for _ in range(count):
                    started = clock()
                    with section:
                        pass
                    taken.append(clock() - started)
                return taken

            yield run
        return
    with looping(adapter, url, 1, options) as (loop, make):
        section = make("latency")

        async def each(count: int) -> list[float]:
            gc.collect()
            taken = []
            for _ in range(count):
                started = clock()
                async with section:
                    pass
                taken.append(clock() - started)
            return taken

        yield lambda count: loop.run_until_complete(each(count))


@contextmanager
def leases(adapter: Any, url: str, count: int, **options: Any) -> Iterator[Run]:
    """Hold that many; the adapter's `holding` gives what renews them all."""
    with adapter.holding(url, 10, **options) as renew:
        renew()  # what is imported and opened on first use is no part of the leases
    gc.collect()
    before, threads = resident(), threading.active_count()
    with adapter.holding(url, count, **options) as renew:
        grown, started = resident() - before, threading.active_count() - threads

        def sweep() -> float:
            began = time.perf_counter()
            renew()
            return time.perf_counter() - began

        yield lambda sweeps: {
            "sweeps": [sweep() for _ in range(sweeps)],
            "grown": grown,
            "threads": started,
        }


def resident() -> int:
    """Return the memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def wakeups(adapter: Any, url: str, held: float, **options: Any) -> Iterator[Run]:
    """The other process has waited for about `held` seconds when this one leaves."""
    context = multiprocessing.get_context("fork")
    name, clock = f"wake-{os.getpid()}", time.monotonic  # one clock for all processes of a host
    here, there = context.Pipe()
    with adapter.blocking(url, **options):
        pass  # what is made on first use is not made by two at once

    def wait() -> None:
        with adapter.blocking(url, **options) as make:
            section = make(name)
            while there.recv():
                with section:
                    entered = clock()
                there.send(entered)

    partner = context.Process(target=wait, daemon=True)
    partner.start()
    with adapter.blocking(url, **options) as make:
        section = make(name)

        def once() -> float:
            with section:
                here.send(True)
                time.sleep(held)
                left = clock()
            if not here.poll(PATIENCE):
                raise RuntimeError("nobody woke up")
            entered: float = here.recv()
            return entered - left

        once()  # whoever waits for the first time connects for that
        yield lambda count: [once() for _ in range(count)]
        here.send(False)
        partner.join(5)
