"""A program under uvloop: `uvloop_program.py URL` waits for a lock, forks while it holds one, tells all.

`uvloop_program.py URL late` closes its client when the loop has ended, and prints the error.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import uvloop

from fencelock import AsyncClient


def under_uvloop(main: Any) -> Any:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


async def parent(url: str) -> dict[str, Any]:
    async with AsyncClient(url) as client:
        ttl = max(3.0, client.guarantees.min_ttl)
        held = await client.lock("held", ttl=ttl).acquire(timeout=10)
        waiting = asyncio.create_task(client.lock("held", ttl=ttl).acquire(timeout=10))
        await asyncio.sleep(0.3)
        await held.release()
        lease = await waiting
        child = await asyncio.to_thread(read_all, forked(client, lease))
        await asyncio.sleep(1.5 * ttl)
        return {
            "loop": type(asyncio.get_running_loop()).__module__,
            "grew": lease.token > held.token,
            "child": json.loads(child or "{}"),
            "verified": await lease.verify(),
            "released": await lease.release(),
        }


def forked(client: AsyncClient, lease: Any) -> int:
    """Fork; return where the child's report can be read."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            report = under_uvloop(in_the_child(client, lease))
        except BaseException as error:
            report = {"failed": f"{type(error).__name__}: {error}"}
        os.write(writer, json.dumps(report).encode())
        os._exit(0)
    os.close(writer)
    return reader


async def in_the_child(client: AsyncClient, lease: Any) -> dict[str, Any]:
    held = lease.is_held()
    async with client.lock("own", ttl=lease.ttl, timeout=10) as own:
        return {"held": held, "own": await own.verify()}


def read_all(reader: int) -> bytes:
    with os.fdopen(reader, "rb") as pipe:
        return pipe.read()


async def used(url: str) -> AsyncClient:
    client = AsyncClient(url)
    async with client.lock("job", timeout=10):
        return client


def close_late(url: str) -> str:
    client = under_uvloop(used(url))
    try:
        asyncio.run(client.close())
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "closed"


if __name__ == "__main__":
    print(close_late(sys.argv[1]) if sys.argv[2:] else json.dumps(under_uvloop(parent(sys.argv[1]))))
