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

Not promised: that a dead waiter delays by less than the store's shortest session; and that a lease which
somebody deletes in the store is known to be lost before its next renewal.
"""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from fencelock.backends.base import CAPABILITIES, Backend, Busy, Grant, Outcome, Renewal, Request, patience
from fencelock.backends.ordered.places import (
    Eye,
    Place,
    Queue,
    Record,
    blockers,
    check_limit,
    entry,
    state,
    told,
)
from fencelock.backends.ordered.store import SessionGone, Store
from fencelock.backends.ordered.tenures import Tenure, Tenures
from fencelock.backends.ordered.turns import Mutex, mutex
from fencelock.core.queue import PERMIT, admitted
from fencelock.errors import BackendUnavailable, LeaseLost
from fencelock.runtime.base import Runtime
from fencelock.state import Entry, LockState

__all__ = ["OrderedBackend"]

GONE = "its session in the store has ended"
LOOKING = 5.0
"""Seconds that a look may take, and after which an observer looks again though nothing was heard."""
SWEEP = 5.0
"""Seconds between two sweeps of a tenure."""
ROUNDS = 5
"""So often a step begins anew when the queue changes under its hands."""
WAITING_LEFT = 2 / 3
"""The part of a waiter's tenure that must be left, or it is renewed."""
REMEMBERED = 1024
"""So many names that were busy the last time are remembered."""
SPARE = 4
"""So many tenures are kept though nothing is in them: each ttl that a lease is extended to may leave one."""


