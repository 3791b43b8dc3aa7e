"""Leases: what a lock gives while it is held.

`Lease` and `AsyncLease` are thin: a handle on the core's `Hold`. Each acquisition has its
own; entering a reentrant lock again gives another handle on the same hold, so that each is
released by itself.

A lease that belongs to a block, and is garbage before the block released it, is released at once.
A lease that `acquire()` handed out may be garbage because its caller dropped the result and works
on: then releasing it would leave that work unprotected. So it is no longer renewed, ends with its
ttl, and says so.
"""

from __future__ import annotations

import warnings
from collections.abc import Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from fencelock.blocks import Block, Exits, Last, entering
from fencelock.core.hold import DROPPED, HELD, LOST, Hold
from fencelock.core.release import release
from fencelock.core.renew import ensure_held, extend, lease_lost, verify
from fencelock.durations import Duration
from fencelock.errors import BackendError, ConfigurationError, LeaseLost, NotHeld, cannot_be_pickled
from fencelock.runtime.blocking import run

if TYPE_CHECKING:
    import asyncio
    import threading

    from fencelock.lock import LockBase
    from fencelock.runtime.asyncio import AsyncEvent

__all__ = ["AsyncLease", "Lease", "LeaseBase"]

Transaction = TypeVar("Transaction")
PACKAGE = __file__.rpartition("/")[0]


class Handed:
    """What both flavours of a lease, and of several leases, can do: be handed out, and enter a block."""

    __slots__ = ()

    def _hand_out(self) -> None:
        """`acquire()` returns it: from now on its caller is to release or to enter it."""
        raise NotImplementedError

    def _take_in(self) -> None:
        """A block of its own begins, and will release it. Raises if it is over, or in a block already."""
        raise NotImplementedError

    def _drop(self, *, by_hand: bool = False) -> None:
        """Its block is over without having released it, or it is garbage. Called by a destructor."""
        raise NotImplementedError

    def _release(self) -> Coroutine[Any, Any, bool]:
        raise NotImplementedError

    def _lost(self) -> LeaseLost | None:
        raise NotImplementedError

    def __reduce__(self) -> NoReturn:
        raise cannot_be_pickled(self, "send its token to the child process, which makes a client of its own")


def _exit(block: Block, lease: Any, _: object, error: BaseException | None, __: object, /) -> None:
    lease._leave(error)
    block.lease = None


class Leaving(Handed):
    """How a `with` block ends: release, and raise `LeaseLost` if there was nothing to release."""

    __slots__ = ()

    def __enter__(self) -> Self:
        block = entering(self)
        self._take_in()
        if block is not None:
            block.lease = self
        return self

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

    def release(self) -> bool:
        """Give back what is held; say whether it was held until now. Idempotent."""
        return run(self._release())

    def _leave(self, error: BaseException | None) -> None:
        try:
            run(self._release())
        except BackendError as failure:
            if error is None:
                raise
            error.add_note(f"fencelock: releasing {self!r} failed: {failure}")
        lost = self._lost()
        if lost is not None:
            raise_loss(lost, error)


class AsyncLeaving(Handed):
    """How an `async with` block ends. The cancellation that a loss caused becomes `LeaseLost`."""

    __slots__ = ()

    async def __aenter__(self) -> Self:
        self._take_in()
        self._arm(self._current())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leave(error)

    def _arm(self, task: Any) -> None:
        raise NotImplementedError

    def _current(self) -> object:
        raise NotImplementedError

    def _disarm(self, error: BaseException | None) -> bool:
        raise NotImplementedError

    async def release(self) -> bool:
        """Give back what is held; say whether it was held until now. Idempotent."""
        return await self._release()

    async def _leave(self, error: BaseException | None, last: Last | None = None) -> None:
        # `last` dies with this coroutine, also if that never runs: the block's own `__exit__` is gone.
        ours = self._disarm(error)
        try:
            await self._release()
        except BackendError as failure:
            if error is None:
                raise
            error.add_note(f"fencelock: releasing {self!r} failed: {failure}")
        lost = self._lost()
        if lost is not None:
            raise_loss(lost, None if ours else error)


