"""Locks that are broken on purpose: whoever does not catch these has no teeth."""

from __future__ import annotations

import time
from typing import Literal

from chaos.subject import Ask, Traits
from fencelock import AcquireTimeout, Client
from fencelock.testing import boottime

__all__ = ["no_lock", "wall_clock"]


COARSE = 50_000_000


class Claim:
    """A lease that nobody else knows of."""

    def __init__(self, token: int, ttl: float) -> None:
        self.token = token
        self.owner = str(token)
        self._until = boottime() + ttl

    def remaining(self) -> float:
        return max(0.0, self._until - boottime())

    def is_held(self) -> bool:
        return self.remaining() > 0

    def release(self) -> None:
        self._until = 0.0


class NoLock:
    """Everybody gets everything, at once, and a token that is no more than a coarse time of day."""

    flavour: Literal["blocking", "asyncio"] = "blocking"
    traits = Traits(tokens=True)

    def acquire(self, ask: Ask) -> Claim:
        return Claim(time.time_ns() // COARSE, ask.ttl)

    def close(self) -> None:
        pass


class WallLease:
    """A real lease that believes in the wall clock, and in nothing else."""

    def __init__(self, lease: object, ttl: float) -> None:
        self._lease = lease
        self.token: int = lease.token  # type: ignore[attr-defined]
        self.owner: str = lease.owner  # type: ignore[attr-defined]
        self._until = time.time() + ttl

    def remaining(self) -> float:
        return max(0.0, self._until - time.time())

    def is_held(self) -> bool:
        return self.remaining() > 0

    def release(self) -> None:
        self._lease.release()  # type: ignore[attr-defined]


class WallClock:
    """Locks that are never renewed, and whose holder counts on the time of day."""

    flavour: Literal["blocking", "asyncio"] = "blocking"
    traits = Traits(tokens=True)

    def __init__(self, url: str, client: str) -> None:
        self._locks = Client(url, client_name=client)

    def acquire(self, ask: Ask) -> WallLease | None:
        try:
            lease = self._locks.lock(ask.name, ttl=ask.ttl, renew=False).acquire(timeout=ask.timeout)
        except AcquireTimeout:
            return None
        return WallLease(lease, ask.ttl)

    def close(self) -> None:
        self._locks.close()


def no_lock(url: str, client: str) -> NoLock:
    """Make a subject that does not lock at all."""
    return NoLock()


def wall_clock(url: str, client: str) -> WallClock:
    """Make a subject that believes in the wall clock."""
    return WallClock(url, client)
