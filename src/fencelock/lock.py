"""Lock objects: what to acquire, and how. They hold no state of an acquisition.

Any number of threads and tasks may share one `Lock`; each acquisition is its own lease. A
`with` statement has to find its lease again at the end: see `blocks.py`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Coroutine, Generator
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from fencelock.blocks import Block, Blocks, Exits, Last, caller, entering
from fencelock.core.acquire import acquire
from fencelock.core.hold import Hold, Terms
from fencelock.decorate import locked, locked_async
from fencelock.durations import Duration, duration, optional_duration
from fencelock.errors import AcquireTimeout, ConfigurationError, cannot_be_pickled
from fencelock.lease import AsyncLease, AsyncLeaving, Lease, LeaseBase, Leaving
from fencelock.names import marked
from fencelock.runtime.blocking import run

if TYPE_CHECKING:
    from fencelock.core.session import Session

__all__ = ["AsyncLock", "AsyncRWLock", "Lock", "LockBase", "RWLock", "Unset", "of_kind"]

L = TypeVar("L", bound="LockBase")
T = TypeVar("T", bound=Leaving)
A = TypeVar("A", bound=AsyncLeaving)
F = TypeVar("F", bound=Callable[..., Any])

IN_A_CHILD = "make a new client in the child process, and the lock there"


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
        self._blocks = Blocks()

    @property
    def name(self) -> str:
        """The lock's name."""
        return self.terms.name

    def _check_ttl(self, ttl: Duration) -> float:
        """Return `ttl` in seconds if the backend can keep it."""
        return checked_ttl(ttl, self.session)

    def _timeout(self, timeout: Duration | Unset | None) -> float:
        return self.terms.timeout if isinstance(timeout, Unset) else optional_duration(timeout, "timeout")

    def _enter_by_hand(self, frame: FrameType | None, lease: object) -> None:
        """Keep the lease for the call of `__exit__` that will ask for it."""
        try:
            self._blocks.enter(frame, self.session.runtime.current(), lease)
        except BaseException:  # interrupted: then `__enter__` has failed, and no such call comes
            self._blocks.leave(frame)
            raise

    def _leave_by_hand(self, frame: FrameType | None, error: BaseException | None) -> list[Any]:
        """Return the leases of a block that was entered by hand and ends in this frame."""
        lease = self._blocks.leave(frame)
        if lease is not None:
            return [lease]
        try:
            return self._blocks.leave_by_hand(frame, self.session.runtime.current(), self.name)
        except ConfigurationError as trouble:
            if error is None:
                raise
            error.add_note(f"fencelock: {trouble}")
            return []

    def __reduce__(self) -> NoReturn:
        raise cannot_be_pickled(self, IN_A_CHILD)

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


def _exit(block: Block, lock: Any, _: object, error: BaseException | None, __: object, /) -> None:
    lease = block.lease
    if lease is not None:
        lease._leave(error)
        block.lease = None
    else:
        for lease in lock._leave_by_hand(caller(), error):
            lease._leave(error)


def _aexit(
    block: Block, lock: Any, _: object, error: BaseException | None, __: object, /
) -> Coroutine[Any, Any, None]:
    if block.lease is None:
        by_hand: Coroutine[Any, Any, None] = lock._exit_by_hand(caller(), error)
        return by_hand
    lease: AsyncLeaving = block.lease
    return lease._leave(error, Last(block))


