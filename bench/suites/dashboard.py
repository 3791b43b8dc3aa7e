"""What a look of the dashboard costs with 10,000 locks: the list, comparing it, what is sent.

The limit is the list itself, which whoever wants to see all locks must ask for. `compared` is what the
dashboard adds to it when nothing has changed; `renewed` when every lease was renewed since the look before.
Browsers are handed bytes that were made once: the last note says what one more of them costs.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from tools.servers import start

import fencelock
from bench import effort
from bench.measure import Figure, Result, Suite
from fencelock.dashboard.hub import Hub
from fencelock.dashboard.picture import Picture, to_json
from fencelock.state import LockState

__all__ = ["SUITE"]

LOCKS = effort.count(10_000)
ROUNDS = effort.rounds(7)
TOGETHER = 200
FRAMES = 50


async def _taken(client: fencelock.AsyncClient, count: int) -> list[fencelock.AsyncLease]:
    leases: list[fencelock.AsyncLease] = []
    for first in range(0, count, TOGETHER):
        locks = [client.lock(f"invoice:{first + n}", ttl=600) for n in range(TOGETHER)]
        leases += await asyncio.gather(*(lock.acquire() for lock in locks))
    return leases


async def _looked(url: str, progress: Callable[[str], None]) -> Result:
    times: dict[str, list[float]] = {"the list": [], "compared": [], "renewed": [], "whole picture": []}
    sizes: dict[str, int] = {}
    async with fencelock.AsyncClient(url) as holder, fencelock.AsyncClient(url) as client:
        leases = await _taken(holder, LOCKS)
        picture = Picture("b0", itertools.count(1))
        picture.take(await client.list(), 0.0, 0.0)
        for number in range(1, ROUNDS + 1):
            progress(f"look {number} of {ROUNDS}")
            states = await _timed(times["the list"], client.list())
            assert len(states) == len(leases), "those who are not held are given back"
            picture.take(states, 0.0, 0.0)
            sizes["unchanged"] = _compared(times["compared"], picture, states)
            sizes["renewed"] = _compared(times["renewed"], picture, [_renewed(state) for state in states])
            began = time.perf_counter()
            sizes["whole"] = len(picture.whole(0.0, None))
            times["whole picture"].append(time.perf_counter() - began)
    roles = {"the list": "limit"}
    figures = [Figure(name, roles.get(name, "fencelock"), rounds) for name, rounds in times.items()]
    notes = [f"{name}: {size:,} bytes" for name, size in sizes.items()]
    return Result(f"{LOCKS:,} locks on {url.partition(':')[0]}", figures, [*notes, await _browsers()])


async def _timed(into: list[float], asking: Awaitable[list[LockState]]) -> list[LockState]:
    began = time.perf_counter()
    states = await asking
    into.append(time.perf_counter() - began)
    return states


def _compared(into: list[float], picture: Picture, states: list[LockState]) -> int:
    began = time.perf_counter()
    text = to_json(picture.take(states, 0.0, 0.0))
    into.append(time.perf_counter() - began)
    return len(text)


def _renewed(state: LockState) -> LockState:
    later = [replace(entry, expires_in=entry.expires_in + 200.0) for entry in state.holders]
    return replace(state, holders=tuple(later))


async def _browsers() -> str:
    """Say what it costs to hand a frame to 1 browser, and to 20."""
    took = {}
    for count in (1, 20):
        hub = Hub()
        listeners = [hub.join() for _ in range(count)]
        for listener in listeners:
            listener.begin(b"")
        rounds = []
        for _ in range(FRAMES):
            began = time.perf_counter()
            hub.send("change", "x" * 200_000)
            for listener in listeners:
                await listener.get(1.0)
            rounds.append(time.perf_counter() - began)
        took[count] = statistics.median(rounds) * 1000
    return f"a frame of 200 kB to 1 browser: {took[1]:.2f} ms, to 20: {took[20]:.2f} ms"


def measure(progress: Callable[[str], None]) -> Sequence[Result]:
    with tempfile.TemporaryDirectory() as folder, start("redis") as redis, start("postgres") as postgres:
        urls = [f"sqlite://{folder}/locks.db", redis.url, postgres.url]
        return [asyncio.run(_looked(str(url), progress)) for url in urls]


SUITE = Suite("dashboard", "what a look of the dashboard costs with 10,000 locks", measure)
