"""Sessions: kazoo's clients, one for each tenure.

kazoo keeps a session alive by itself, for as long as its thread runs. That is too long: a lease that nobody
renews must end though its process lives. So its heartbeats are let through only while a place in the
session is within its deadline, or nothing is in it; then the server ends the session by itself, as it
would for a process that died.

kazoo has threads of its own and no form for asyncio. A task awaits a future that kazoo's thread sets: no
thread is taken up while it waits.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.states import KazooState

from holdfast.runtime import clock

__all__ = ["AsyncResults", "BlockingResults", "Results", "Session"]

log = logging.getLogger("holdfast.zookeeper")
log.addHandler(logging.NullHandler())


class Connection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection, which is told when to be silent, and tells what the server agreed to."""

    is_wanted: Callable[[], bool]
    agreed: float = 0.0

    def _connect(self, host: Any, hostip: Any, port: Any) -> tuple[float, float]:
        read, connect = super()._connect(host, hostip, port)
        self.agreed = read * 1.5 / 1000.0
        return read, connect

    def _send_ping(self, connect_timeout: float) -> None:
        if self.is_wanted():
            super()._send_ping(connect_timeout)


class Session:
    """One session with the ensemble."""

    def __init__(
        self,
        options: dict[str, Any],
        seconds: float,
        *,
        is_wanted: Callable[[], bool],
        lost: Callable[[], None],
    ) -> None:
        self.client = KazooClient(
            timeout=seconds,
            connection_retry={"max_tries": -1, "delay": 0.05, "max_delay": 1.0, "backoff": 2},
            logger=log,
            **options,
        )
        self._connection = self.client._connection
        self._connection.__class__ = Connection
        self._connection.is_wanted = is_wanted
        self._lost = lost
        self._was_connected = False
        self.client.add_listener(self._changed)

    def _changed(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._was_connected = True
        elif state == KazooState.LOST and self._was_connected:
            self._lost()

    def connect(self, seconds: float) -> bool:
        """Connect; say whether it did in time."""
        return bool(self.client.start_async().wait(seconds))

    @property
    def ident(self) -> int:
        """The session's number."""
        found = self.client.client_id
        return int(found[0]) if found is not None else 0

    @property
    def agreed(self) -> float:
        """The seconds that the server agreed to."""
        return float(self._connection.agreed)

    def close(self) -> None:
        """End the session, and every znode in it."""
        self.client.remove_listener(self._changed)
        self.client.stop()
        self.client.close()


class Results(ABC):
    """How one waits for what kazoo answers."""

    @abstractmethod
    async def of(self, answer: Any, deadline: float) -> Any:
        """Return the result, or raise what kazoo does; `TimeoutError` at the deadline."""


class BlockingResults(Results):
    """On the caller's thread."""

    async def of(self, answer: Any, deadline: float) -> Any:
        try:
            return answer.get(timeout=max(0.0, deadline - clock.now()))
        except KazooTimeoutError:
            raise TimeoutError("no answer in time") from None


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
                if not loop.is_closed():
                    loop.call_soon_threadsafe(end)

            answer.rawlink(done)
            async with asyncio.timeout(max(0.0, deadline - clock.now())):
                await ended
        return answer.get_nowait()
