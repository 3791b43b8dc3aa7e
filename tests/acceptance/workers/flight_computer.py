"""One caller of a flight, whose computation takes until it is told to end.

flight_computer.py FLAVOUR URL KEY VALUE LOCK_TTL. It says when it is ready and asks when it gets a line; says
when it computes and goes on when it gets another; and says what it got. Times are by the host's clock.
"""

from __future__ import annotations

import asyncio
import sys

from resources import say

from fencelock import AsyncClient, Client
from fencelock.flight import AsyncFlight, Flight
from fencelock.testing import boottime

TTL = 600


def compute(value: str) -> str:
    say(computing=value, at=boottime())
    sys.stdin.readline()
    return value


def blocking(url: str, key: str, value: str, lock_ttl: float) -> None:
    with Client(url) as locks, Flight(locks, lock_ttl=lock_ttl) as flight:
        say(ready=True)
        sys.stdin.readline()
        say(got=flight.get(key, lambda: compute(value), TTL), at=boottime())


async def with_tasks(url: str, key: str, value: str, lock_ttl: float) -> None:
    async with AsyncClient(url) as locks, AsyncFlight(locks, lock_ttl=lock_ttl) as flight:
        say(ready=True)
        await asyncio.to_thread(sys.stdin.readline)
        got = await flight.get(key, lambda: asyncio.to_thread(compute, value), TTL)
        say(got=got, at=boottime())


if __name__ == "__main__":
    flavour, url, key, value, lock_ttl = sys.argv[1:]
    if flavour == "blocking":
        blocking(url, key, value, float(lock_ttl))
    else:
        asyncio.run(with_tasks(url, key, value, float(lock_ttl)))
