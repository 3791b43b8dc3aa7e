"""The other process: `python -m fencelock.testing.conformance.peer FLAVOUR serve|SCRIPT [JSON]`.

`serve` reads one JSON object per line, `{"id": 1, "op": "acquire", "name": …}`, does each
on a thread or task of its own, and answers `{"id": 1, "value": …}` or `{"id": 1, "error":
…, "detail": …}`. Anything else is the name of a script in `scripts.py`, which runs on the
main thread and reports once. `nursery NUMBER` forks such processes on request: see `nursery.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

from fencelock.aio import AsyncClient
from fencelock.client import Client
from fencelock.errors import FencelockError
from fencelock.testing.conformance import scripts
from fencelock.testing.conformance.actors import TaskActor, ThreadActor, inside, io, nap
from fencelock.testing.conformance.loops import run_async
from fencelock.testing.conformance.nursery import tend

__all__ = ["main"]


class Server:
    """What this process holds, and what it can be told to do: every method with a public name."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._leases: dict[str, Any] = {}

    def _lock(
        self, name: str, *, ttl: float, mode: str = "exclusive", limit: int = 1, renew: bool = True
    ) -> Any:
        if mode == "permit":
            return self._client.semaphore(name, limit, ttl=ttl, renew=renew)
        if mode == "shared":
            return self._client.rwlock(name, ttl=ttl, renew=renew).read()
        return self._client.lock(name, ttl=ttl, renew=renew)

    async def acquire(self, name: str, *, timeout: float | None = None, **terms: Any) -> dict[str, Any]:
        """Acquire a lock and keep the lease."""
        lease = await io(self._lock(name, **terms).acquire(timeout=timeout))
        self._leases[name] = lease
        return {"token": lease.token, "owner": lease.owner}

    async def extend(self, name: str, *, ttl: float) -> None:
        """Give a lease another ttl."""
        await io(self._leases[name].extend(ttl))

    async def release(self, name: str) -> bool:
        """Give a lease back."""
        return bool(await io(self._leases[name].release()))

    async def look(self, name: str) -> dict[str, Any]:
        """Say what the lease says of itself, without any I/O."""
        lease = self._leases[name]
        held = lease.is_held()
        try:
            lease.check()
        except FencelockError as error:
            return {"held": held, "remaining": lease.remaining(), "check": type(error).__name__}
        return {"held": held, "remaining": lease.remaining(), "check": ""}

    async def block(self, name: str, *, seconds: float, **terms: Any) -> str:
        """Stay inside a `with` block for a while; return the name of what the block raised."""
        try:
            async with inside(self._lock(name, **terms)) as lease:
                self._leases[name] = lease
                await nap(seconds)
        except FencelockError as error:
            return type(error).__name__
        return ""

    async def count(self, name: str, *, path: str, rounds: int, ttl: float) -> list[int]:
        """Add one to the number in a file, under the lock, so many times; return the tokens."""
        tokens = []
        file = Path(path)
        lock = self._lock(name, ttl=ttl)
        for _ in range(rounds):
            async with inside(lock) as lease:
                value = int(file.read_text())
                await nap(0.001)
                file.write_text(str(value + 1))
                tokens.append(lease.token)
        return tokens


async def serve(flavour: str) -> None:
    """Do what the lines of standard input say, until it ends."""
    loop = asyncio.get_running_loop()
    client: Any = Client() if flavour == "blocking" else AsyncClient()
    server = Server(client)
    lines: asyncio.Queue[str] = asyncio.Queue()
    threading.Thread(target=_read, args=(loop, lines), name="conform-reader", daemon=True).start()
    tasks = set()
    while line := await lines.get():
        task = loop.create_task(_do(loop, flavour, server, json.loads(line)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await io(client.close())


def _read(loop: asyncio.AbstractEventLoop, lines: asyncio.Queue[str]) -> None:
    with contextlib.suppress(RuntimeError):
        for line in sys.stdin:
            loop.call_soon_threadsafe(lines.put_nowait, line)
        loop.call_soon_threadsafe(lines.put_nowait, "")


async def _do(loop: asyncio.AbstractEventLoop, flavour: str, server: Server, job: dict[str, Any]) -> None:
    number, op = job.pop("id"), job.pop("op")
    actor = ThreadActor(loop, "conform-actor") if flavour == "blocking" else TaskActor(loop, "conform-actor")
    try:
        answer = {"id": number, "value": await actor(getattr(server, op), **job)}
    except Exception as error:
        answer = {"id": number, "error": type(error).__name__, "detail": str(error)}
    finally:
        actor.stop()
    print(json.dumps(answer), flush=True)


def main(arguments: list[str]) -> None:
    """Run as the command line says."""
    if arguments[0] == "nursery":
        arguments = tend(int(arguments[1]))
    logging.getLogger("fencelock").addHandler(logging.NullHandler())  # losses are expected here
    warnings.simplefilter("ignore", RuntimeWarning)  # an interrupt may come before a coroutine has begun
    flavour, what, *rest = arguments
    if what == "serve":
        run_async(serve(flavour))
        return
    try:
        value = scripts.perform(flavour, what, **json.loads(rest[0]))
        print(json.dumps({"value": value}), flush=True)
    except Exception as error:
        print(json.dumps({"error": type(error).__name__, "detail": str(error)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
