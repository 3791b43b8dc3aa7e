"""A timer that ends a little early, as uvloop's do, makes no outage of a timeout."""

from __future__ import annotations

from typing import Any

import pytest

from fencelock import AcquireTimeout, BackendUnavailable, Client
from fencelock.backends.base import Busy, Grant, Request
from fencelock.backends.memory import MemoryBackend, Store
from fencelock.runtime import clock

EARLY = 0.003
"""Seconds. In so little time this backend gives no answer."""


class EndsEarly(MemoryBackend):
    async def acquire(self, request: Request, *, wait: bool, deadline: float) -> Grant | Busy:
        if wait and deadline - clock.now() < EARLY:
            raise BackendUnavailable(backend="memory", detail="no answer in time")
        return await super().acquire(request, wait=wait, deadline=deadline)

    async def wait(self, request: Request, deadline: float) -> Any:
        return await super().wait(request, deadline - EARLY / 2)


def test_a_wait_that_ends_early_is_a_timeout_and_not_early() -> None:
    store = Store()
    with Client(EndsEarly(store)) as locks, locks.lock("x"):
        for _ in range(20):
            before = clock.now()
            with pytest.raises(AcquireTimeout):
                locks.lock("x").acquire(timeout=0.05)
            assert clock.now() - before >= 0.05
