"""aetcd's Lock, over grpc.aio: no queue, no fencing token, no renewal.

Settings: its own; the client and the Lock object are kept. Every acquisition makes a new lease and leaves it
behind: they are revoked in the end, so that their expiry does not slow down whoever comes next.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from bench.peers import TTL, AsyncMake
from bench.peers.etcd_calls import place_of

__all__ = ["asynchronous"]


class Section:
    def __init__(self, lock: Any, leases: list[Any]) -> None:
        self.lock = lock
        self.leases = leases

    async def __aenter__(self) -> None:
        if not await self.lock.acquire():
            raise RuntimeError("it was held already")
        self.leases.append(self.lock.lease)

    async def __aexit__(self, *_: object) -> None:
        if not await self.lock.release():
            raise RuntimeError("it was not held")


@asynccontextmanager
async def asynchronous(url: str, tasks: int) -> AsyncIterator[AsyncMake]:
    host, port = place_of(url)
    async with import_module("aetcd").Client(host=host, port=port) as client:
        leases: list[Any] = []
        yield lambda name: Section(client.lock(f"aetcd/{name}".encode(), TTL), leases)
        for lease in leases:
            await lease.revoke()
