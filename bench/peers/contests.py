"""Races for one lock: what a child is asked to do with its adapter when many contend. See `bench.races`.

    processes    that many processes compete for one lock, each with a client of its own
    contenders   that many threads of one process, with one client for all
    rivals       that many asyncio tasks of one process, with one client for all
    alone        nobody else: what a handoff cannot be faster than, where two steps of the store make one

Each gives a function of the number of contenders, which tells who had the lock when, in short.
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
from contextlib import contextmanager, suppress
from typing import Any

from bench.peers import AsyncMake, Make
from bench.peers.drills import PATIENCE, Run, looping

__all__ = ["TooBusy", "alone", "contenders", "handoffs", "processes", "rivals", "summed_up", "tried_again"]

HEAT = 0.3
"""Seconds of a race that do not count: whoever waits for the first time connects for that.

Servers that plan statements anew for each connection need longer."""
MOST = 32
"""Contenders, for which an asyncio client may need connections."""

TRIES = 3
"""Races, if the machine was too busy for the ones before."""

Taken = tuple[float, list[float]]
"""When one contender began, and when it entered each time."""


class TooBusy(RuntimeError):
    """Nobody raced at the same time as all the others."""


def tried_again(race: Callable[[int], dict[str, float]]) -> Run:
    """Return a race that is run again if the machine was too busy."""

    def run(contenders: int) -> dict[str, float]:
        for _ in range(TRIES - 1):
            try:
                return race(contenders)
            except TooBusy:
                continue
        return race(contenders)

    return run


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

    yield tried_again(run)


@contextmanager
def contenders(adapter: Any, url: str, seconds: float, heat: float = HEAT, **options: Any) -> Iterator[Run]:
    """All threads share one client."""
    numbers = itertools.count()
    with adapter.blocking(url, **options) as make:

        def run(contenders: int) -> dict[str, float]:
            name = f"hot-{os.getpid()}-{next(numbers)}"
            barrier = threading.Barrier(contenders + 1)
            answers: queue.Queue[Any] = queue.Queue()

            def enter() -> None:
                with reported(barrier, answers):
                    answers.put(compete(make, name, barrier, heat + seconds))

            for _ in range(contenders):
                threading.Thread(target=enter, daemon=True).start()
            return _referee(url, barrier, lambda: answers.get(timeout=PATIENCE), contenders, seconds, heat)

        yield tried_again(run)


@contextmanager
def rivals(adapter: Any, url: str, seconds: float, heat: float = HEAT, **options: Any) -> Iterator[Run]:
    """All tasks share one client."""
    numbers = itertools.count()
    with looping(adapter, url, MOST, options) as (loop, make):

        def run(contenders: int) -> dict[str, float]:
            name = f"hot-{os.getpid()}-{next(numbers)}"
            racing = _race_of_tasks(url, make, name, contenders, heat + seconds)
            answers, calls = loop.run_until_complete(asyncio.wait_for(racing, PATIENCE))
            return summed_up(answers, calls, seconds, heat)

        yield run


async def _race_of_tasks(
    url: str, make: AsyncMake, name: str, contenders: int, seconds: float
) -> tuple[list[Taken], int]:
    sections = [make(name) for _ in range(contenders)]
    for number in range(contenders):
        async with make(f"{name}-{number}"):
            pass  # connections and scripts are no part of the race
    gc.collect()
    clock = time.monotonic
    before, started = script_calls(url), clock()
    until = started + seconds

    async def enter(section: Any) -> Taken:
        taken: list[float] = []
        while clock() < until:
            async with section:
                taken.append(clock())
        return started, taken

    answers = await asyncio.gather(*(enter(section) for section in sections))
    return list(answers), script_calls(url) - before


@contextmanager
def alone(adapter: Any, url: str, seconds: float = 0.5, **options: Any) -> Iterator[Run]:
    """Whoever would contend is not there: each entry counts as a handoff."""
    with adapter.blocking(url, **options) as make:
        section, clock = make("alone"), time.monotonic

        def run(contenders: int) -> dict[str, float]:
            gc.collect()
            count, started = 0, clock()
            while (now := clock()) < started + seconds:
                with section:
                    count += 1
            rate = count / (now - started)
            return {"rate": rate, "acquisitions": rate, "share": 1.0, "handoffs": count, "calls": 0.0}

        yield run


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


def compete(make: Make, name: str, barrier: Any, seconds: float) -> Taken:
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
    heat: float,
) -> dict[str, float]:
    before = 0
    with suppress(threading.BrokenBarrierError):  # then there is an answer that tells why
        barrier.wait(PATIENCE)
        before = script_calls(url)
        barrier.wait(PATIENCE)
    answers: list[Taken] = []
    for _ in range(contenders):
        told = answer()
        if isinstance(told, str):
            raise RuntimeError(told)
        answers.append(told)
    return summed_up(answers, script_calls(url) - before, seconds, heat)


def summed_up(answers: Sequence[Taken], calls: int, seconds: float, heat: float) -> dict[str, float]:
    """Return what there is to tell of a race; only what happened while everybody raced counts."""
    first = max(started for started, _ in answers) + heat
    last = min(started for started, _ in answers) + heat + seconds
    if last <= first:
        raise TooBusy("the machine is too busy: some began when others had finished")
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
