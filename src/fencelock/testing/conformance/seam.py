"""Faults at the seam between a client and its backend: delays, lost requests, lost replies.

`Faults(backend)` puts itself in front of the steps of one backend object. The client above
and the backend below are the real ones. A fault is armed for the next so many calls of one
step, or until it is taken away.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

from fencelock.core.ports import Backend
from fencelock.errors import BackendUnavailable

__all__ = ["STEPS", "Faults"]

STEPS = ("acquire", "wait", "renew", "release", "abandon", "inspect", "list", "force_release")
LOOK_EVERY = 0.01
LONGEST = 30.0


class Fault:
    """What happens to the next calls of one step."""

    def __init__(self, *, before: bool, after: bool, delay: float, calls: float) -> None:
        self.before = before
        self.after = after
        self.delay = delay
        self.calls = calls


class Faults:
    """The switchboard of one backend object."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.counts = dict.fromkeys(STEPS, 0)
        """How often each step was called."""
        self._faults: dict[str, Fault] = {}
        self._stuck: set[str] = set()
        for step in STEPS:
            setattr(backend, step, self._guarded(step, getattr(backend, step)))

    def lose_requests(self, *steps: str, calls: float = math.inf) -> None:
        """The next calls do not arrive: `BackendUnavailable`, and nothing has happened."""
        self._arm(steps, Fault(before=True, after=False, delay=0.0, calls=calls))

    def lose_replies(self, *steps: str, calls: float = math.inf) -> None:
        """The next calls are done, and their answers lost: `BackendUnavailable`."""
        self._arm(steps, Fault(before=False, after=True, delay=0.0, calls=calls))

    def delay_replies(self, *steps: str, seconds: float, calls: float = math.inf) -> None:
        """The next calls are done, and their answers come late."""
        self._arm(steps, Fault(before=False, after=False, delay=seconds, calls=calls))

    def hang(self, *steps: str) -> None:
        """Calls of these steps do not return until `heal`."""
        self._stuck |= set(steps)

    def cut(self) -> None:
        """Nothing arrives any more: the client may as well be dead."""
        self.lose_requests(*STEPS)

    def heal(self) -> None:
        """All is well again."""
        self._faults.clear()
        self._stuck.clear()

    def _arm(self, steps: tuple[str, ...], fault: Fault) -> None:
        for step in steps:
            self._faults[step] = fault

    def _guarded(self, step: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def guarded(*args: Any, **options: Any) -> Any:
            self.counts[step] += 1
            fault = self._take(step)
            await self._wait_while_stuck(step)
            if fault is not None and fault.before:
                raise self._unavailable(step, "request")
            answer = await call(*args, **options)
            if fault is not None and fault.delay:
                await self.backend.runtime.sleep(fault.delay)
            if fault is not None and fault.after:
                raise self._unavailable(step, "reply")
            return answer

        return guarded

    def _take(self, step: str) -> Fault | None:
        fault = self._faults.get(step)
        if fault is None or fault.calls <= 0:
            return None
        fault.calls -= 1
        return fault

    async def _wait_while_stuck(self, step: str) -> None:
        runtime = self.backend.runtime
        give_up = runtime.now() + LONGEST
        while step in self._stuck and runtime.now() < give_up:
            await runtime.sleep(LOOK_EVERY)

    def _unavailable(self, step: str, what: str) -> BackendUnavailable:
        return BackendUnavailable(backend=self.backend.name, detail=f"the {what} of {step} was lost")
