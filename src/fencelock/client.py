"""`Client`: the blocking front door. Thin on purpose: what it does is done in `fencelock.core`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

from fencelock.connect import ClientBase, in_order
from fencelock.core.hold import Terms
from fencelock.core.ports import STEP_LIMIT, Backend
from fencelock.core.queue import EXCLUSIVE, PERMIT, SHARED, UNLIMITED
from fencelock.core.session import Session
from fencelock.durations import Duration
from fencelock.election import Election
from fencelock.guarantees import Guarantees
from fencelock.lease import Lease
from fencelock.lock import Lock, RWLock, of_kind
from fencelock.multi import MultiLock
from fencelock.names import check_limit, check_name
from fencelock.runtime.blocking import BlockingRuntime, run
from fencelock.state import Entry, LockState

__all__ = ["Client"]

OnLost = Callable[[Lease], object]


class Client(ClientBase):
    """Locks for blocking code. Any number of threads may share one client.

    Example:
        >>> with Client("memory://") as locks:
        ...     with locks.lock("invoice:42", ttl=30) as lease:
        ...         lease.is_held()
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
        super().__init__(BlockingRuntime(), target, namespace, client_name)
        self._give_back_when_gone(_close)

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
    ) -> Lock:
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
    ) -> RWLock:
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
        return RWLock(self._lock(read), self._lock(write))

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
    ) -> Lock:
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
    ) -> MultiLock:
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
        return MultiLock(self, self._session, parts)

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
    ) -> Election:
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
        return Election(of_kind(candidate, "leader"))

    def inspect(self, name: str) -> LockState:
        """Return who holds a lock and who waits for it."""
        session = self._ready("inspect")
        return run(session.backend.inspect(check_name(name), deadline=session.runtime.now() + STEP_LIMIT))

    def list(self, prefix: str = "") -> list[LockState]:
        """Return every lock that is held or waited for and whose name begins with `prefix`."""
        session = self._ready("list")
        if prefix != "":
            check_name(prefix, "prefix")
        return [*run(session.backend.list(prefix, deadline=session.runtime.now() + STEP_LIMIT))]

    def force_release(self, name: str, *, owner: str | None = None) -> tuple[Entry, ...]:
        """Break a lock: its holders, or the one holder or waiter `owner`, are out. Returns who they were.

        A holder learns of it as a loss, at its next renewal at the latest. It may still be at
        work until then: only a fencing token protects the resource from it.
        """
        session = self._ready("force_release")
        return tuple(run(session.force_release(check_name(name), owner)))

    def close(self) -> None:
        """Release what is still held and close the backend. Idempotent."""
        self._finalizer.detach()
        _close(self._session)

    def _lock(self, terms: Terms) -> Lock:
        return Lock(self, self._session, terms)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _close(session: Session) -> None:
    run(session.close())
