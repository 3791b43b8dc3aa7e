"""How one waits for what kazoo answers: on the caller's thread, or as a task.

A task awaits a future that the connection's thread sets: no thread is taken up while it waits.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any

from kazoo.handlers.threading import KazooTimeoutError  # type: ignore[import-untyped]

from fencelock.backends.zookeeper.sessions import Session
from fencelock.runtime import clock

__all__ = ["AsyncResults", "BlockingResults", "Results"]


class Results(ABC):
    """How one waits for what kazoo answers."""

    @abstractmethod
    async def of(self, answer: Any, deadline: float) -> Any:
        """Return the result, or raise what kazoo does; `TimeoutError` at the deadline."""

    @abstractmethod
    async def over(self, session: Session, deadline: float) -> None:
        """Wait until the session's thread has ended."""


class BlockingResults(Results):
    """On the caller's thread."""

    async def of(self, answer: Any, deadline: float) -> Any:
        try:
            return answer.get(timeout=max(0.0, deadline - clock.now()))
        except KazooTimeoutError:
            raise TimeoutError("no answer in time") from None

    async def over(self, session: Session, deadline: float) -> None:
        session.over.wait(max(0.0, deadline - clock.now()))


class AsyncResults(Results):
    """As a task."""

    async def of(self, answer: Any, deadline: float) -> Any:
        if not answer.ready():
            loop = asyncio.get_running_loop()
            ended = loop.create_future()

            def end() -> None:
                if not ended.done():
                    ended.set_result(None)

            def done(_: Any) -> None:
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(end)

            answer.rawlink(done)
            timer = loop.call_later(max(0.0, deadline - clock.now()), end)
            try:
                await ended
            finally:
                timer.cancel()
        if not answer.ready():
            raise TimeoutError("no answer in time")
        return answer.get_nowait()

    async def over(self, session: Session, deadline: float) -> None:
        while not session.over.is_set() and clock.now() < deadline:
            await asyncio.sleep(0.002)
