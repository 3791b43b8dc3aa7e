"""What a child is asked to do with its adapter. A drill gives a function of one number.

    pairs        that many pairs, one after the other; the seconds they took
    threads      the same by several threads, each with a name of its own
    tasks        the same by several asyncio tasks
    processes    that many processes compete for one lock; who had it when, in short
    contenders   the same with threads of one process
    wakeups      that many times one process leaves and another, which waited, enters; the seconds between

An adapter that brings a function of the same name has its own way of doing it.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import multiprocessing
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager, suppress
from typing import Any

from bench.peers import Make

__all__ = ["at_length", "contenders", "pairs", "processes", "tasks", "threads", "wakeups"]

PATIENCE = 60.0
"""Seconds after which a race is called off."""

HEAT = 0.3
"""Seconds of a race that do not count: whoever waits for the first time connects for that.

Servers that plan statements anew for each connection need longer."""
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
def tasks(adapter: Any, url: str, tasks: int, **options: Any) -> Iterator[Run]:
    loop, stack = asyncio.new_event_loop(), AsyncExitStack()
    make = loop.run_until_complete(stack.enter_async_context(adapter.asynchronous(url, tasks, **options)))
    sections = [make(f"task-{number}") for number in range(tasks)]

    async def work(section: Any, each: int) -> None:
        for _ in range(each):
            async with section:
                pass

    async def together(count: int) -> float:
        gc.collect()
        each = max(1, count // tasks)
        started = time.perf_counter()
        await asyncio.gather(*(work(section, each) for section in sections))
        return (time.perf_counter() - started) * count / (each * tasks)

    yield at_length(lambda count: loop.run_until_complete(together(count)))
    loop.run_until_complete(stack.aclose())
    loop.close()


@contextmanager
def processes(adapter: Any, url: str, seconds: float, heat: float = HEAT, **options: Any) -> Iterator[Run]:
    """Each process has a client of its own, opened after the fork."""
    context = multiprocessing.get_context("fork")
    numbers = itertools.count()
    with adapter.blocking(url, **options):
        pass  # import what there is to import once, not in each process

    def run(contenders: int) -> dict[str, float]:
        name = f"hot-{os.getpid()}-{next(numbers)}"
        barrier, answers = context.Barrier(contenders + 1), context.Queue()

        def enter() -> None:
            with reported(barrier, answers), adapter.blocking(url, **options) as make:
                answers.put(compete(make, name, barrier, heat + seconds))

        runners = [context.Process(target=enter, daemon=True) for _ in range(contenders)]
        for runner in runners:
            runner.start()
        try:
            return _referee(url, barrier, lambda: answers.get(timeout=PATIENCE), contenders, seconds, heat)
        finally:
            for runner in runners:
                runner.join(5)
                runner.kill()

    yield run


@contextmanager
def contenders(adapter: Any, url: str, seconds: float, **options: Any) -> Iterator[Run]:
    """All threads share one client."""
    numbers = itertools.count()
    with adapter.blocking(url, **options) as make:

        def run(contenders: int) -> dict[str, float]:
            name = f"hot-{os.getpid()}-{next(numbers)}"
            barrier = threading.Barrier(contenders + 1)
            answers: queue.Queue[Any] = queue.Queue()

            def enter() -> None:
                with reported(barrier, answers):
                    answers.put(compete(make, name, barrier, HEAT + seconds))

            for _ in range(contenders):
                threading.Thread(target=enter, daemon=True).start()
            return _referee(url, barrier, lambda: answers.get(timeout=PATIENCE), contenders, seconds)

        yield run


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


@contextmanager
def reported(barrier: Any, answers: Any) -> Iterator[None]:
    """Let the others not wait for one that failed, and tell why it did."""
    try:
        yield
    except threading.BrokenBarrierError:
        return  # another one failed
    except Exception as error:
        answers.put(f"{type(error).__name__}: {error}")
        barrier.abort()
        raise


def compete(make: Make, name: str, barrier: Any, seconds: float) -> tuple[float, list[float]]:
    """Enter again and again for that long; return when it began, and when each section was entered."""
    section, own = make(name), make(f"{name}-{os.getpid()}-{threading.get_ident()}")
    with own:
        pass  # connections and scripts are no part of the race
    gc.collect()
    taken: list[float] = []
    clock = time.monotonic  # one clock for all processes of a host
    barrier.wait(PATIENCE)
    barrier.wait(PATIENCE)
    started = clock()
    until = started + seconds
    while clock() < until:
        with section:
            taken.append(clock())
    return started, taken


def _referee(
    url: str,
    barrier: Any,
    answer: Callable[[], Any],
    contenders: int,
    seconds: float,
    heat: float = HEAT,
) -> dict[str, float]:
    before = 0
    with suppress(threading.BrokenBarrierError):  # then there is an answer that tells why
        barrier.wait(PATIENCE)
        before = script_calls(url)
        barrier.wait(PATIENCE)
    answers: list[tuple[float, list[float]]] = []
    for _ in range(contenders):
        told = answer()
        if isinstance(told, str):
            raise RuntimeError(told)
        answers.append(told)
    calls = script_calls(url) - before
    first = max(started for started, _ in answers) + heat
    last = min(started for started, _ in answers) + heat + seconds
    if last <= first:
        raise RuntimeError("the machine is too busy: some began when others had finished")
    whole = handoffs([times for _, times in answers])
    raced = [[when for when in times if first <= when < last] for _, times in answers]
    counts = [len(times) for times in raced]
    return {
        "rate": handoffs(raced) / (last - first),
        "acquisitions": sum(counts) / (last - first),
        "share": min(counts) / max(*counts, 1),
        "handoffs": whole,
        "calls": calls / max(whole, 1),
    }


def handoffs(taken: Sequence[Sequence[float]]) -> int:
    """Count the acquisitions by another than the one before."""
    order = [who for _, who in sorted((when, who) for who, times in enumerate(taken) for when in times)]
    return sum(1 for before, after in itertools.pairwise(order) if before != after)


def script_calls(url: str) -> int:
    """Return how many scripts a Redis has run so far; 0 for other servers."""
    if not url.startswith("redis"):
        return 0
    from bench.peers.raw import Connection

    connection = Connection(url)
    told = connection.ask("INFO", "commandstats").decode()
    connection.close()
    lines = (line.partition(":") for line in told.splitlines())
    wanted = ("cmdstat_eval", "cmdstat_fcall")  # and their _ro forms
    return sum(
        int(rest.split(",")[0].removeprefix("calls=")) for name, _, rest in lines if name.startswith(wanted)
    )
