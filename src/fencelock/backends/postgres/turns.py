"""Waiting for one's turn: by listening for NOTIFY, or by polling where a pooler does not let it through.

A waiter has its row put on disk before it believes anything. From then on a push of its token is the grant,
even if the server crashes after sending it: no request can pass that row (see `schema.sql`).

This holds while the client knows every token that its request ever had. After a step without a reply it
does not: a crash may lose the row of that step, the same token may be drawn again, and a push may still
belong to the lost row. Then the waiter looks at its row.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from fencelock.backends.postgres.listening import NoPushes, TaskNotifications, ThreadNotifications
from fencelock.backends.postgres.records import Waiting
from fencelock.backends.postgres.statements import Statements
from fencelock.runtime import clock
from fencelock.runtime.base import Runtime, Signal

__all__ = ["Me", "Turns"]

log = logging.getLogger("fencelock")

POLL_FIRST, POLL_SLACK, POLL_LAST = 0.002, 0.05, 0.25
QUIET = 1.0
"""Seconds without a wait after which a client stops listening."""

Me = tuple[bytes, bytes, bytes]
"""A waiting request: its place, token and owner."""


class Turns:
    """How the waiters of one client learn that they were handed the lock."""

    def __init__(
        self,
        call: Callable[..., Awaitable[Any]],
        statements: Statements,
        listener: ThreadNotifications | TaskNotifications,
        runtime: Runtime,
        label: str,
    ) -> None:
        self._call = call
        self._statements = statements
        self._listener = listener
        self._runtime = runtime
        self._label = label
        self.has_pushes = True
        """Whether NOTIFY comes through."""
        self._waited = clock.now()
        """When a request of this client last waited."""
        self._polling: dict[Me, Signal] = {}
        self._is_over = False

    def wake(self) -> None:
        """The client is closing: end every wait, and those that are still to come."""
        self._is_over = True
        self._listener.wake()
        for signal in list(self._polling.values()):
            signal.notify()

    async def rest(self, deadline: float) -> None:
        """Stop listening if no request waits any more: NOTIFY wakes every session that listens.

        Not after each wait: where a lock is busy the next wait comes soon, and would begin with LISTEN.
        """
        if self._listener.is_idle() and clock.now() >= self._waited + QUIET:
            await self._listener.rest(deadline)

    async def come(self, me: Me, waiting: Waiting, deadline: float) -> bool:
        """Wait until the request was handed the lock; `False` says nothing."""
        try:
            return await self._come(me, waiting, deadline)
        finally:
            self._waited = clock.now()

    async def _come(self, me: Me, waiting: Waiting, deadline: float) -> bool:
        held = await self._settle(me, deadline)
        if held is not False:
            return bool(held)
        while self.has_pushes and not self._is_over and clock.now() < deadline:
            try:
                pushed = await self._listener.wait(me[2].decode(), waiting.token, deadline)
            except NoPushes:
                if self.has_pushes:
                    self.has_pushes = False
                    log.warning("%s is a pooler in transaction mode, so waiters poll", self._label)
                break
            if pushed and waiting.is_sure:
                return True
            if self._is_over:
                break
            # Pushes may have been lost while nobody listened; or this one may belong to a lost row.
            held, _ = await self._look(me, deadline)
            if held is not False:
                return bool(held)
        return await self._poll(me, deadline)

    async def _settle(self, me: Me, deadline: float) -> bool | None:
        """Have the request's place in the queue on disk; return whether it was handed the lock.

        It believes that only then: see schema.sql. `None`: it does not stand in the queue any more.
        """
        result, _ = await self._call(self._statements.settle, me, deadline)
        held = result.get_value(0, 0)
        return None if held is None else bool(held == b"t")

    async def _poll(self, me: Me, deadline: float) -> bool:
        """Look now and then, more often near the head of the queue, until the request holds or is gone."""
        runtime = self._runtime
        began, before = runtime.now(), 1
        signal = self._polling[me] = runtime.signal()
        try:
            while not self._is_over and (left := deadline - runtime.now()) > 0:
                pause = max(POLL_FIRST * before, POLL_SLACK * (runtime.now() - began))
                await signal.wait(min(left, POLL_LAST, pause) * (0.75 + 0.5 * runtime.jitter()))
                held, before = await self._look(me, deadline)
                if held is not False:
                    return bool(held)
            return False
        finally:
            del self._polling[me]

    async def _look(self, me: Me, deadline: float) -> tuple[bool | None, int]:
        """Return whether the request was handed the lock (`None`: it is gone), and how many are before it."""
        result, _ = await self._call(self._statements.look, me, deadline)
        if result.ntuples == 0:
            return None, 0
        return result.get_value(0, 0) == b"t", int(result.get_value(0, 1))
