"""procrastinate, with its asyncio connector, which is the one that its workers use.

Settings: `concurrency` jobs at a time, `wait=False`, so that it ends when nothing is left; jobs that were
done are kept, as everybody's here. Notifications are off: nothing arrives meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from procrastinate import App, PsycopgConnector  # type: ignore[import-not-found, unused-ignore]

from bench.peers.drills import Run

__all__ = ["drained"]


@contextmanager
def drained(url: str, concurrency: int = 1) -> Iterator[Run]:
    logging.getLogger("procrastinate").setLevel(logging.ERROR)
    ran = 0

    async def once(count: int) -> float:
        nonlocal ran
        app = App(connector=PsycopgConnector(conninfo=url, max_size=concurrency + 5))
        nothing: Any = app.task(name="nothing")(later)
        async with app.open_async():
            await made(app)
            await nothing.batch_defer_async(*({"n": number} for number in range(count)))
            ran = 0
            started = time.perf_counter()
            await app.run_worker_async(
                wait=False, concurrency=concurrency, install_signal_handlers=False, listen_notify=False
            )
            seconds = time.perf_counter() - started
        if ran != count:
            raise RuntimeError(f"{ran} of {count} jobs were done")
        return seconds

    async def later(n: int) -> None:
        nonlocal ran
        ran += 1

    async def made(app: Any) -> None:
        found = await app.connector.execute_query_one_async("SELECT to_regclass('procrastinate_jobs') AS t")
        if found["t"] is None:
            await app.schema_manager.apply_schema_async()
        await app.connector.execute_query_async("TRUNCATE procrastinate_jobs CASCADE")

    yield lambda count: asyncio.run(once(count))
