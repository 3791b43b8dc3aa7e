"""A thread with an event loop of its own, on which all backends are watched.

To list and compare 10,000 locks is half a second of work. On the loop that serves browsers, or on the one of
an application that the dashboard is mounted into, everybody else would wait for it. So pictures live here,
and nothing else touches them: whoever wants something of them asks, and frames are handed over ready-made, in
the order in which they came to be.

The thread begins with the first question, and ends with `close`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["Lookout"]

T = TypeVar("T")

GOODBYE = 5.0
"""Seconds that connections have to be closed in the end."""


class Lookout:
    """Where watchers run."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    async def ask(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what `work()` returns, there."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), self._ready()))

    async def close(self) -> None:
        """End whatever goes on there."""
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            await asyncio.to_thread(thread.join, GOODBYE)

    def _ready(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=_run, args=(self._loop,), name="fencelock-dashboard", daemon=True
            )
            self._thread.start()
        return self._loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()