class LeaseBase:
    """What both flavours of a lease have in common: everything that does no I/O."""

    __slots__ = ("__weakref__", "_handed", "_hold", "_lock", "_over")

    def __init__(self, lock: LockBase, hold: Hold) -> None:
        self._over = True
        self._handed = False  # out to a caller, and in no block
        self._lock = lock  # keeps the client alive
        self._hold = hold
        # Together, so that an interrupt does not come between them: from here on the destructor
        # gives back what this line takes.
        hold.depth += 1
        self._over = False

    @property
    def name(self) -> str:
        """The lock's name."""
        return self._hold.request.name

    @property
    def token(self) -> int:
        """The fencing token: larger than that of every earlier grant for this name."""
        return self._hold.token

    @property
    def owner(self) -> str:
        """The random id of this acquisition."""
        return self._hold.request.owner

    @property
    def mode(self) -> str:
        """`exclusive`, `shared` or `permit`."""
        return self._hold.request.mode

    @property
    def ttl(self) -> float:
        """Seconds that the lease lives without being renewed."""
        return self._hold.ttl

    def is_held(self) -> bool:
        """Whether the lock is certainly held, by the local clock. No I/O."""
        return not self._over and self._lock.session.holds.is_held(self._hold)

    def remaining(self) -> float:
        """Seconds for which the lease is certain unless it is renewed; 0 when it is over. No I/O."""
        if not self.is_held():
            return 0.0
        return max(0.0, self._hold.deadline - self._lock.session.runtime.now())

    def check(self) -> None:
        """Raise `LeaseLost` if the lease was lost, `NotHeld` if it was released. No I/O."""
        if self._over and self._hold.state is not LOST:
            raise NotHeld(name=self.name)
        ensure_held(self._lock.session, self._hold)

    def guard(self, transaction: Transaction) -> Transaction:
        """Add to a transaction of your own that this lease must be held when it is done; return it. No I/O.

        The transaction is one of the store that keeps the lock: etcd's `TxnRequest` or the dict of its JSON
        gateway, kazoo's for ZooKeeper, the list for Consul's `/v1/txn`. Elsewhere this is `Unsupported`: give
        your resource the token instead.
        """
        self.check()
        self._lock.session.backend.guard(self._hold.request, self._hold.token, transaction)
        return transaction

    def _hand_out(self) -> None:
        # The last step of `acquire()`: a lease that an interrupt leaves before this line is released at once.
        self._handed = self._hold.handed = True

    def _take_in(self) -> None:
        self.check()
        if not self._handed:
            raise ConfigurationError(
                f"the lease on {self.name!r} was entered already: give each block its own, from acquire()"
            )
        self._handed = self._hold.handed = False

    async def _release(self) -> bool:
        session, hold = self._lock.session, self._hold
        if self._over and session.cleanups.get(hold.request) is None:
            return False
        try:
            self._over = True
            return await release(session, hold)
        except BaseException:
            if hold.state is HELD:
                self._over = False  # interrupted before it took effect
            raise

    def _lost(self) -> LeaseLost | None:
        return lease_lost(self._hold) if self._hold.state is LOST else None

    def __del__(self) -> None:
        # An interrupt may have come before there was anything to give back.
        if not getattr(self, "_over", True):
            self._drop()

    def _drop(self, *, by_hand: bool = False) -> None:
        if self._over or self._hold.state is not HELD:
            return
        if by_hand:
            self._hand_out()
        self._over = True
        if not self._handed:
            self._lock.session.dropped.add(self._hold)
            return
        place = _place(self)
        self._lock.session.dropped.add(self._hold, place)
        warnings.warn(f"{DROPPED % self.name}{place}", ResourceWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        hold = self._hold
        return f"<{type(self).__name__} {self.name!r} token={hold.token} {hold.state}>"


class Lease(LeaseBase, Leaving):
    """A lock that is held, in blocking code."""

    __slots__ = ()

    @property
    def lost(self) -> threading.Event:
        """An event that is set when the lease is lost: `lease.lost.wait(timeout)`."""
        event: threading.Event = self._lock.session.holds.event(self._hold)
        return event

    def verify(self) -> bool:
        """Ask the backend whether the lease is held."""
        return not self._over and run(verify(self._lock.session, self._hold))

    def extend(self, ttl: Duration) -> None:
        """Let the lease live `ttl` seconds from now, and renew it with that from now on."""
        self.check()
        run(extend(self._lock.session, self._hold, self._lock._check_ttl(ttl)))


class AsyncLease(LeaseBase, AsyncLeaving):
    """A lock that is held, under asyncio."""

    __slots__ = ("_cancelling", "_task")

    def __init__(self, lock: LockBase, hold: Hold) -> None:
        super().__init__(lock, hold)
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0

    @property
    def lost(self) -> AsyncEvent:
        """An event that is set when the lease is lost: `await lease.lost.wait()`."""
        event: AsyncEvent = self._lock.session.holds.event(self._hold)
        return event

    async def verify(self) -> bool:
        """Ask the backend whether the lease is held."""
        return not self._over and await verify(self._lock.session, self._hold)

    async def extend(self, ttl: Duration) -> None:
        """Let the lease live `ttl` seconds from now, and renew it with that from now on."""
        self.check()
        await extend(self._lock.session, self._hold, self._lock._check_ttl(ttl))

    def _current(self) -> object:
        return self._lock.session.runtime.current()

    def _arm(self, task: Any) -> None:
        """The start of an `async with` block: this task is cancelled if the lease is lost."""
        hold = self._hold
        if hold.task is None and hold.state is HELD:
            self._task = hold.task = task
            self._cancelling = task.cancelling() if task is not None else 0

    def _disarm(self, error: BaseException | None) -> bool:
        """Take back our cancellation; say whether `error` is nothing but that."""
        task, hold = self._task, self._hold
        if task is None:
            return False
        self._task = hold.task = None
        if not hold.interrupted:
            return False
        hold.interrupted = False
        # As asyncio.timeout does: somebody else may have cancelled the task as well.
        return task.uncancel() <= self._cancelling and _is_cancelled(error)


def raise_loss(lost: LeaseLost, error: BaseException | None) -> None:
    """Raise a loss at the end of a block, unless the block raises something of its own."""
    if error is None:
        raise lost
    if not isinstance(error, LeaseLost):
        error.add_note(f"fencelock: {lost}")


def _place(lease: LeaseBase) -> str:
    """Return where a lease was acquired, for a message, if tracemalloc knows."""
    import tracemalloc  # only now: it is slow to import, and hardly ever needed

    trace = tracemalloc.get_object_traceback(lease) if tracemalloc.is_tracing() else None
    outside = [frame for frame in trace or () if not frame.filename.startswith(PACKAGE)]
    return f" (acquired at {outside[-1]})" if outside else ""


def _is_cancelled(error: BaseException | None) -> bool:
    import asyncio

    return isinstance(error, asyncio.CancelledError)
