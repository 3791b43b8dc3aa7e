"""`AsyncClient`: the asyncio front door. Thin on purpose: what it does is done in `fencelock.core`."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any, Self

from fencelock.connect import ClientBase, in_order
from fencelock.core.hold import Terms
from fencelock.core.ports import STEP_LIMIT, Backend
from fencelock.core.queue import EXCLUSIVE, PERMIT, SHARED, UNLIMITED
from fencelock.core.session import Session
from fencelock.durations import Duration
from fencelock.election import AsyncElection
from fencelock.errors import ConfigurationError
from fencelock.guarantees import Guarantees
from fencelock.lease import AsyncLease
from fencelock.lock import AsyncLock, AsyncRWLock, of_kind
from fencelock.multi import AsyncMultiLock
from fencelock.names import check_limit, check_name
from fencelock.runtime.asyncio import AsyncioRuntime, running_loop
from fencelock.state import Entry, LockState

__all__ = ["AsyncClient"]

OnLost = Callable[[AsyncLease], Awaitable[None] | None]


class AsyncClient(ClientBase):
    """Locks for asyncio code. It belongs to the loop it was first used on.

    Example:
        >>> import asyncio
        >>> async def main():
        ...     async with AsyncClient("memory://") as locks:
        ...         async with locks.lock("invoice:42", ttl=30) as lease:
        ...             return lease.is_held()
        >>> asyncio.run(main())
        True
    """

    def __init__(
        self,
        target: str | Backend | None = None,
        *,
        namespace: str | None = None,
        client_name: str | None = None,
    ) -> None:
        """Connect to `target`: a URL, a backend, or by default `$FENCELOCK_URL` or an embedded file.

        Nothing is opened before the first use.
        """
        self._runtime = AsyncioRuntime()
        super().__init__(self._runtime, target, namespace, client_name)
        self._give_back_when_gone(_forget)

    @property
    def guarantees(self) -> Guarantees:
        """What this backend promises."""
        return self._session.backend.guarantees

    def lock(
        self,
        name: str,
        *,
        ttl: Duration = 30,
        timeout: Duration | None = None,
        renew: bool = True,
        max_hold: Duration | None = None,
        reentrant: bool = False,
        metadata: Any = None,
        on_lost: OnLost | None = None,
    ) -> AsyncLock:
        """Return a lock that one holder has at a time, first come first served."""
        terms = self._terms(
            name,
            EXCLUSIVE,
            1,
            ttl=ttl,
            timeout=timeout,
            renew=renew,
            max_hold=max_hold,
            reentrant=reentrant,
            metadata=metadata,
            on_lost=on_lost,
        )
        return self._lock(terms)

    def rwlock(
        self,
        name: str,
        *,
        ttl: Duration = 30,
        timeout: Duration | None = None,
        renew: bool = True,
        max_hold: Duration | None = None,
        reentrant: bool = False,
        metadata: Any = None,
        on_lost: OnLost | None = None,
    ) -> AsyncRWLock:
        """Return a lock for many readers or one writer: `.read()` and `.write()`."""
        read = self._terms(
            name,
            SHARED,
            UNLIMITED,
            ttl=ttl,
            timeout=timeout,
            renew=renew,
            max_hold=max_hold,
            reentrant=reentrant,
            metadata=metadata,
            on_lost=on_lost,
        )
        write = self._terms(
            name,
            EXCLUSIVE,
            1,
            ttl=ttl,
            timeout=timeout,
            renew=renew,
            max_hold=max_hold,
            reentrant=reentrant,
            metadata=metadata,
            on_lost=on_lost,
        )
        return AsyncRWLock(self._lock(read), self._lock(write))

    def semaphore(
        self,
        name: str,
        limit: int,
        *,
        ttl: Duration = 30,
        timeout: Duration | None = None,
        renew: bool = True,
        max_hold: Duration | None = None,
        reentrant: bool = False,
        metadata: Any = None,
        on_lost: OnLost | None = None,
    ) -> AsyncLock:
        """Return a lock that `limit` holders have at a time. All must give the same limit."""
        terms = self._terms(
            name,
            PERMIT,
            check_limit(limit),
            ttl=ttl,
            timeout=timeout,
            renew=renew,
            max_hold=max_hold,
            reentrant=reentrant,
            metadata=metadata,
            on_lost=on_lost,
        )
        return self._lock(terms)

    def multi(
        self,
        names: Iterable[str],
        *,
        ttl: Duration = 30,
        timeout: Duration | None = None,
        renew: bool = True,
        max_hold: Duration | None = None,
        reentrant: bool = False,
        metadata: Any = None,
        on_lost: OnLost | None = None,
    ) -> AsyncMultiLock:
        """Return one lock over several names: all of them or none, within one timeout."""
        parts = [
            self.lock(
                name,
                ttl=ttl,
                timeout=timeout,
                renew=renew,
                max_hold=max_hold,
                reentrant=reentrant,
                metadata=metadata,
                on_lost=on_lost,
            )
            for name in in_order(names)
        ]
        return AsyncMultiLock(self, self._session, parts)

    def election(
        self,
        name: str,
        *,
        ttl: Duration = 30,
        timeout: Duration | None = None,
        renew: bool = True,
        max_hold: Duration | None = None,
        reentrant: bool = False,
        metadata: Any = None,
        on_lost: OnLost | None = None,
    ) -> AsyncElection:
        """Return an election: `lead()`, `run(fn)`, `leader()`, `observe()`, `resign()`."""
        candidate = self.lock(
            name,
            ttl=ttl,
            timeout=timeout,
            renew=renew,
            max_hold=max_hold,
            reentrant=reentrant,
            metadata=metadata,
            on_lost=on_lost,
        )
        return AsyncElection(of_kind(candidate, "leader"))

    async def inspect(self, name: str) -> LockState:
        """Return who holds a lock and who waits for it."""
        session = self._ready("inspect")
        return await session.backend.inspect(check_name(name), deadline=session.runtime.now() + STEP_LIMIT)

    async def list(self, prefix: str = "") -> list[LockState]:
        """Return every lock that is held or waited for and whose name begins with `prefix`."""
        session = self._ready("list")
        if prefix != "":
            check_name(prefix, "prefix")
        return [*(await session.backend.list(prefix, deadline=session.runtime.now() + STEP_LIMIT))]

    async def force_release(self, name: str, *, owner: str | None = None) -> tuple[Entry, ...]:
        """Break a lock: its holders, or the one holder or waiter `owner`, are out. Returns who they were.

        A holder learns of it as a loss, at its next renewal at the latest. It may still be at
        work until then: only a fencing token protects the resource from it.
        """
        session = self._ready("force_release")
        return tuple(await session.force_release(check_name(name), owner))

    async def close(self) -> None:
        """Release what is still held and close the backend. Idempotent."""
        if self._runtime.is_elsewhere() and not self._session.closed:
            if not self._runtime.goes_on():
                self._finalizer.detach()
                self._session.forget()  # what can be released without that loop
            raise ConfigurationError(
                "this AsyncClient belongs to another event loop: close it there, before that loop ends"
            )
        self._finalizer.detach()
        try:
            await self._session.close()
        finally:
            self._runtime.close()

    def _lock(self, terms: Terms) -> AsyncLock:
        return AsyncLock(self, self._session, terms)

    async def __aenter__(self) -> Self:
        running_loop()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _forget(session: Session) -> None:
    if session.holds and not session.closed:
        warnings.warn("an AsyncClient that holds locks was not closed", ResourceWarning, stacklevel=2)
    session.forget()
