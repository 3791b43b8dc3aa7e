"""Waits for a lock on Redis, says when it has it, and gives it back when told to.

redis_waiter.py URL FLAVOUR NAME TTL
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from resources import say

from fencelock import AsyncClient, Client
from fencelock.testing import boottime


def granted(lease: Any, verified: bool) -> None:
    say(token=lease.token, owner=lease.owner, held=lease.is_held(), verified=verified, at=boottime())


def blocking(url: str, name: str, ttl: float) -> None:
    with Client(url) as locks:
        lease = locks.lock(name, ttl=ttl).acquire()
        granted(lease, lease.verify())
        sys.stdin.readline()
        say(released=lease.release())


async def with_asyncio(url: str, name: str, ttl: float) -> None:
    async with AsyncClient(url) as locks:
        lease = await locks.lock(name, ttl=ttl).acquire()
        granted(lease, await lease.verify())
        await asyncio.to_thread(sys.stdin.readline)
        say(released=await lease.release())


if __name__ == "__main__":
    _, where, flavour, what, life = sys.argv
    if flavour == "asyncio":
        asyncio.run(with_asyncio(where, what, float(life)))
    else:
        blocking(where, what, float(life))
