"""Waiting until a socket is ready: the one thing about I/O that the flavours do differently.

A thread polls; a task awaits its loop. A wait takes no byte from the socket, so cancelling or interrupting it
loses nothing. It ends by its deadline, with `TimeoutError`: a poll that a signal interrupts goes on with what
is left of its time (PEP 475).

One thread or task at a time may wait to read, and one to write.

Not promised: that something has come when a wait to read ends. A loop may report what was taken meanwhile, so
callers look and wait again.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

from fencelock.runtime import clock

if TYPE_CHECKING:
    import asyncio

    from fencelock.runtime.base import HasFileno

__all__ = ["TaskReadiness", "ThreadReadiness"]

LATE = "no answer in time"
IDLE_CALLS = 2
"""A loop that reports data which no task waits for is told to stop watching after this many calls."""


class ThreadReadiness:
    """For threads."""

    __slots__ = ("_reads", "_source")

    def __init__(self, source: HasFileno) -> None:
        self._source = source
        self._reads = select.poll()
        self._reads.register(source, select.POLLIN)

    async def readable(self, deadline: float) -> None:
        left = deadline - clock.now()
        if left <= 0 or not self._reads.poll(left * 1000):
            raise TimeoutError(LATE)

    async def writable(self, deadline: float) -> None:
        writes = select.poll()
        writes.register(self._source, select.POLLOUT)
        left = deadline - clock.now()
        if left <= 0 or not writes.poll(left * 1000):
            raise TimeoutError(LATE)

    def end(self) -> None:
        """Nothing to do: no poll outlives its call."""


class TaskReadiness:
    """For the tasks of one loop.

    The loop goes on watching the socket for data between two waits. To begin and end that for each wait costs
    more than a few calls in vain.
    """

    __slots__ = ("_idle_calls", "_loop", "_poll", "_reader", "_source", "_watches", "_writer")

    def __init__(self, loop: asyncio.AbstractEventLoop, source: HasFileno) -> None:
        self._loop = loop
        self._source = source
        self._reader: asyncio.Future[bool] | None = None
        self._writer: asyncio.Future[bool] | None = None
        self._watches = False
        self._idle_calls = 0
        self._poll = select.poll()
        self._poll.register(source, select.POLLIN)

    async def readable(self, deadline: float) -> None:
        if self._poll.poll(0):  # uvloop does not call a second time for a reset right behind data
            return
        if not self._watches:
            self._loop.add_reader(self._source, self._on_data)
            self._watches = True
        self._idle_calls = 0
        self._reader = waiter = self._loop.create_future()
        timer = self._loop.call_later(max(0.0, deadline - clock.now()), _expire, waiter)
        try:
            if not await waiter:
                raise TimeoutError(LATE)  # here, since a future with an exception would be a reference cycle
        finally:
            timer.cancel()
            self._reader = None

    async def writable(self, deadline: float) -> None:
        self._writer = waiter = self._loop.create_future()
        self._loop.add_writer(self._source, _wake, waiter)
        timer = self._loop.call_later(max(0.0, deadline - clock.now()), _expire, waiter)
        try:
            if not await waiter:
                raise TimeoutError(LATE)
        finally:
            timer.cancel()
            if self._writer is not None:  # else `end` was here
                self._writer = None
                self._loop.remove_writer(self._source)

    def _on_data(self) -> None:
        if self._reader is not None:
            _wake(self._reader)
            return
        self._idle_calls += 1
        if self._idle_calls > IDLE_CALLS:
            self._stop_watching()

    def _stop_watching(self) -> None:
        if self._watches:
            self._watches = False
            if not self._loop.is_closed():
                self._loop.remove_reader(self._source)

    def end(self) -> None:
        """Take the socket out of the loop, before it is closed. Waits that are under way end."""
        self._stop_watching()
        if self._reader is not None:
            _wake(self._reader)
        if self._writer is not None:
            writer, self._writer = self._writer, None
            if not self._loop.is_closed():
                self._loop.remove_writer(self._source)
                _wake(writer)


def _wake(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(True)


def _expire(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(False)
