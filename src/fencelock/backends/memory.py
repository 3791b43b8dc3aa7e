"""`memory://`: locks among the threads and tasks of this process. The reference: read it first.

Layout: `Store.queues` maps a key to its queue, a list of records ordered by token; a queue
that has become empty is deleted, so nothing is left of a name that is not in use. One
counter serves all names. It starts at the time of day in microseconds, so that tokens go on
rising when the process is started again (as far as the machine's wall clock does).

Every step is done under one lock: 1. take out expired records, 2. change the queue,
3. signal the records that were admitted by the change. Whoever is signalled takes another
`acquire` step, which sets its deadline to a full ttl.

Not promised: anything beyond this process. A forked child starts with an empty store.
"""

from __future__ import annotations

import json
import os
import time
import weakref
from collections.abc import Callable, Sequence

from fencelock.backends.url import hide_password, split
from fencelock.core.ports import (
    CAPABILITIES,
    LONGEST_TTL,
    Backend,
    Busy,
    Grant,
    Outcome,
    Renewal,
    Request,
    patience,
)
from fencelock.core.queue import PERMIT, Mode, admitted
from fencelock.errors import ConfigurationError
from fencelock.findings import Finding
from fencelock.guarantees import Guarantees
from fencelock.runtime import clock, locks
from fencelock.runtime.base import Signal
from fencelock.state import Entry, LockState

__all__ = ["MemoryBackend", "Store"]

Key = tuple[str, str]


class Record:
    """A request in a queue."""

    __slots__ = ("confirmed", "deadline", "limit", "lost", "mode", "request", "signal", "since", "token")

    def __init__(self, request: Request, token: int, deadline: float, since: float) -> None:
        self.request = request
        self.mode: Mode = request.mode
        self.limit = request.limit
        self.token = token
        self.deadline = deadline
        self.since = since
        self.confirmed = False  # its owner knows that it is admitted
        self.signal: Signal | None = None
        self.lost: Callable[[str, str], None] | None = None


_all_stores: weakref.WeakSet[Store] = weakref.WeakSet()


