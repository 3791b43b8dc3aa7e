"""Several locks at once: all of them or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fencelock.core.hold import Hold, Terms
from fencelock.core.multi import acquire_all
from fencelock.durations import Duration
from fencelock.errors import BackendError, LeaseLost
from fencelock.lease import AsyncLease, AsyncLeaving, Lease, LeaseBase, Leaving
from fencelock.lock import AsyncioLock, AsyncLock, BlockingLock, Lock

if TYPE_CHECKING:
    import threading

    from fencelock.core.session import Session
    from fencelock.runtime.asyncio import AsyncEvent

__all__ = ["AsyncMultiLease", "AsyncMultiLock", "MultiLease", "MultiLock"]

M = TypeVar("M", bound=LeaseBase)


class MultiLeaseBase(Generic[M]):
    """The leases of several locks; lost as soon as one of them is."""

    def __init__(self, session: Session, leases: Sequence[M]) -> None:
        self._session = session
        self.leases = tuple(leases)
        event = session.runtime.event()
        for lease in self.leases:
            session.holds.share_event(lease._hold, event)
        self._event = event

    @property
    def names(self) -> tuple[str, ...]:
        """The locks' names, in the order in which they were taken."""
        return tuple(lease.name for lease in self.leases)

    @property
    def tokens(self) -> dict[str, int]:
        """The fencing token of each lock, by name."""
        return {lease.name: lease.token for lease in self.leases}

    def is_held(self) -> bool:
        """Whether all locks are certainly held, by the local clock. No I/O."""
        return all(lease.is_held() for lease in self.leases)

    def remaining(self) -> float:
        """Seconds for which all leases are certain unless they are renewed. No I/O."""
        return min(lease.remaining() for lease in self.leases)

    def check(self) -> None:
        """Raise `LeaseLost` for the first lease that was lost. No I/O."""
        for lease in self.leases:
            lease.check()

    async def _release(self) -> bool:
        held, failure = True, None
        for lease in reversed(self.leases):  # all of them, whatever the first one says
            try:
                held = await lease._release() and held
            except BackendError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return held

    def _hand_out(self) -> None:
        for lease in self.leases:
            lease._hand_out()

    def _take_in(self) -> None:
        for lease in self.leases:
            lease._take_in()

    def _drop(self, *, by_hand: bool = False) -> None:
        for lease in self.leases:
            lease._drop(by_hand=by_hand)

    def _lost(self) -> LeaseLost | None:
        return next((lost for lease in self.leases if (lost := lease._lost())), None)

    def __getitem__(self, name: str) -> M:
        for lease in self.leases:
            if lease.name == name:
                return lease
        raise KeyError(name)

    def __iter__(self) -> Iterator[M]:
        return iter(self.leases)

    def __len__(self) -> int:
        return len(self.leases)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(self.names)}>"


class MultiLease(MultiLeaseBase[Lease], Leaving):
    """The leases of several locks, in blocking code."""

    @property
    def lost(self) -> threading.Event:
        """An event that is set when any of the leases is lost."""
        event: threading.Event = self._event
        return event

    def verify(self) -> bool:
        """Ask the backend whether all leases are held."""
        return all(lease.verify() for lease in self.leases)

    def extend(self, ttl: Duration) -> None:
        """Let all leases live `ttl` seconds from now."""
        for lease in self.leases:
            lease.extend(ttl)


class AsyncMultiLease(MultiLeaseBase[AsyncLease], AsyncLeaving):
    """The leases of several locks, under asyncio."""

    @property
    def lost(self) -> AsyncEvent:
        """An event that is set when any of the leases is lost."""
        event: AsyncEvent = self._event
        return event

    async def verify(self) -> bool:
        """Ask the backend whether all leases are held."""
        return all([await lease.verify() for lease in self.leases])

    async def extend(self, ttl: Duration) -> None:
        """Let all leases live `ttl` seconds from now."""
        for lease in self.leases:
            await lease.extend(ttl)

    def _current(self) -> object:
        return self._session.runtime.current()

    def _arm(self, task: Any) -> None:
        for lease in self.leases:
            lease._arm(task)

    def _disarm(self, error: BaseException | None) -> bool:
        # Each takes back its own cancellation; the last one to do so sees the count it began with.
        ours = False
        for lease in self.leases:  # all of them, whatever the first one says
            ours = lease._disarm(error) or ours
        return ours


class MultiLock(BlockingLock[MultiLease]):
    """Several locks as one, for blocking code: all are acquired, or none is held."""

    def __init__(self, client: object, session: Session, parts: Sequence[Lock]) -> None:
        super().__init__(client, session, parts[0].terms)
        self._parts = tuple(parts)

    @property
    def names(self) -> tuple[str, ...]:
        """The locks' names, in the order in which they are taken."""
        return tuple(part.name for part in self._parts)

    async def _wait(self, timeout: float) -> MultiLease:
        return MultiLease(self.session, await acquire_all(self.session, _wanted(self._parts), timeout))


class AsyncMultiLock(AsyncioLock[AsyncMultiLease]):
    """Several locks as one, for asyncio: all are acquired, or none is held."""

    def __init__(self, client: object, session: Session, parts: Sequence[AsyncLock]) -> None:
        super().__init__(client, session, parts[0].terms)
        self._parts = tuple(parts)

    @property
    def names(self) -> tuple[str, ...]:
        """The locks' names, in the order in which they are taken."""
        return tuple(part.name for part in self._parts)

    async def _wait(self, timeout: float) -> AsyncMultiLease:
        return AsyncMultiLease(self.session, await acquire_all(self.session, _wanted(self._parts), timeout))


def _wanted(parts: Sequence[Any]) -> list[tuple[Terms, Callable[[Hold], Any]]]:
    return [(part.terms, part._lease) for part in parts]
