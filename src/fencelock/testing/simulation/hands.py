"""How an actor uses the public objects: the same verbs for both flavours.

Asyncio objects are used as a program would use them. The blocking ones run each operation to
its end inside one call, which a simulated thread cannot do without stopping the world; so
here the coroutines they run are awaited instead, and nothing else is different.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from fencelock.core.hold import Terms
from fencelock.core.multi import acquire_all
from fencelock.core.renew import extend, verify
from fencelock.core.session import Session
from fencelock.errors import BackendError
from fencelock.lease import raise_loss
from fencelock.lock import AsyncLock, Lock
from fencelock.runtime.simulated.world import Flavour

__all__ = ["AsyncHands", "BlockingHands", "Hands", "hands_for"]


class Hands(Protocol):
    """What an actor does with locks and leases."""

    def lock(self, session: Session, terms: Terms) -> Any: ...
    async def acquire(self, lock: Any) -> Any: ...
    async def enter(self, lock: Any) -> Any: ...
    async def leave(self, lease: Any, error: BaseException | None) -> None: ...
    async def release(self, lease: Any) -> bool: ...
    async def verify(self, lease: Any) -> bool: ...
    async def extend(self, lease: Any, ttl: float) -> None: ...
    async def acquire_all(self, session: Session, locks: Sequence[Any], timeout: float) -> list[Any]: ...


class AsyncHands:
    """As a program would."""

    def lock(self, session: Session, terms: Terms) -> AsyncLock:
        return AsyncLock(None, session, terms)

    async def acquire(self, lock: AsyncLock) -> Any:
        return await lock.acquire()

    async def enter(self, lock: AsyncLock) -> Any:
        return await lock.acquire().__aenter__()

    async def leave(self, lease: Any, error: BaseException | None) -> None:
        await lease.__aexit__(type(error) if error else None, error, None)

    async def release(self, lease: Any) -> bool:
        return bool(await lease.release())

    async def verify(self, lease: Any) -> bool:
        return bool(await lease.verify())

    async def extend(self, lease: Any, ttl: float) -> None:
        await lease.extend(ttl)

    async def acquire_all(self, session: Session, locks: Sequence[Any], timeout: float) -> list[Any]:
        return await acquire_all(session, [(lock.terms, lock._lease) for lock in locks], timeout)


class BlockingHands(AsyncHands):
    """Awaits what the blocking methods run."""

    def lock(self, session: Session, terms: Terms) -> Any:
        return Lock(None, session, terms)

    async def acquire(self, lock: Any) -> Any:
        lease = await lock._wait(lock.terms.timeout)
        lease._hand_out()
        return lease

    async def enter(self, lock: Any) -> Any:
        return await lock._wait(lock.terms.timeout)

    async def leave(self, lease: Any, error: BaseException | None) -> None:
        try:
            await self.release(lease)
        except BackendError:
            if error is None:
                raise
        lost = lease._lost()
        if lost is not None:
            raise_loss(lost, error)

    async def release(self, lease: Any) -> bool:
        return bool(await lease._release())

    async def verify(self, lease: Any) -> bool:
        return not lease._over and await verify(lease._lock.session, lease._hold)

    async def extend(self, lease: Any, ttl: float) -> None:
        await extend(lease._lock.session, lease._hold, lease._lock._check_ttl(ttl))


def hands_for(flavour: Flavour) -> Hands:
    """Return the hands of a flavour."""
    return AsyncHands() if flavour == "asyncio" else BlockingHands()
