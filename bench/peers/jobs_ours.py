"""fencelock.jobs: locks on Redis, or the row alone; threads or asyncio. The handler does nothing.

Settings: an engine of SQLAlchemy with psycopg, `concurrency` connections kept; everything on: leases that are
renewed, tokens, fenced completion, and the row that says who works.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from bench.peers import TTL
from bench.peers.drills import Run
from fencelock import AsyncClient, Client, jobs

__all__ = ["drained"]


def filled(table: jobs.Table, count: int) -> None:
    with table.engine.begin() as conn:
        conn.exec_driver_sql(f"TRUNCATE {table.name}")
        for number in range(count):
            table.enqueue("nothing", {"n": number}, conn=conn)


@contextmanager
def drained(
    url: str, locks: str | None = None, concurrency: int = 1, flavour: str = "blocking", table: str = "ours"
) -> Iterator[Run]:
    place = url.replace("postgresql:", "postgresql+psycopg:")
    engine = create_engine(place, pool_size=concurrency + 5)
    source = jobs.Table(engine, table)
    source.create()
    terms: dict[str, Any] = {"concurrency": concurrency, "ttl": TTL}

    def blocking() -> int:
        return worker.run_once().done

    async def asynchronous() -> tuple[int, float]:
        own = create_async_engine(place, pool_size=concurrency + 5)
        client = AsyncClient(locks) if locks else None
        try:
            worker = jobs.AsyncWorker(client, jobs.AsyncTable(own, table), {"nothing": later}, **terms)
            started = time.perf_counter()
            return (await worker.run_once()).done, time.perf_counter() - started
        finally:
            if client is not None:
                await client.close()
            await own.dispose()

    def run(count: int) -> float:
        filled(source, count)
        started = time.perf_counter()
        if flavour == "asyncio":
            done, seconds = asyncio.run(asynchronous())
        else:
            done, seconds = blocking(), time.perf_counter() - started
        if done != count:
            raise RuntimeError(f"{done} of {count} jobs were done")
        return seconds

    client = Client(locks) if locks and flavour == "blocking" else None
    worker = jobs.Worker(client, source, {"nothing": at_once}, **terms)
    yield run
    if client is not None:
        client.close()
    engine.dispose()


def at_once(job: jobs.Job) -> None:
    """Does nothing."""


async def later(job: jobs.AsyncJob) -> None:
    """Does nothing."""
