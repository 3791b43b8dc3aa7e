"""Many leases held at once: how long it takes to renew all of them.

1. Leases are taken, a few at a time, for as long as a measurement takes; in less time there are fewer.
2. A sweep renews all of them as the renewer does: in batches, each answered before the next.
3. They are given back, a few at a time, whatever happened.

Where a lease takes a connection, a few of them are enough: others need connections too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from fencelock.aio import AsyncClient
from fencelock.cli.measuring.course import PATIENCE, Course
from fencelock.cli.measuring.pairs import all_of
from fencelock.cli.measuring.row import Row
from fencelock.core import renew
from fencelock.core.session import Session
from fencelock.errors import BackendUnavailable
from fencelock.lease import AsyncLease

__all__ = ["sweeps"]

AT_ONCE = 16
CONNECTIONS = 20
"""So many leases at most where each takes a connection."""


def sweeps(course: Course, key: str, title: str) -> Row:
    """Hold leases and renew them."""
    return asyncio.run(_sweeps(course, key, title))


async def _sweeps(course: Course, key: str, title: str) -> Row:
    async with course.under_asyncio() as locks:
        connections = locks.guarantees.crash_release == "connection"
        wanted = min(course.leases, CONNECTIONS) if connections else course.leases
        leases: list[AsyncLease] = []
        times: list[float] = []
        try:
            names = (course.name(f"{key}:{number}") for number in range(wanted))
            until = time.perf_counter() + course.seconds
            await all_of(_take(course, locks, names, leases, until) for _ in range(AT_ONCE))
            count = len(leases)
            if count:
                await _sweep(locks._session)
                until = time.perf_counter() + course.seconds
                times = await course.repeat_async(lambda: _sweep(locks._session), until)
        finally:
            await all_of(_give_back(leases) for _ in range(AT_ONCE))
    rate = count * len(times) / sum(times) if times else None
    return Row(key, title, times, rate, note=_note(count, course.leases, connections))


def _note(count: int, wanted: int, connections: bool) -> str:
    if count == wanted:
        return ""
    why = "each takes a connection here" if connections else "there was no time for more"
    return f"{count} of {wanted} leases: {why}"


async def _take(
    course: Course, locks: AsyncClient, names: Iterator[str], leases: list[AsyncLease], until: float
) -> None:
    ttl = course.ttl(locks.guarantees)
    for name in names:
        leases.append(await locks.lock(name, ttl=ttl, timeout=PATIENCE).acquire())
        if course.stop or time.perf_counter() >= until:
            return


async def _give_back(leases: list[AsyncLease]) -> None:
    while leases:
        await leases.pop().release()


async def _sweep(session: Session) -> None:
    holds = session.holds.all()
    size = session.backend.renew_batch
    began = session.runtime.now()
    for start in range(0, len(holds), size):
        await renew._renew(session, holds[start : start + size])
    # The renewer tries again soon what got no answer; here it would pass for a fast sweep.
    if any(hold.due < began + hold.ttl / 6 for hold in holds):
        raise BackendUnavailable(backend=session.backend.name, detail="leases could not be renewed")
