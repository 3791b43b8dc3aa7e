"""Waits for a lock, in blocking or asyncio form, and says when it has it: waiter.py FOLDER FLAVOUR TTL."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from resources import say

from fencelock import AsyncClient, Client


def blocking(folder: Path, ttl: float) -> None:
    with Client(f"sqlite://{folder / 'locks.db'}") as locks, locks.lock("list", ttl=ttl) as lease:
        say(token=lease.token, held=lease.is_held(), verified=lease.verify())
        sys.stdin.readline()


async def with_asyncio(folder: Path, ttl: float) -> None:
    async with AsyncClient(f"sqlite://{folder / 'locks.db'}") as locks, locks.lock("list", ttl=ttl) as lease:
        say(token=lease.token, held=lease.is_held(), verified=await lease.verify())
        await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    where, flavour, life = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    if flavour == "asyncio":
        asyncio.run(with_asyncio(where, life))
    else:
        blocking(where, life)