class OrderedBackend(Backend):
    """The queue rule over a `Store`. A subclass says which."""

    capabilities = CAPABILITIES
    renew_batch = 20_000

    _store: Store

    def open(self, runtime: Runtime, namespace: str, lost: Callable[[str, str], None]) -> None:
        super().open(runtime, namespace, lost)
        self._anew()

    def _anew(self) -> None:
        self._places: dict[str, Place] = {}
        self._store = self._make_store()
        self._asking: set[str] = set()
        """Whose step is under way."""
        self._expiring: set[str] = set()
        """Whose place is being given up, since nobody asked for it any more."""
        self._busy: dict[str, None] = {}
        """Names that somebody here had to wait for the last time."""
        self._extending: dict[str, Mutex] = {}
        """For leases that were extended: one extension at a time."""
        self._tenures = Tenures(self._store, self.name, self.runtime.flavour, self._lose, self._clean)

    @abstractmethod
    def _make_store(self) -> Store:
        """Make the store's side for this runtime and namespace. No I/O."""

    # The way of a request -------------------------------------------------------------------

    async def acquire(self, request: Request, *, wait: bool, deadline: float) -> Grant | Busy:
        owner = request.owner
        began = self.runtime.now()
        self._asking.add(owner)
        try:
            if owner in self._expiring:  # what is entered now would go with it
                raise BackendUnavailable(backend=self.name, detail="its place is just being given up")
            for _ in range(ROUNDS):
                try:
                    answer = await self._stand(request, wait, deadline)
                except SessionGone as error:
                    self._tenures.ended(error.tenure, GONE)
                else:
                    if answer is not None:
                        return answer
            raise BackendUnavailable(backend=self.name, detail="the queue changes faster than it can be read")
        finally:
            if (place := self._places.get(owner)) is not None:
                place.asked = began
                place.deadline = max(place.deadline, self.runtime.now() + patience(request.ttl))
            self._asking.discard(owner)

    async def _stand(self, request: Request, wait: bool, deadline: float) -> Grant | Busy | None:
        """Stand in the queue as it is now; `None` if it changed meanwhile."""
        began = self.runtime.now()
        place = self._places.get(request.owner)
        if place is None:
            place, queue = await self._enter(request, wait, deadline)
        elif wait and place.busy is not None and self._trusts(place):
            return await self._wait_on(place, place.busy, deadline)
        else:
            queue = await self._look_again(place, deadline)
        position = queue.find(request.owner)
        if position is None or not self._is_known(place):  # its session died, or somebody removed it
            self._forget(place)
            return None
        record = queue.records[position]
        self._note(place, record)
        try:
            check_limit(queue.records, request)
        except BaseException:
            await self._leave(place, deadline)
            raise
        if position < admitted(queue.records):
            return await self._admit(place, record, began, deadline)
        try:
            if not wait:
                await self._leave(place, deadline)
            elif not await self._settle(place, queue, position, deadline):
                return None
            elif self._store.early:
                self._remember_busy(request.name)
            later = wait and deadline - self.runtime.now() > 2 * self._store.asks_who_after > 0
            place.asks_who = later
            busy = Busy(math.inf, None if later else await self._holder(queue, deadline))
        except BackendUnavailable:
            if not wait or self.runtime.now() < deadline:
                raise
            return Busy(math.inf, None)  # the time is over: that it stands in the queue is known
        place.looked, place.busy = began, busy
        return busy

    def _trusts(self, place: Place) -> bool:
        """Whether it may believe that nothing has changed."""
        now = self.runtime.now()
        return not (place.called or place.stirred) and now < place.looked + self._store.trust

    async def _wait_on(self, place: Place, busy: Busy, deadline: float) -> Busy | None:
        """What it watches stands as it did: see to it that its record lives, and do not look."""
        tenure = await self._waiting(place.request, deadline)
        if tenure is not place.tenure:
            place.busy = None
            return None
        place.deadline = self.runtime.now() + patience(place.request.ttl)
        return busy

    async def _holder(self, queue: Queue, deadline: float) -> Entry | None:
        for record in await self._store.describe(queue.records[:1], deadline):
            return entry(record, None)
        return None

    def _remember_busy(self, name: str) -> None:
        if len(self._busy) >= REMEMBERED:
            self._busy.clear()  # a wrong guess costs a move
        self._busy[name] = None

    async def _enter(self, request: Request, wait: bool, deadline: float) -> tuple[Place, Queue]:
        if wait and request.name in self._busy:
            self._busy.pop(request.name, None)  # until it has to wait again
            tenure = await self._waiting(request, deadline)
        else:
            tenure = await self._holding(request.ttl, deadline)
        place = Place(request)
        queue = await self._store.enter(place, tenure, told(request, place.since), deadline)
        place.tenure = tenure
        place.deadline = self.runtime.now() + request.ttl
        self._places[request.owner] = tenure.places[request.owner] = place
        position = queue.find(request.owner)
        if position is not None and queue.records[position].session != tenure.ident:
            self._note(place, queue.records[position])  # an earlier try made it, in a session that has ended
            queue = await self._move(place, tenure, deadline)
        return place, queue

    async def _look_again(self, place: Place, deadline: float) -> Queue:
        """Read the queue for a place that is known; as one whose turn it is, if it was called."""
        request = place.request
        place.busy = None  # what it answered before is worth nothing from here on
        called, place.called, place.stirred = place.called, False, False
        if called:
            return await self._move(place, await self._holding(request.ttl, deadline), deadline)
        if self._holds(place):
            await self._holding(request.ttl, deadline)
        else:
            await self._waiting(request, deadline)
        return await self._store.look(request.name, deadline)

    def _holds(self, place: Place) -> bool:
        """Whether it stands in the tenure that it will hold in, or holds in."""
        assert place.tenure is not None
        return place.tenure.class_ == self._store.class_of(place.request.ttl)

    async def _admit(self, place: Place, record: Record, began: float, deadline: float) -> Grant | None:
        """It is its turn: in the tenure that it will hold in, it holds."""
        request = place.request
        tenure = place.tenure
        assert tenure is not None
        if not self._holds(place) or record.session != tenure.ident:
            place.called = True  # the next look moves it
            return None
        if tenure.good_until - began < request.ttl:
            fresh = await self._holding(request.ttl, deadline)
            if fresh is not tenure:
                self._forget(place)
                return None
        if place.watched is not None:
            self._store.unwatch(place)
        place.signal = None
        place.deadline = self.runtime.now() + request.ttl
        if not self._is_known(place):
            self._forget(place)
            return None
        return Grant(place.token, min(request.ttl, tenure.good_until - began))

    def _is_known(self, place: Place) -> bool:
        """Whether it is still the place of its request: its tenure may have ended while a step was under way.

        A grant for any other would be nobody's: neither renewed nor let go, and swept away as a ghost.
        """
        assert place.tenure is not None
        return not place.tenure.ended and self._places.get(place.request.owner) is place

    async def _settle(self, place: Place, queue: Queue, position: int, deadline: float) -> bool:
        """It has to wait: in the tenure of those who wait, and told when something happens.

        `False` if the queue has to be looked at once more first.
        """
        tenure = await self._waiting(place.request, deadline)
        if place.tenure is not tenure:
            queue = await self._move(place, tenure, deadline)
            moved = queue.find(place.request.owner)
            if moved is None or moved < admitted(queue.records):
                return False
            position = moved
        if place.signal is None:
            place.signal = self.runtime.signal()
        place.deadline = self.runtime.now() + patience(place.request.ttl)
        records, moves = blockers(queue.records, position)
        await self._store.watch(place, records, moves, queue.moment, deadline)
        return True

    async def _move(self, place: Place, tenure: Tenure, deadline: float, ttl: float | None = None) -> Queue:
        """Put a record into another tenure; with a ttl it is one that holds, and has held for a while."""
        owner = place.request.owner
        if ttl is None:
            place.since = time.time()
        queue = await self._store.move(place, tenure, told(place.request, place.since, ttl), deadline)
        position = queue.find(owner)
        if position is None or queue.records[position].session != tenure.ident:
            return queue
        if place.tenure is not None:
            place.tenure.places.pop(owner, None)
        place.tenure = tenure
        tenure.places[owner] = place
        if self._places.get(owner) is not place:  # released meanwhile
            tenure.places.pop(owner, None)
        return queue

    async def _holding(self, ttl: float, deadline: float) -> Tenure:
        return await self._tenures.fresh(self._store.class_of(ttl), ttl, deadline)

    async def _waiting(self, request: Request, deadline: float) -> Tenure:
        class_ = min(self._store.waiting, self._store.class_of(request.ttl))
        return await self._tenures.fresh(class_, class_ * WAITING_LEFT, deadline)

    def _note(self, place: Place, record: Record) -> None:
        place.key = record.key
        place.token = record.token or place.token  # a store may read its queues without the tokens

    def _forget(self, place: Place) -> None:
        owner = place.request.owner
        self._places.pop(owner, None)
        self._extending.pop(owner, None)
        if place.tenure is not None:
            place.tenure.places.pop(owner, None)
        if place.watched is not None:
            self._store.unwatch(place)

    def _lose(self, place: Place, reason: str) -> None:
        """Its tenure has ended. From any thread."""
        self._forget(place)
        self.lost(place.request.owner, reason)

    async def _leave(self, place: Place, deadline: float) -> bool:
        there = False
        while True:
            key = place.key
            there = await self._store.leave(place.request, place, deadline) or there
            if place.key == key:
                break  # else a renewal has moved it meanwhile
        self._forget(place)
        return there

    async def wait(self, request: Request, deadline: float) -> Grant | None:
        place = self._places.get(request.owner)
        if place is None or place.signal is None:
            return None
        if place.asks_who:
            await self._rest(place, min(self.runtime.now() + self._store.asks_who_after, deadline))
            if not self._is_woken(place):
                await self._ask_who(place, deadline)
        await self._rest(place, deadline)
        if self.closing:
            return None
        if place.called and self._store.stays and request.mode != PERMIT:  # of permits see `blockers`
            return await self._take_turn(place, deadline)
        return None

    def _is_woken(self, place: Place) -> bool:
        """Whether it need not wait. Closing is said before anyone is woken for it: one of the two is seen."""
        return place.stirred or self.closing

    async def _rest(self, place: Place, until: float) -> None:
        if not self._is_woken(place):
            await self._store.rest(place, until - self.runtime.now())

    def wake(self) -> None:
        self._store.make_way()
        for place in list(self._places.values()):
            place.wake(gone=False)

    async def _ask_who(self, place: Place, deadline: float) -> None:
        """Learn who holds, for whoever is told that the time was over. Most never wait for so long."""
        busy, place.asks_who = place.busy, False
        with suppress(BackendUnavailable):  # it goes on waiting all the same
            queue = await self._store.look(place.request.name, deadline)
            if busy is not None:
                busy.holder = await self._holder(queue, deadline)

    async def _take_turn(self, place: Place, deadline: float) -> Grant | None:
        """Its turn may have come: then it holds where it waits. The first renewal moves it."""
        owner, tenure = place.request.owner, place.tenure
        assert tenure is not None
        self._asking.add(owner)
        try:
            if owner in self._expiring:
                return None
            try:
                queue = await self._store.turn(place, deadline)
            except SessionGone as error:
                self._tenures.ended(error.tenure, GONE)
                return None
            position = queue.find(owner)
            if position is None or position >= admitted(queue.records):
                place.called = False  # a false alarm: the next step looks and watches, and moves nothing
                return None
            if not self._is_known(place) or queue.records[position].token not in {0, place.token}:
                return None
            self._store.unwatch(place)
            place.signal = place.busy = None
            place.since = time.time()
            place.deadline = self._store.lasts(tenure)
            return Grant(place.token, min(place.request.ttl, place.deadline - place.asked))
        finally:
            self._asking.discard(owner)

    async def release(self, request: Request, token: int, *, deadline: float) -> bool:
        place = self._places.get(request.owner)
        if place is None:
            return await self._store.leave(request, None, deadline)
        return await self._leave(place, deadline)

    async def abandon(self, request: Request, *, deadline: float) -> None:
        await self.release(request, 0, deadline=deadline)

    # Renewal --------------------------------------------------------------------------------

    async def renew(self, renewals: Sequence[Renewal], *, deadline: float) -> Sequence[Outcome]:
        outcomes: dict[str, Outcome] = {}
        groups: dict[int, tuple[Tenure, list[tuple[Place, Renewal]]]] = {}
        now = self.runtime.now()
        for renewal in renewals:
            place = self._places.get(renewal.request.owner)
            if place is None or place.tenure is None or place.token != renewal.token or place.deadline <= now:
                outcomes[renewal.request.owner] = Outcome.LOST
            else:
                tenure = place.tenure
                groups.setdefault(id(tenure), (tenure, []))[1].append((place, renewal))
        for tenure, pairs in groups.values():
            try:
                outcomes |= await self._renew(tenure, pairs, deadline)
            except (BackendUnavailable, TimeoutError):
                outcomes |= {place.request.owner: Outcome.UNKNOWN for place, _ in pairs}
        return [outcomes[renewal.request.owner] for renewal in renewals]

    async def _renew(
        self, tenure: Tenure, pairs: Sequence[tuple[Place, Renewal]], deadline: float
    ) -> dict[str, Outcome]:
        sent = self.runtime.now()
        outcomes = {
            place.request.owner: await self._extend(place, renewal, tenure, deadline)
            for place, renewal in pairs
            if renewal.extend and self._has_to_move(place, renewal, tenure)
        }
        pairs = [pair for pair in pairs if pair[0].request.owner not in outcomes]
        if not pairs:
            return outcomes
        moves = [place.moves for place, _ in pairs]
        if any(renewal.extend for _, renewal in pairs) and not await self._tenures.keep(tenure, deadline):
            return outcomes | {place.request.owner: Outcome.LOST for place, _ in pairs}
        there = await self._store.present([place for place, _ in pairs], deadline)
        for (place, renewal), before in zip(pairs, moves, strict=True):
            owner = place.request.owner
            if not place.stood_still(before):
                outcomes[owner] = await self._find(place, deadline)
            elif owner not in there:
                self._forget(place)
                outcomes[owner] = Outcome.LOST
            elif not renewal.extend:
                outcomes[owner] = Outcome.HELD if tenure.is_live(sent) else Outcome.UNKNOWN
            else:
                place.deadline = max(place.deadline, sent + renewal.ttl)
                outcomes[owner] = Outcome.RENEWED
        return outcomes

    def _has_to_move(self, place: Place, renewal: Renewal, tenure: Tenure) -> bool:
        """Whether a tenure is not the right one, or the record may be in another."""
        is_too_short = tenure.class_ < self._store.class_of(renewal.ttl)  # it waited there
        return renewal.exact or is_too_short or not place.stood_still(place.moves)

    async def _extend(self, place: Place, renewal: Renewal, tenure: Tenure, deadline: float) -> Outcome:
        """Put a lease into the tenure of its new ttl, if it is in another, and count from now."""
        owner = place.request.owner
        turn = self._extending.setdefault(owner, mutex(self.runtime.flavour))
        try:
            async with turn.until(deadline):
                for _ in range(ROUNDS):
                    if not self._is_known(place):
                        return Outcome.LOST
                    if not renewal.exact and place.tenure is not tenure:
                        return Outcome.HELD  # an extension was faster: its ttl is the one that counts
                    sent = self.runtime.now()
                    if await self._move_to(renewal.ttl, place, deadline):
                        end = sent + renewal.ttl
                        place.deadline = end if renewal.exact else max(place.deadline, end)
                        await self._end_spares(deadline)
                        return Outcome.RENEWED
            raise BackendUnavailable(backend=self.name, detail="its record moves too fast to be followed")
        finally:
            if not self._is_known(place):
                self._extending.pop(owner, None)

    async def _move_to(self, ttl: float, place: Place, deadline: float) -> bool:
        """Put a lease into the tenure of a ttl; say whether it is there. One that is gone is forgotten."""
        owner = place.request.owner
        tenure = await self._holding(ttl, deadline)
        tenure.coming.add(owner)
        try:
            if tenure.ended:
                return False
            place.moves |= 1
            queue = await self._move(place, tenure, deadline, ttl)
        except SessionGone as error:
            self._tenures.ended(error.tenure, GONE)
            return False
        finally:
            tenure.coming.discard(owner)
        position = queue.find(owner)
        if position is None:
            self._forget(place)
            return False
        self._note(place, queue.records[position])
        if place.tenure is tenure:
            place.moves += 1
        return place.tenure is tenure

    async def _find(self, place: Place, deadline: float) -> Outcome:
        """Look for the record of a lease, whichever tenure it is in. A move never hides it."""
        queue = await self._store.look(place.request.name, deadline)
        if queue.find(place.request.owner) is not None:
            return Outcome.HELD
        self._forget(place)
        return Outcome.LOST

    async def _end_spares(self, deadline: float) -> None:
        """End tenures that nothing is in any more, the oldest first, if there are many."""
        waiting = self._store.waiting
        empty = [one for one in self._tenures.all() if not (one.places or one.coming)]
        spare = [tenure for tenure in empty if tenure.class_ != waiting]
        with suppress(BackendUnavailable):  # then it ends by itself
            for tenure in spare[:-SPARE]:
                if self._tenures.retire(tenure):
                    await self._store.end(tenure, deadline)

    async def _clean(self, tenure: Tenure, deadline: float) -> None:
        """After a heartbeat: remove what lives on only because others in its tenure are renewed."""
        now = self.runtime.now()
        with suppress(BackendUnavailable):  # then the next one does it
            for place in [place for place in list(tenure.places.values()) if place.deadline <= now]:
                await self._expire(place, deadline)
            if now >= tenure.swept + SWEEP:
                tenure.swept = now
                await self._store.sweep(tenure, self._is_wanted, deadline)

    async def _expire(self, place: Place, deadline: float) -> None:
        """Remove a record that nobody has asked for or renewed in time.

        Not while a step is under way, however long that takes: it may come back with the lock. Each side
        first says what it does and then looks whether the other has, so at least one of them sees it.
        """
        owner = place.request.owner
        self._expiring.add(owner)
        try:
            if owner not in self._asking and place.deadline <= self.runtime.now():
                await self._leave(place, deadline)
        finally:
            self._expiring.discard(owner)

    def _is_wanted(self, owner: str) -> bool:
        return owner in self._asking or owner in self._places

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
