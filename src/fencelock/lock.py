"""Lock objects: what to acquire, and how. They hold no state of an acquisition.

Any number of threads and tasks may share one `Lock`; each acquisition is its own lease. A
`with` statement has to find its lease again at the end, so a lock remembers, for each thread
or task that is inside such a block, the leases it entered with.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar

from fencelock.core.acquire import acquire
from fencelock.core.hold import Hold, Terms
from fencelock.durations import Duration, duration, optional_duration
from fencelock.errors import AcquireTimeout, ConfigurationError
from fencelock.lease import AsyncLease, Lease, LeaseBase
from fencelock.names import marked
from fencelock.runtime.blocking import run

if TYPE_CHECKING:
    from fencelock.core.session import Session

__all__ = ["AsyncLock", "AsyncRWLock", "Lock", "LockBase", "RWLock", "Unset", "of_kind"]

P = ParamSpec("P")
R = TypeVar("R")
L = TypeVar("L", bound="LockBase")
T = TypeVar("T")
A = TypeVar("A", bound="Armed")


class Armed(Protocol):
    """A lease whose task is cancelled when it is lost."""

    def _arm(self, task: Any) -> None: ...


class Unset:
    """The type of a default that means "as the lock says"."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset()


class LockBase:
    """What both flavours of a lock have in common."""

    def __init__(self, client: object, session: Session, terms: Terms) -> None:
        self._client = client  # a client that nobody has any more is closed: not while a lock lives
        self.session = session
        self.terms = terms
        self._entered: dict[object, list[Any]] = {}

    @property
    def name(self) -> str:
        """The lock's name."""
        return self.terms.name

    def _check_ttl(self, ttl: Duration) -> float:
        """Return `ttl` in seconds if the backend can keep it."""
        return checked_ttl(ttl, self.session)

    def _timeout(self, timeout: Duration | Unset | None) -> float:
        return self.terms.timeout if isinstance(timeout, Unset) else optional_duration(timeout, "timeout")

    def _enter(self, current: object, lease: Any) -> None:
        if current in self._entered:
            self._entered[current].append(lease)
        else:
            self._entered[current] = [lease]

    def _exit(self) -> Any:
        current = self.session.runtime.current()
        if current not in self._entered and len(self._entered) == 1:
            # A generator may enter its block on one thread and leave it on another, as web
            # frameworks do with dependencies. Only one can be meant: nobody else is inside.
            current = next(iter(self._entered))
        leases = self._entered[current]
        lease = leases.pop()
        if not leases:
            del self._entered[current]
        return lease

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.terms.name!r} {self.terms.mode}>"


def of_kind(lock: L, kind: str) -> L:
    """Say what a new lock is for, to those who look: `inspect` and `list` show it as `kind`."""
    lock.terms.metadata = marked(kind, lock.terms.metadata)
    return lock


def checked_ttl(ttl: Duration, session: Session) -> float:
    """Return `ttl` in seconds if the session's backend can keep it."""
    seconds = duration(ttl, "ttl")
    guarantees = session.backend.guarantees
    if seconds < guarantees.min_ttl:
        raise ConfigurationError(
            f"ttl={ttl!r} is too short: {session.backend.name} needs at least {guarantees.min_ttl:g}s"
        )
    if seconds > guarantees.max_ttl:
        raise ConfigurationError(
            f"ttl={ttl!r} is too long: {session.backend.name} keeps at most {guarantees.max_ttl:g}s"
        )
    return seconds


