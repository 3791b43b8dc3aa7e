"""Holds ten thousand leases with one client for three ttls, and says what that takes.

many_leases.py URL FLAVOUR COUNT TTL, where FLAVOUR is blocking or asyncio.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from resources import say

from fencelock import AsyncClient, AsyncLease, Client, Lease

PERIODS = 3


def rss() -> int:
    gc.collect()
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def threads() -> dict[str, int]:
    """Threads by name; those of a pool are numbered."""
    return dict(Counter(thread.name.rsplit("_", 1)[0] for thread in threading.enumerate()))


def tasks() -> dict[str, int]:
    return dict(Counter(task.get_name() for task in asyncio.all_tasks()))


def facts(leases: list[Any], before: int) -> dict[str, Any]:
    return {
        "held": sum(lease.is_held() for lease in leases),
        "tokens": len({lease.token for lease in leases}),
        "lost": sum(lease.lost.is_set() for lease in leases[::100]),
        "rss": rss() - before,
        "threads": threads(),
    }


def blocking(url: str, count: int, ttl: float) -> None:
    with Client(url) as locks:
        locks.lock("warm-up", ttl=ttl).acquire().release()
        before = rss()
        leases: list[Lease] = [locks.lock(f"lease:{n}", ttl=ttl).acquire() for n in range(count)]
        after = rss() - before
        time.sleep(PERIODS * ttl)
        found = facts(leases, before) | {"rss_at_first": after}
        states = locks.list("lease:")
        shortest = min((state.holders[0].expires_in for state in states), default=0.0)
        verified = sum(lease.verify() for lease in leases[::100])
    say(**found, listed=len(states), shortest=shortest, verified=verified)


async def with_asyncio(url: str, count: int, ttl: float) -> None:
    async with AsyncClient(url) as locks:
        await (await locks.lock("warm-up", ttl=ttl).acquire()).release()
        before = rss()
        leases: list[AsyncLease] = [await locks.lock(f"lease:{n}", ttl=ttl).acquire() for n in range(count)]
        after = rss() - before
        await asyncio.sleep(PERIODS * ttl)
        found = facts(leases, before) | {"rss_at_first": after, "tasks": tasks()}
        states = await locks.list("lease:")
        shortest = min((state.holders[0].expires_in for state in states), default=0.0)
        verified = 0
        for lease in leases[::100]:
            verified += await lease.verify()
    say(**found, listed=len(states), shortest=shortest, verified=verified)


if __name__ == "__main__":
    target, flavour, number, life = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    if flavour == "asyncio":
        asyncio.run(with_asyncio(target, number, life))
    else:
        blocking(target, number, life)
