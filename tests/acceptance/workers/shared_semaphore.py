"""A FastAPI application under uvicorn whose dependencies hold a permit of one shared semaphore.

python shared_semaphore.py URL LIMIT: says its port; `/plain` has a `def` dependency, which FastAPI enters and
leaves on different threads, `/async` an `async def` one.
"""

import asyncio
import json
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import uvicorn
from fastapi import Depends, FastAPI

import fencelock

NAP = 0.02
KEEP_ALIVE = 120
"""Seconds: uvicorn must not close a connection just when a slow browser asks on it again."""


def application(url: str, limit: int) -> FastAPI:
    locks, aio = fencelock.Client(url), fencelock.AsyncClient(url)
    permits = locks.semaphore("plain", limit, ttl=60, timeout=30)
    async_permits = aio.semaphore("async", limit, ttl=60, timeout=30)
    counting = threading.Lock()
    inside = {"plain": 0, "async": 0}

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        locks.close()
        await aio.close()

    def plain() -> Iterator[Any]:
        with permits as lease:
            yield lease

    async def asynchronous() -> AsyncIterator[Any]:
        async with async_permits as lease:
            yield lease

    app = FastAPI(lifespan=lifespan)

    def enter(kind: str, lease: Any, *, held: bool) -> dict[str, Any]:
        with counting:
            inside[kind] += 1
            return {"owner": lease.owner, "inside": inside[kind], "held": held}

    def leave(kind: str) -> None:
        with counting:
            inside[kind] -= 1

    @app.get("/plain")
    def by_threads(lease: Annotated[Any, Depends(plain)]) -> dict[str, Any]:
        told = enter("plain", lease, held=lease.verify())
        time.sleep(NAP)
        leave("plain")
        return {**told, "still": lease.is_held() and lease.verify()}

    @app.get("/async")
    async def by_tasks(lease: Annotated[Any, Depends(asynchronous)]) -> dict[str, Any]:
        told = enter("async", lease, held=await lease.verify())
        await asyncio.sleep(NAP)
        leave("async")
        return {**told, "still": lease.is_held() and await lease.verify()}

    return app


def main(url: str, limit: str) -> None:
    listening = socket.create_server(("127.0.0.1", 0), backlog=200)
    print(json.dumps({"port": listening.getsockname()[1]}), flush=True)
    config = uvicorn.Config(application(url, int(limit)), log_level="error", timeout_keep_alive=KEEP_ALIVE)
    server = uvicorn.Server(config)
    server.run(sockets=[listening])


if __name__ == "__main__":
    main(*sys.argv[1:])