class Store:
    """The queues of all names. All methods are atomic and take no longer than their work."""

    def __init__(self, now: Callable[[], float] = clock.now, wall: Callable[[], float] = time.time) -> None:
        self.now = now
        self.wall = wall
        self.lock = locks.lock()
        self.queues: dict[Key, list[Record]] = {}
        self.counter = int(wall() * 1_000_000)
        _all_stores.add(self)

    def acquire(
        self,
        key: Key,
        request: Request,
        wait: bool,
        signal: Signal | None,
        lost: Callable[[str, str], None] | None,
    ) -> Grant | Busy:
        """Stand in the queue; see `Backend.acquire`."""
        ttl = request.ttl
        with self.lock:
            now = self.now()
            queue = self.queues.get(key)
            if queue is None:
                queue = self.queues[key] = []
            else:
                self._expire(queue, now)
                self._wake(queue)
            record = next((record for record in queue if record.request.owner == request.owner), None)
            if record is None:
                if request.mode == PERMIT:
                    _check_limit(queue, request)
                self.counter += 1
                record = Record(request, self.counter, now + ttl, self.wall())
                queue.append(record)
            holders = admitted(queue)
            position = queue.index(record)
            record.lost = lost
            if position < holders:
                # Never earlier than it was: a step that was given up may arrive after an extension.
                record.deadline = max(record.deadline, now + ttl) if record.confirmed else now + ttl
                if not record.confirmed:
                    record.confirmed = True
                    record.since = self.wall()
                return Grant(record.token, ttl)
            busy = Busy(min(r.deadline for r in queue[:position]) - now, self._entry(queue[0], now))
            if wait:
                record.deadline = now + patience(ttl)
                record.signal = signal
            else:
                queue.remove(record)
            return busy

    def renew(self, key: Key, renewal: Renewal) -> Outcome:
        """Move a deadline; see `Backend.renew`."""
        with self.lock:
            now = self.now()
            for record in self.queues.get(key, ()):
                if record.request.owner == renewal.request.owner:
                    if record.deadline <= now or record.token != renewal.token:
                        break
                    if not renewal.extend:
                        return Outcome.HELD
                    end = now + renewal.ttl
                    record.deadline = end if renewal.exact else max(record.deadline, end)
                    return Outcome.RENEWED
            return Outcome.LOST

    def remove(self, key: Key, owner: str) -> bool:
        """Take a request out of its queue; say whether it was live. Wakes those whose turn it is."""
        with self.lock:
            queue = self.queues.get(key)
            if queue is None:
                return False
            now = self.now()
            for position, record in enumerate(queue):
                if record.request.owner == owner:
                    del queue[position]
                    self._advance(key, queue, now)
                    return record.deadline > now
            return False

    def inspect(self, key: Key) -> LockState:
        """Return who holds and who waits."""
        with self.lock:
            return self._state(key, self.now())

    def list_all(self, namespace: str, prefix: str) -> list[LockState]:
        """Return every lock of a namespace that is in use."""
        with self.lock:
            now = self.now()
            keys = sorted(key for key in self.queues if key[0] == namespace and key[1].startswith(prefix))
            states = [self._state(key, now) for key in keys]
        return [state for state in states if not state.is_free]

    def force_release(self, key: Key, owner: str | None) -> list[Entry]:
        """Take out the holders, or one owner."""
        with self.lock:
            now = self.now()
            queue = self.queues.get(key, [])
            self._expire(queue, now)
            holders = queue[: admitted(queue)]
            broken = (
                holders if owner is None else [record for record in queue if record.request.owner == owner]
            )
            for record in broken:
                queue.remove(record)
            if broken:
                self._advance(key, queue, now)
            entries = [self._entry(record, now) for record in broken]
        for record in broken:  # outside the lock: it runs the core of another client
            if record.lost is not None:
                record.lost(record.request.owner, "it was force-released")
        return entries

    def sweep(self) -> None:
        """Take out everything that has expired, of names that nobody asks for any more too."""
        with self.lock:
            now = self.now()
            for key, queue in list(self.queues.items()):
                self._advance(key, queue, now)

    def _expire(self, queue: list[Record], now: float) -> None:
        for record in queue:
            if record.deadline <= now:
                queue[:] = [record for record in queue if record.deadline > now]
                return

    def _advance(self, key: Key, queue: list[Record], now: float) -> None:
        self._expire(queue, now)
        if not queue:
            del self.queues[key]
            return
        self._wake(queue)

    def _wake(self, queue: list[Record]) -> None:
        for record in queue[: admitted(queue)]:
            if record.signal is not None:
                record.signal.notify()
                record.signal = None

    def _state(self, key: Key, now: float) -> LockState:
        queue = [record for record in self.queues.get(key, ()) if record.deadline > now]
        holders = admitted(queue)
        entries = [self._entry(record, now) for record in queue]
        return LockState(name=key[1], holders=tuple(entries[:holders]), waiters=tuple(entries[holders:]))

    def _entry(self, record: Record, now: float) -> Entry:
        request = record.request
        return Entry(
            owner=request.owner,
            token=record.token,
            mode=record.mode,
            client=request.origin.client,
            host=request.origin.host,
            pid=request.origin.pid,
            since=record.since,
            age=max(0.0, self.wall() - record.since),
            expires_in=max(0.0, record.deadline - now),
            metadata=None if request.metadata is None else json.loads(request.metadata),
            limit=record.limit,
        )


def _check_limit(queue: Sequence[Record], request: Request) -> None:
    for record in queue:
        if record.mode == PERMIT and record.limit != request.limit:
            raise ConfigurationError(
                f"limit={request.limit} for semaphore {request.name!r}: it is in use with limit "
                f"{record.limit}, give the same one everywhere"
            )


_stores: weakref.WeakValueDictionary[str, Store] = weakref.WeakValueDictionary()
_default_store = _stores.setdefault("", Store())
_stores_lock = locks.lock()


