"""Ordered records: the queue rule on stores that run no code of ours. ZooKeeper, etcd and Consul.

Each request is a record of its own. The store keeps the records of a name in order, gives each a number that
only ever rises, its token, and removes it when the session that it was made in ends. A step writes or
reads, gets the queue as it stood at one moment, and applies `admitted` to it here: all clients see the
same records in the same order, so all come to the same answer.

A holder's record lives in a tenure of its ttl. A waiter's lives in a short one, so that a waiter that died
does not delay the others for a ttl: who has to wait moves its record there, and moves it back once it
holds. A move is one atomic step of the store's, which fails if the record is gone. Order and token survive
it. Moves are saved where they can be: a request for a name that was busy the last time begins among those
who wait, and one whose turn has come holds there, for as long as that tenure is certain to last; the first
renewal moves it. With both, a handover is two writes, one leaving and one entering.

Tenures are shared, so that a lease which nobody renews lives on in the store while others of its ttl are
renewed: its place knows better, and the next heartbeat takes the record along. So it does with a record
that nobody here wants, because a step was done after all that had got no answer.

An extension moves the record to the tenure of its new ttl, shorter or longer, one extension of a lease at a
time. A renewal that overlaps with one does not believe in the tenure that it renewed: it looks where the
record is, and changes nothing. A move that got no answer leaves the record in one tenure or the other: the
next renewal moves it again.

`queues.py` has the way of a request until it holds and when it leaves, `renewals.py` what comes between.

Not promised: that a dead waiter delays by less than the store's shortest session; and that a lease which
somebody deletes in the store is known to be lost before its next renewal.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from fencelock.backends.ordered.places import Eye, Record, entry, state
from fencelock.backends.ordered.renewals import Renewals
from fencelock.backends.ordered.store import Store
from fencelock.backends.ordered.tenures import Tenures
from fencelock.core.ports import CAPABILITIES, Request
from fencelock.core.queue import admitted
from fencelock.errors import BackendUnavailable, LeaseLost
from fencelock.runtime.base import Runtime
from fencelock.state import Entry, LockState

__all__ = ["OrderedBackend"]

LOOKING = 5.0
"""Seconds that a look may take, and after which an observer looks again though nothing was heard."""


class OrderedBackend(Renewals):
    """The queue rule over a `Store`. A subclass says which."""

    capabilities = CAPABILITIES
    renew_batch = 20_000

    def open(self, runtime: Runtime, namespace: str, lost: Callable[[str, str], None]) -> None:
        super().open(runtime, namespace, lost)
        self._anew()

    def _anew(self) -> None:
        self._store = self._make_store()
        self._places = {}
        self._asking = set()
        self._expiring = set()
        self._busy = {}
        self._extending = {}
        self._tenures = Tenures(self._store, self.name, self.runtime.flavour, self._lose, self._clean)

    @abstractmethod
    def _make_store(self) -> Store:
        """Make the store's side for this runtime and namespace. No I/O."""

    # Looking --------------------------------------------------------------------------------

    def guard(self, request: Request, token: int, transaction: Any) -> None:
        place = self._places.get(request.owner)
        if place is None:
            raise LeaseLost(name=request.name, token=token, reason="its record is gone")
        self._store.guard(place, transaction)

    async def observe(self, name: str, seen: LockState | None, *, deadline: float) -> LockState:
        before = [entry.owner for entry in seen.holders] if seen is not None else None
        eye = Eye()
        eye.signal = self.runtime.signal()
        try:
            while True:
                now = self.runtime.now()
                eye.stirred = False
                queue = await self._store.follow(eye, name, now + LOOKING)
                holders = [record.owner for record in queue.records[: admitted(queue.records)]]
                if holders != before or now >= deadline:
                    return await self.inspect(name, deadline=self.runtime.now() + LOOKING)
                if not eye.stirred:
                    await eye.signal.wait(min(LOOKING, deadline - self.runtime.now()))
        finally:
            self._store.unwatch(eye)

    async def inspect(self, name: str, *, deadline: float) -> LockState:
        queue = await self._store.look(name, deadline)
        records = await self._store.describe(queue.records, deadline)
        return state(name, records, await self._left(records, deadline))

    async def list(self, prefix: str, *, deadline: float) -> Sequence[LockState]:
        queues = await self._store.scan(prefix, deadline)
        everything = [record for records in queues.values() for record in records]
        left = await self._left(everything, deadline)
        return [state(name, queues[name], left) for name in sorted(queues)]

    async def _left(self, records: Sequence[Record], deadline: float) -> dict[Any, float]:
        sessions = list(dict.fromkeys(record.session for record in records))
        return await self._store.left(sessions, deadline) if sessions else {}

    async def force_release(self, name: str, owner: str | None, *, deadline: float) -> Sequence[Entry]:
        queue = await self._store.look(name, deadline)
        records = queue.records
        chosen = records[: admitted(records)]
        if owner is not None:
            chosen = [record for record in records if record.owner == owner]
        if not chosen:
            return ()
        chosen = await self._store.describe(chosen, deadline)
        left = await self._left(chosen, deadline)
        removed = await self._store.remove(chosen, deadline)
        for record in removed:
            place = self._places.get(record.owner)
            if place is not None:
                self._forget(place)
                self.lost(record.owner, "it was force-released")
        return [entry(record, left.get(record.session)) for record in removed]

    # The end --------------------------------------------------------------------------------

    async def close(self) -> None:
        deadline = self.runtime.now() + 2.0
        for tenure in self._tenures.all():
            try:
                await self._store.end(tenure, deadline)
            except BackendUnavailable:
                break  # it ends by itself
        self._tenures.forget()
        self._places = {}
        await self._store.close(deadline)

    def forked(self) -> None:
        self._store.drop()
        self._anew()
