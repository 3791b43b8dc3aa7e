"""Several servers of one backend: ask one after the other, until one answers or the deadline comes.

For questions that may be asked again: what they do, they do once, by an id or a version that they carry.
Where that is not so, the second part of the answer says that an earlier sending may have done it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from fencelock.errors import BackendUnavailable
from fencelock.net.failures import Disconnected, Failures
from fencelock.runtime import clock
from fencelock.runtime.base import Runtime

__all__ = ["Servers"]

ATTEMPT = 2.0
"""Seconds that one server has to answer."""
PAUSE = 0.05
"""Seconds between two rounds of all servers."""
T = TypeVar("T")


class Servers:
    """The servers of a backend, and which of them is asked now."""

    def __init__(self, runtime: Runtime, failures: Failures, endpoints: Sequence[str], *, tls: bool) -> None:
        self.label = ",".join(endpoints)
        self._endpoints = endpoints
        self._runtime = runtime
        self._failures = failures
        self._tls = tls
        self._current = 0
        self._is_closed = False

    @property
    def current(self) -> str:
        """The one that is asked now."""
        return self._endpoints[self._current]

    async def ask(self, attempt: Callable[[str, float], Awaitable[T]], deadline: float) -> tuple[T, bool]:
        """Return the answer of a server, and whether it was asked for more than once.

        `attempt(endpoint, until)` raises `OSError`, `Disconnected`, or a `BackendUnavailable` of its own. One
        that is not transient ends it all.
        """
        failures: list[BackendUnavailable] = []
        while True:
            number, now = self._current, clock.now()
            if self._is_closed:
                raise self._failures.closed()
            if now >= deadline:
                raise failures[0] if failures else self._failures.no_answer(self.label)
            endpoint = self._endpoints[number]
            try:
                return await attempt(endpoint, min(deadline, now + ATTEMPT)), bool(failures)
            except (Disconnected, OSError) as error:
                failure = self._failures.unreachable(endpoint, error, tls=self._tls)
                failure.__cause__ = error
            except BackendUnavailable as error:
                failure = error
            if not failure.transient:
                raise failure
            failures.append(failure)
            self._move_on(number)
            if len(failures) % len(self._endpoints) == 0:
                await self._runtime.sleep(min(PAUSE, max(0.0, deadline - clock.now())))

    def _move_on(self, number: int) -> None:
        """Ask the next one from now on, unless another caller has moved on already."""
        if self._current == number:
            self._current = (number + 1) % len(self._endpoints)

    def close(self) -> None:
        """Ask no more."""
        self._is_closed = True