def _forget_parent() -> None:
    global _stores_lock
    _stores_lock = locks.lock()
    for store in list(_all_stores):
        store.lock = locks.lock()
        store.queues.clear()


os.register_at_fork(after_in_child=_forget_parent)


class MemoryBackend(Backend):
    """Locks among the threads and tasks of this process."""

    name = "memory"
    capabilities = CAPABILITIES

    def __init__(self, store: Store | None = None) -> None:
        self.store = _default_store if store is None else store
        self._signals: dict[str, Signal] = {}

    @classmethod
    def from_url(cls, url: str) -> MemoryBackend:
        parts = split(url)
        if parts.path or parts.query:
            raise ConfigurationError(
                f"{hide_password(url)!r} has a path or options: memory:// takes at most a name, as memory://NAME"
            )
        with _stores_lock:
            store = _stores.get(parts.authority)
            if store is None:
                store = _stores[parts.authority] = Store()
        return cls(store)

    @property
    def guarantees(self) -> Guarantees:
        return Guarantees(
            scope="process",
            use_for="correctness",
            fencing="until-restart",
            crash_release="ttl",
            clock="nothing",
            failover="nothing",
            restart="nothing",
            fairness="fifo",
            wakeup="push",
            min_ttl=0.001,
            max_ttl=LONGEST_TTL,
            caveats=(
                "only threads and tasks of this process exclude each other, and the locks end with it",
                "deadlines are kept on this machine's monotonic clock",
            ),
        )

    async def acquire(self, request: Request, *, wait: bool, deadline: float) -> Grant | Busy:
        signal = self._signals.get(request.owner) if self._signals else None
        answer = self.store.acquire((self.namespace, request.name), request, wait, signal, self.lost)
        if wait and signal is None and answer.__class__ is Busy:
            # Only now is a signal needed; the step is idempotent, so take it again with one.
            signal = self._signals[request.owner] = self.runtime.signal()
            answer = self.store.acquire((self.namespace, request.name), request, wait, signal, self.lost)
        if signal is not None and answer.__class__ is Grant:
            self._signals.pop(request.owner, None)
        return answer

    async def wait(self, request: Request, deadline: float) -> Grant | None:
        signal = self._signals.get(request.owner)
        if signal is not None:  # else: closed meanwhile, as the caller will see
            await signal.wait(deadline - self.runtime.now())
        return None

    def wake(self) -> None:
        for signal in list(self._signals.values()):
            signal.notify()

    async def renew(self, renewals: Sequence[Renewal], *, deadline: float) -> Sequence[Outcome]:
        return [self.store.renew((self.namespace, renewal.request.name), renewal) for renewal in renewals]

    async def release(self, request: Request, token: int, *, deadline: float) -> bool:
        return self.store.remove((self.namespace, request.name), request.owner)

    async def abandon(self, request: Request, *, deadline: float) -> None:
        self._signals.pop(request.owner, None)
        self.store.remove((self.namespace, request.name), request.owner)

    async def inspect(self, name: str, *, deadline: float) -> LockState:
        return self.store.inspect((self.namespace, name))

    async def list(self, prefix: str, *, deadline: float) -> Sequence[LockState]:
        self.store.sweep()
        return self.store.list_all(self.namespace, prefix)

    async def force_release(self, name: str, owner: str | None, *, deadline: float) -> Sequence[Entry]:
        return self.store.force_release((self.namespace, name), owner)

    async def doctor(self) -> Sequence[Finding]:
        detail = "this process only: no other process is kept out, and all is forgotten when it ends"
        return [Finding("notice", "reach", detail, "for real work use any other URL", "memory://")]

    async def close(self) -> None:
        self._signals.clear()

    def forget(self, requests: Sequence[Request]) -> None:
        for request in requests:
            self.store.remove((self.namespace, request.name), request.owner)

    def forked(self) -> None:
        self._signals = {}