class BlockingLock(LockBase, Generic[T]):
    """`acquire`, `with` and decorator, for whatever can be waited for and gives a `T`."""

    def _wait(self, timeout: float) -> Coroutine[Any, Any, T]:
        raise NotImplementedError

    def acquire(self, *, timeout: Duration | Unset | None = UNSET) -> T:
        """Wait for the lock and return the lease; raise `AcquireTimeout` if that takes too long."""
        return run(self._wait(self._timeout(timeout)))

    def try_acquire(self) -> T | None:
        """Return a lease if the lock is free now, else `None`. Never waits."""
        try:
            return run(self._wait(0.0))
        except AcquireTimeout:
            return None

    def __enter__(self) -> T:
        lease = run(self._wait(self.terms.timeout))
        self._enter(self.session.runtime.current(), lease)
        return lease

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit()._leave(error)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Use the lock as a decorator: every call of the function is made under the lock."""
        if inspect.iscoroutinefunction(function):
            raise ConfigurationError(
                f"{function.__qualname__} is a coroutine function: use AsyncClient for its lock"
            )

        @functools.wraps(function)
        def locked(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return function(*args, **kwargs)

        return locked


class AsyncioLock(LockBase, Generic[A]):
    """`acquire`, `async with` and decorator, for whatever can be waited for and gives an `A`."""

    def _wait(self, timeout: float) -> Coroutine[Any, Any, A]:
        raise NotImplementedError

    async def acquire(self, *, timeout: Duration | Unset | None = UNSET) -> A:
        """Wait for the lock and return the lease; raise `AcquireTimeout` if that takes too long."""
        return await self._wait(self._timeout(timeout))

    async def try_acquire(self) -> A | None:
        """Return a lease if the lock is free now, else `None`. Never waits."""
        try:
            return await self._wait(0.0)
        except AcquireTimeout:
            return None

    async def __aenter__(self) -> A:
        lease = await self._wait(self.terms.timeout)
        task = self.session.runtime.current()
        self._enter(task, lease)
        lease._arm(task)
        return lease

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Coroutine[Any, Any, None]:
        leaving: Coroutine[Any, Any, None] = self._exit()._leave(error)
        return leaving

    def __call__(self, function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        """Use the lock as a decorator: every call of the coroutine function is made under the lock."""
        if not inspect.iscoroutinefunction(function):
            raise ConfigurationError(f"{function!r} is not a coroutine function: use Client for its lock")

        @functools.wraps(function)
        async def locked(*args: P.args, **kwargs: P.kwargs) -> R:
            async with self:
                result: R = await function(*args, **kwargs)
                return result

        return locked


class Lock(BlockingLock[Lease]):
    """A lock for blocking code: a context manager, a decorator, or `acquire()` and `release()`.

    Example:
        >>> from fencelock import Client
        >>> with Client("memory://") as locks:
        ...     with locks.lock("invoice:42") as lease:
        ...         lease.is_held()
        True
    """

    def _wait(self, timeout: float) -> Coroutine[Any, Any, Lease]:
        return acquire(self.session, self.terms, timeout, self._lease)

    def _lease(self, hold: Hold) -> Lease:
        lease = Lease(self, hold)
        if self.terms.on_lost is not None:
            remember(hold, lease)
        return lease


class AsyncLock(AsyncioLock[AsyncLease]):
    """A lock for asyncio: an async context manager, a decorator, or `acquire()` and `release()`.

    Inside `async with` the task is cancelled when the lease is lost, and the block raises
    `LeaseLost`.
    """

    def _wait(self, timeout: float) -> Coroutine[Any, Any, AsyncLease]:
        return acquire(self.session, self.terms, timeout, self._lease)

    def _lease(self, hold: Hold) -> AsyncLease:
        lease = AsyncLease(self, hold)
        if self.terms.on_lost is not None:
            remember(hold, lease)
        return lease


def remember(hold: Hold, lease: LeaseBase) -> None:
    """Let `on_lost` find the lease, without keeping it alive."""
    if hold.lease is None:
        hold.lease = weakref.ref(lease)


class RWLockBase(Generic[L]):
    """Two locks on one queue: many readers or one writer, served in order, so neither starves."""

    def __init__(self, read: L, write: L) -> None:
        self._read = read
        self._write = write

    @property
    def name(self) -> str:
        """The lock's name."""
        return self._read.name

    def read(self) -> L:
        """Return the lock that any number of readers may hold together."""
        return self._read

    def write(self) -> L:
        """Return the lock that one writer holds alone."""
        return self._write


class RWLock(RWLockBase[Lock]):
    """A read-write lock for blocking code."""


class AsyncRWLock(RWLockBase[AsyncLock]):
    """A read-write lock for asyncio."""