class BlockingLock(LockBase, Generic[T]):
    """`acquire`, `with` and decorator, for whatever can be waited for and gives a `T`."""

    def _wait(self, timeout: float) -> Coroutine[Any, Any, T]:
        raise NotImplementedError

    def acquire(self, *, timeout: Duration | Unset | None = UNSET) -> T:
        """Wait for the lock and return the lease; raise `AcquireTimeout` if that takes too long.

        Keep the lease until you release it, or enter it: `with lock.acquire() as lease:`, `async with` under
        asyncio. A lease that is dropped instead is no longer renewed, and ends with its ttl.
        """
        lease = run(self._wait(self._timeout(timeout)))
        lease._hand_out()
        return lease

    def try_acquire(self) -> T | None:
        """Return a lease if the lock is free now, else `None`. Never waits."""
        try:
            lease = run(self._wait(0.0))
        except AcquireTimeout:
            return None
        lease._hand_out()
        return lease

    def __enter__(self) -> T:
        block = entering(self)
        lease = run(self._wait(self.terms.timeout))
        if block is None:
            self._enter_by_hand(caller(), lease)
        else:
            block.lease = lease
        return lease

    if TYPE_CHECKING:

        def __exit__(
            self,
            kind: type[BaseException] | None,
            error: BaseException | None,
            trace: TracebackType | None,
            /,
        ) -> None: ...
    else:
        __exit__ = Exits(_exit)

    def __call__(self, function: F) -> F:
        """Use the lock as a decorator: each call of the function is made under the lock.

        A generator function holds it while its generator is iterated.
        """
        return locked(self, function)


class AsyncioLock(LockBase, Generic[A]):
    """`acquire`, `async with` and decorator, for whatever can be waited for and gives an `A`."""

    def _wait(self, timeout: float) -> Coroutine[Any, Any, A]:
        raise NotImplementedError

    def acquire(self, *, timeout: Duration | Unset | None = UNSET) -> Acquiring[A]:
        """Wait for the lock and return the lease; raise `AcquireTimeout` if that takes too long.

        Keep the lease until you release it, or enter it: `with lock.acquire() as lease:`, `async with` under
        asyncio. A lease that is dropped instead is no longer renewed, and ends with its ttl.
        """
        return Acquiring(self._acquire(self._timeout(timeout)))

    async def _acquire(self, timeout: float) -> A:
        lease = await self._wait(timeout)
        lease._hand_out()
        return lease

    async def try_acquire(self) -> A | None:
        """Return a lease if the lock is free now, else `None`. Never waits."""
        try:
            return await self._acquire(0.0)
        except AcquireTimeout:
            return None

    def __aenter__(self) -> Coroutine[Any, Any, A]:
        block = entering(self)  # now: the coroutine has another caller
        return self._enter(None if block is not None else caller(), block)

    async def _enter(self, frame: FrameType | None, block: Block | None) -> A:
        lease = await self._wait(self.terms.timeout)
        if block is None:
            self._enter_by_hand(frame, lease)
        else:
            block.lease = lease
        lease._arm(self.session.runtime.current())
        return lease

    if TYPE_CHECKING:

        def __aexit__(
            self,
            kind: type[BaseException] | None,
            error: BaseException | None,
            trace: TracebackType | None,
            /,
        ) -> Coroutine[Any, Any, None]: ...
    else:
        __aexit__ = Exits(_aexit)

    async def _exit_by_hand(self, frame: FrameType | None, error: BaseException | None) -> None:
        for lease in self._leave_by_hand(frame, error):
            await lease._leave(error)

    def __call__(self, function: F) -> F:
        """Use the lock as a decorator: each call of the coroutine function is made under the lock.

        An async generator function holds it while its generator is iterated.
        """
        return locked_async(self, function)


class Acquiring(Coroutine[Any, Any, A]):
    """What `acquire()` gives under asyncio: await it, or enter it with `async with`."""

    __slots__ = ("_lease", "_waiting")

    def __init__(self, waiting: Coroutine[Any, Any, A]) -> None:
        self._waiting = waiting  # made now, so that Python warns if it is never awaited

    def __await__(self) -> Generator[Any, Any, A]:
        return self._waiting.__await__()

    async def __aenter__(self) -> A:
        self._lease = await self._waiting
        return await self._lease.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._lease.__aexit__(kind, error, trace)

    # As a coroutine has them: it can be given to `asyncio.create_task`, `gather` and `wait_for`.

    def send(self, value: Any) -> Any:
        return self._waiting.send(value)

    def throw(self, *error: Any) -> Any:
        return self._waiting.throw(*error)

    def close(self) -> None:
        self._waiting.close()


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

    def __reduce__(self) -> NoReturn:
        raise cannot_be_pickled(self, IN_A_CHILD)


class RWLock(RWLockBase[Lock]):
    """A read-write lock for blocking code."""


class AsyncRWLock(RWLockBase[AsyncLock]):
    """A read-write lock for asyncio."""
