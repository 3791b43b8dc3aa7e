"""Clients in a process of their own, which do what they are told: one line of JSON in, one out.

    python -m bench.scale.client URL

    open {"clients": 8}                            so many, each with its connections made; files and threads
    pairs {"clients", "tasks", "begin", "until"}   each client pairs in so many tasks, all names different
    hot {"name", "clients", "section", …}          each client wants the same lock, again and again
    hold {"name"}, wait {"name"}, rest {}          the first holds it; the others wait; all let go

`begin` and `until` are instants of the monotonic clock, which all processes of a host share. What happens
before is warming up. What is told is of that window: how often, how long each took, and the processor time.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import fencelock

__all__ = ["Clients", "main"]

TTL = 30.0
PATIENCE = 60.0
KEPT = 101
"""So many of the times are told, evenly over their order."""


class Clients:
    """The clients of this process."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.clients: list[fencelock.AsyncClient] = []
        self.waiting: list[asyncio.Task[Any]] = []
        self.lease: Any = None

    async def open(self, clients: int) -> dict[str, int]:
        while len(self.clients) < clients:
            client = fencelock.AsyncClient(self.url)
            self.clients.append(client)
            async with client.lock(f"open-{os.getpid()}-{len(self.clients)}", ttl=TTL):
                pass
        memory = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return {
            "descriptors": len(list(Path("/proc/self/fd").iterdir())),
            "threads": len(list(Path("/proc/self/task").iterdir())),
            "memory": memory,
        }

    async def pairs(self, clients: int, tasks: int, begin: float, until: float) -> dict[str, Any]:
        window = Window(begin, until)

        async def work(client: fencelock.AsyncClient, number: int) -> None:
            lock = client.lock(f"pair-{os.getpid()}-{number}", ttl=TTL)
            while window.is_open():
                started = time.monotonic()
                async with lock:
                    pass
                window.took(time.monotonic() - started)

        chosen = self.clients[:clients]
        return await window.watch(
            [work(one, n * tasks + k) for n, one in enumerate(chosen) for k in range(tasks)]
        )

    async def hot(
        self, name: str, clients: int, section: float, begin: float, until: float
    ) -> dict[str, Any]:
        window = Window(begin, until)
        turns: list[tuple[int, int]] = []

        async def work(client: fencelock.AsyncClient, number: int) -> None:
            lock = client.lock(name, ttl=TTL)
            while window.is_open():
                started = time.monotonic()
                async with lock as lease:
                    window.took(time.monotonic() - started)
                    turns.append((lease.token, number))
                    if section:
                        await asyncio.sleep(section)

        told = await window.watch([work(one, number) for number, one in enumerate(self.clients[:clients])])
        return {**told, "turns": turns}

    async def hold(self, name: str) -> dict[str, Any]:
        self.lease = await self.clients[0].lock(name, ttl=TTL).acquire()
        return {}

    async def wait(self, name: str, waiters: int) -> dict[str, Any]:
        """Let all but the holder wait, and return when the queue has so many; 0 where there is no queue."""
        chosen = self.clients[1:] if self.lease else self.clients
        self.waiting = [asyncio.create_task(one.lock(name, ttl=TTL).acquire()) for one in chosen]
        until = time.monotonic() + PATIENCE
        while len((await self.clients[0].inspect(name)).waiters) < waiters:
            if time.monotonic() > until:
                raise TimeoutError(f"{waiters} do not wait")
            await asyncio.sleep(0.1)
        return {}

    async def rest(self) -> dict[str, Any]:
        for task in self.waiting:
            task.cancel()
        await asyncio.gather(*self.waiting, return_exceptions=True)
        self.waiting = []
        if self.lease:
            await self.lease.release()
            self.lease = None
        return {}

    async def close(self) -> None:
        for client in self.clients:
            await client.close()


class Window:
    """What happens between two instants."""

    def __init__(self, begin: float, until: float) -> None:
        self.begin, self.until = begin, until
        self._seen: list[tuple[float, float]] = []

    def is_open(self) -> bool:
        return time.monotonic() < self.until

    def took(self, seconds: float) -> None:
        self._seen.append((time.monotonic(), seconds))

    async def watch(self, works: list[Awaitable[None]]) -> dict[str, Any]:
        tasks = [asyncio.ensure_future(work) for work in works]
        samples = []
        for instant in (self.begin, self.until):
            await asyncio.sleep(max(0.0, instant - time.monotonic()))
            samples.append((time.monotonic(), time.process_time()))
        await asyncio.gather(*tasks)
        (first, before), (last, after) = samples
        times = sorted(seconds for when, seconds in self._seen if first <= when < last)
        kept = [times[round(n * (len(times) - 1) / (KEPT - 1))] for n in range(KEPT)] if times else []
        return {"count": len(times), "seconds": last - first, "processor": after - before, "times": kept}


async def main(url: str) -> None:
    clients = Clients(url)
    try:
        while line := await asyncio.to_thread(sys.stdin.readline):
            word, options = json.loads(line)
            order: Callable[..., Awaitable[dict[str, Any]]] = getattr(clients, word)
            print(json.dumps(await order(**options)), flush=True)
    finally:
        await clients.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
