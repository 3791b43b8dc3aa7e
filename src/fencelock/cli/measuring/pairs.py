"""A round trip, and a pair of acquire and release that nobody else wants: the price of a lock.

The round trip is `Backend.pulse`, the cheapest question that the server answers: the yardstick for the rest.
A pair is measured with one thread of a blocking client, with one asyncio task, and with many tasks that have
a name each. Each step waits for the answer to the one before, so one at a time is mostly the way there and
back; many at once show what client and server get done.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from fencelock.cli.measuring.course import MOST, PATIENCE, Course
from fencelock.cli.measuring.row import Row
from fencelock.lock import AsyncLock, Lock
from fencelock.runtime.blocking import run

__all__ = ["all_of", "blocking", "many", "round_trip", "under_asyncio"]

T = TypeVar("T")


def round_trip(course: Course, key: str, title: str) -> Row:
    """Ask every server again and again."""
    trips: list[float] = []
    with course.blocking() as locks:
        backend = locks._session.backend

        def ask() -> None:
            pulses = run(backend.pulse(deadline=backend.runtime.now() + PATIENCE))
            trips.extend(pulse.trip for pulse in pulses)

        course.warm(ask)
        trips.clear()
        course.repeat(ask)
    return Row(key, title, trips)


def blocking(course: Course, key: str, title: str) -> Row:
    """One thread of a blocking client."""
    with course.blocking() as locks:
        lock = locks.lock(course.name(key), ttl=course.ttl(locks.guarantees), timeout=PATIENCE)
        course.warm(lambda: _pair(lock))
        began = time.perf_counter()
        times = course.repeat(lambda: _pair(lock))
        taken = time.perf_counter() - began
    return Row(key, title, times, len(times) / taken)


def _pair(lock: Lock) -> None:
    lock.acquire().release()


def under_asyncio(course: Course, key: str, title: str) -> Row:
    """One task of an asyncio client."""
    return asyncio.run(_tasks(course, key, title, 1))


def many(course: Course, key: str, title: str) -> Row:
    """Many tasks of one asyncio client, each with its own name."""
    return asyncio.run(_tasks(course, key, title, course.tasks))


async def _tasks(course: Course, key: str, title: str, count: int) -> Row:
    async with course.under_asyncio() as client:
        ttl = course.ttl(client.guarantees)
        locks = [
            client.lock(course.name(f"{key}:{number}"), ttl=ttl, timeout=PATIENCE) for number in range(count)
        ]
        await all_of(_pair_async(lock) for lock in locks)  # connecting is not what is measured
        began = time.perf_counter()
        until, most = began + course.seconds, MOST // count
        runs = await all_of(course.repeat_async(partial(_pair_async, lock), until, most) for lock in locks)
        taken = time.perf_counter() - began
    times = [one for times in runs for one in times]
    return Row(key, title, times, len(times) / taken)


async def _pair_async(lock: AsyncLock) -> None:
    lease = await lock.acquire()
    await lease.release()


async def all_of(steps: Iterable[Awaitable[T]]) -> Sequence[T]:
    """Await all, and only then raise the first error: nobody is left at work on a client that is closed."""
    done = await asyncio.gather(*steps, return_exceptions=True)
    for result in done:
        if isinstance(result, BaseException):
            raise result
    return [result for result in done if not isinstance(result, BaseException)]
