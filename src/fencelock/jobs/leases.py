"""The lease of a job without a lock: a deadline in its row, by the database's clock, renewed by the worker.

It is counted here on the local clock, from before the statement was sent that set it: so it is over here
before it is over there. What `Lease` has without I/O, it has.
"""

from __future__ import annotations

from typing import Any

from fencelock.errors import LeaseLost
from fencelock.runtime import clock
from fencelock.runtime.base import Runtime

__all__ = ["RowLease"]


class RowLease:
    """A lease that a row is: `job.lease` of a worker without locks."""

    mode = "exclusive"

    def __init__(self, runtime: Runtime, *, name: str, token: int, ttl: float, since: float) -> None:
        self.name = name
        self.token = token
        self.ttl = ttl
        self._deadline = since + ttl
        self._reason: str | None = None
        self._event = runtime.event()
        self._is_async = runtime.flavour == "asyncio"

    def is_held(self) -> bool:
        """Whether the job is certainly held, by the local clock. No I/O."""
        return self._reason is None and clock.now() < self._deadline

    def remaining(self) -> float:
        """Seconds for which the lease is certain unless it is renewed; 0 when it is over. No I/O."""
        return max(0.0, self._deadline - clock.now()) if self._reason is None else 0.0

    def check(self) -> None:
        """Raise `LeaseLost` if the lease was lost. No I/O."""
        if not self.is_held():
            self.lose("it was not renewed in time")
            raise LeaseLost(name=self.name, token=self.token, reason=self._reason or "")

    @property
    def lost(self) -> AsyncLost | Lost:
        """An event that is set when the lease is lost: `lease.lost.wait(timeout)`."""
        return AsyncLost(self) if self._is_async else Lost(self)

    def renewed(self, since: float) -> None:
        """Count anew from `since`. A lease that was lost stays lost."""
        if self.is_held():
            self._deadline = max(self._deadline, since + self.ttl)

    def lose(self, reason: str) -> None:
        """Let it be over."""
        if self._reason is None:
            self._reason = reason
            self._event.set()

    def __repr__(self) -> str:
        return f"<RowLease {self.name!r} token={self.token} {'held' if self.is_held() else 'lost'}>"


class Lost:
    """The event of a loss. It comes at the deadline, whether or not anybody was there to notice."""

    def __init__(self, lease: RowLease) -> None:
        self._lease = lease

    def is_set(self) -> bool:
        return not self._lease.is_held()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, at most `timeout` seconds; say whether it is."""
        until = None if timeout is None else clock.now() + timeout
        while not self.is_set() and (until is None or clock.now() < until):
            self._lease._event.wait(_slice(self._lease, until))
        return self.is_set()


class AsyncLost(Lost):
    """The same, for asyncio."""

    async def wait(self, timeout: float | None = None) -> bool:  # type: ignore[override]
        until = None if timeout is None else clock.now() + timeout
        while not self.is_set() and (until is None or clock.now() < until):
            await self._lease._event.wait(_slice(self._lease, until))
        return self.is_set()


def _slice(lease: Any, until: float | None) -> float:
    left = lease.remaining() + 0.001
    return float(left if until is None else min(left, max(until - clock.now(), 0.0)))
