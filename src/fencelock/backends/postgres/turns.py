"""Waiting for one's turn: at the gate, by listening, or by looking, whichever the request can have.

Whatever wakes it, a request believes only what its row says, and only when its own place in the queue is on
disk: see `schema.sql`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from fencelock.backends.postgres.gate import Gate, Turn
from fencelock.backends.postgres.listening import NoPushes, TaskNotifications, ThreadNotifications
from fencelock.backends.postgres.records import Waiting
from fencelock.backends.postgres.statements import Statements
from fencelock.runtime import clock
from fencelock.runtime.base import Runtime, Signal

__all__ = ["Me", "Turns"]

log = logging.getLogger("fencelock")

POLL_FIRST, POLL_SLACK, POLL_LAST = 0.002, 0.05, 0.25

Me = tuple[bytes, bytes, bytes]
"""A waiting request: its place, token and owner."""


class Turns:
    """How the waiters of one client learn that they were handed the lock."""

    def __init__(
        self,
        call: Callable[..., Awaitable[Any]],
        statements: Statements,
        gate: Gate,
        listener: ThreadNotifications | TaskNotifications,
        runtime: Runtime,
        label: str,
    ) -> None:
        self._call = call
        self._statements = statements
        self._gate = gate
        self._listener = listener
        self._runtime = runtime
        self._label = label
        self.has_pushes = True
        """Whether NOTIFY comes through."""
        self.ungated: set[str] = set()
        """Waiters that listen: the gate is of no use to them."""
        self._polling: dict[Me, Signal] = {}
        self._is_over = False

    def wake(self) -> None:
        """The client is closing: end every wait, and those that are still to come."""
        self._is_over = True
        self._gate.wake()
        self._listener.wake()
        for signal in list(self._polling.values()):
            signal.notify()

    async def come(self, me: Me, waiting: Waiting, deadline: float) -> bool:
        """Wait until the request was handed the lock; `False` says nothing."""
        wait = self._wait_at_the_gate if waiting.is_gated else self._wait_for_a_push
        return await wait(me, waiting.token, deadline)

    async def _settle(self, me: Me, deadline: float) -> bool | None:
        """Have the request's place in the queue on disk; return whether it was handed the lock.

        It believes that only then: see schema.sql. `None`: it does not stand in the queue any more.
        """
        result, _ = await self._call(self._statements.settle, me, deadline)
        held = result.get_value(0, 0)
        return None if held is None else bool(held == b"t")

    async def _wait_at_the_gate(self, me: Me, token: int, deadline: float) -> bool:
        owner = me[2].decode()
        turn = Turn.AGAIN if self._gate.owner == owner else Turn.USELESS
        while turn is Turn.AGAIN and clock.now() < deadline:
            turn = await self._gate.wait(me, deadline)
        if turn is Turn.USELESS:
            self.ungated.add(owner)  # its next step says where it listens
        if turn is Turn.UNSETTLED:
            return bool(await self._settle(me, deadline))
        return turn is Turn.COME

    async def _wait_for_a_push(self, me: Me, token: int, deadline: float) -> bool:
        held = await self._settle(me, deadline)
        if held is not False:
            return bool(held)
        while self.has_pushes and not self._is_over and clock.now() < deadline:
            try:
                await self._listener.wait(me[2].decode(), token, deadline)
            except NoPushes:
                if self.has_pushes:
                    self.has_pushes = False
                    log.warning("%s is a pooler in transaction mode, so waiters poll", self._label)
                break
            if self._is_over:
                break
            # A push is a bell: it may be an old one, from before a crash of the server.
            held, _ = await self._look(me, deadline)
            if held is not False:
                return bool(held)
        return await self._poll(me, deadline)

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
