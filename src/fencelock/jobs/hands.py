"""What differs between the flavours in a worker: how a handler is called, and how it is interrupted."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any

from fencelock.jobs.leases import RowLease
from fencelock.runtime.asyncio import AsyncioRuntime
from fencelock.runtime.base import Runtime
from fencelock.runtime.blocking import BlockingRuntime

__all__ = ["AsyncHands", "BlockingHands", "Cancelled", "Hands", "Interrupted"]


class Interrupted(Exception):
    """A handler was cancelled because its lease is gone."""


class Cancelled(Exception):
    """A handler was cancelled by somebody else, or has raised that itself: an error like any other."""


class Hands(ABC):
    """One flavour."""

    runtime: Runtime

    @abstractmethod
    def mutex(self) -> AbstractAsyncContextManager[Any]:
        """Return a lock between slots."""

    @abstractmethod
    async def call(self, handler: Callable[[Any], Any], job: Any, slot: dict[str, Any]) -> None:
        """Call a handler. `slot` is where `interrupt` finds it. Raises what it raises, or `Interrupted`."""

    @abstractmethod
    def interrupt(self, slot: dict[str, Any]) -> None:
        """Cancel a handler, where that can be done."""


class ThreadMutex:
    """A lock of threads behind the face of one of tasks. It never suspends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    async def __aenter__(self) -> None:
        self._lock.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


class BlockingHands(Hands):
    """Handlers are functions; each slot is a thread."""

    def __init__(self) -> None:
        self.runtime = BlockingRuntime()

    def mutex(self) -> AbstractAsyncContextManager[Any]:
        return ThreadMutex()

    async def call(self, handler: Callable[[Any], Any], job: Any, slot: dict[str, Any]) -> None:
        handler(job)

    def interrupt(self, slot: dict[str, Any]) -> None:
        """Nothing to do: a thread cannot be cancelled. `job.lease.check()` raises."""


class AsyncHands(Hands):
    """Handlers are coroutine functions; each slot is a task, and so is each handler."""

    def __init__(self) -> None:
        self.runtime = AsyncioRuntime()

    def mutex(self) -> AbstractAsyncContextManager[Any]:
        return asyncio.Lock()

    async def call(self, handler: Callable[[Any], Any], job: Any, slot: dict[str, Any]) -> None:
        task = asyncio.ensure_future(handler(job))
        slot["task"] = task
        timer = _watch(job.lease, lambda: self.interrupt(slot)) if isinstance(job.lease, RowLease) else None
        try:
            await task
        except asyncio.CancelledError:
            ours = asyncio.current_task()
            if ours is not None and ours.cancelling():
                raise  # it is the worker that is cancelled
            raise (Interrupted if slot.get("interrupted") else Cancelled)() from None
        finally:
            if timer is not None:
                timer()

    def interrupt(self, slot: dict[str, Any]) -> None:
        task = slot.get("task")
        if task is not None and not task.done():
            slot["interrupted"] = True
            task.cancel("lease lost")


def _watch(lease: RowLease, lost: Callable[[], None]) -> Callable[[], None]:
    """Call `lost` when the lease is over, however stuck the renewals are. Returns what ends the watch."""
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle

    def look() -> None:
        nonlocal timer
        if lease.is_held():
            timer = loop.call_later(lease.remaining() + 0.001, look)
        else:
            lost()

    timer = loop.call_later(lease.remaining() + 0.001, look)

    def end() -> None:
        timer.cancel()

    return end
