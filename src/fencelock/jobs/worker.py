"""`Worker` and `AsyncWorker`: jobs done once, by as many workers as there are. Thin: `loop` does the work.

    worker = Worker(locks, Table(engine), {"send_email": send_email})
    worker.run()                    until SIGTERM or SIGINT, or stop(): then what is under way may end
    worker.run_once()               what is to be done now

A worker takes only kinds that it has handlers for: others may serve the rest. What nobody here serves is said
once at the start, or refused with `strict=True`.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fencelock.aio import AsyncClient
from fencelock.client import Client
from fencelock.durations import Duration
from fencelock.errors import ConfigurationError
from fencelock.jobs.base import ENDING, WorkerBase
from fencelock.jobs.hands import AsyncHands, BlockingHands
from fencelock.jobs.job import AsyncJob, Job
from fencelock.jobs.outcomes import Backoff, Tally
from fencelock.jobs.table import AsyncTable, Table, TableBase
from fencelock.names import shown
from fencelock.runtime import blocking

__all__ = ["AsyncWorker", "Worker"]


class Worker(WorkerBase):
    """Does jobs, each once, on threads. `locks` is a `Client`, or `None` to do without.

    `handlers` maps a kind to a function of the job. What it raises is kept as the reason, and the job is
    tried again after `backoff` seconds, then twice that, and so on, up to `attempts`; then it is dead.
    """

    _job = Job
    source: Table

    def __init__(
        self,
        locks: Client | None,
        source: Table,
        handlers: Mapping[str, Callable[[Job], Any]],
        *,
        concurrency: int = 1,
        ttl: Duration = 30,
        poll: Duration = 1.0,
        attempts: int = 5,
        backoff: Backoff = 2.0,
        grace: Duration = 30,
        strict: bool = False,
    ) -> None:
        _check(locks, source, Client, Table, "AsyncWorker")
        super().__init__(
            locks,
            source,
            handlers,
            concurrency=concurrency,
            ttl=ttl,
            poll=poll,
            attempts=attempts,
            backoff=backoff,
            grace=grace,
            strict=strict,
        )
        for kind, handler in self.handlers.items():
            if _is_coroutine(handler):
                raise ConfigurationError(f"the handler of {kind!r} is a coroutine function: use AsyncWorker")

    def run(self, *, once: bool = False) -> Tally:
        """Work until SIGTERM, SIGINT or `stop()`; with `once`, until nothing is to be done.

        Returns the tally. Signals are heard in the main thread only.
        """
        self.source.check()
        shape = self.source._known()
        link = self.source._link()
        try:
            blocking.run(self._prepare(link, shape))
        finally:
            blocking.run(link.close())
        loop = self._loop = self._made(BlockingHands(), shape, once)
        with self._hearing():
            return blocking.run(loop.run())

    def run_once(self) -> Tally:
        """Do what is to be done now, and return the tally."""
        return self.run(once=True)

    @contextmanager
    def _hearing(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {signum: signal.signal(signum, self._arrived) for signum in ENDING}
        try:
            yield
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler if handler is not None else signal.SIG_DFL)


class AsyncWorker(WorkerBase):
    """The same as `Worker`, for asyncio: `locks` is an `AsyncClient` or `None`, handlers are coroutines.

    A handler is cancelled when the lease of its job is lost.
    """

    _job = AsyncJob
    source: AsyncTable

    def __init__(
        self,
        locks: AsyncClient | None,
        source: AsyncTable,
        handlers: Mapping[str, Callable[[AsyncJob], Awaitable[Any]]],
        *,
        concurrency: int = 1,
        ttl: Duration = 30,
        poll: Duration = 1.0,
        attempts: int = 5,
        backoff: Backoff = 2.0,
        grace: Duration = 30,
        strict: bool = False,
    ) -> None:
        _check(locks, source, AsyncClient, AsyncTable, "Worker")
        super().__init__(
            locks,
            source,
            handlers,
            concurrency=concurrency,
            ttl=ttl,
            poll=poll,
            attempts=attempts,
            backoff=backoff,
            grace=grace,
            strict=strict,
        )
        for kind, handler in self.handlers.items():
            if not _is_coroutine(handler):
                raise ConfigurationError(f"the handler of {kind!r} is no coroutine function: use Worker")

    async def run(self, *, once: bool = False) -> Tally:
        """Work until SIGTERM, SIGINT or `stop()`; with `once`, until nothing is to be done.

        Returns the tally. Signals are heard in the main thread only.
        """
        await self.source.check()
        shape = self.source._known()
        link = self.source._link()
        try:
            await self._prepare(link, shape)
        finally:
            await link.close()
        loop = self._loop = self._made(AsyncHands(), shape, once)
        with self._hearing():
            return await loop.run()

    async def run_once(self) -> Tally:
        """Do what is to be done now, and return the tally."""
        return await self.run(once=True)

    @contextmanager
    def _hearing(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        for signum in ENDING:
            loop.add_signal_handler(signum, self._arrived)
        try:
            yield
        finally:
            for signum in ENDING:
                loop.remove_signal_handler(signum)


def _is_coroutine(handler: Any) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - an object with an async __call__
    )


def _check(locks: Any, source: Any, client: type, table: type, other: str) -> None:
    if locks is not None and not isinstance(locks, client):
        hint = f", use {other} for the other flavour" if isinstance(locks, Client | AsyncClient) else ""
        raise ConfigurationError(f"locks={shown(locks)} is no {client.__name__}: give one, or None{hint}")
    if not isinstance(source, table):
        hint = f", or use {other}" if isinstance(source, TableBase) else ""
        raise ConfigurationError(f"source={shown(source)} is no {table.__name__}: give one{hint}")
