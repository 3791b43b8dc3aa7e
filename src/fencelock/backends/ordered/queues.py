"""The way of a request through a queue of ordered records: enter, wait, take one's turn, leave."""

from __future__ import annotations

import math
import time
from contextlib import suppress

from fencelock.backends.ordered.places import Place, Queue, Record, blockers, check_limit, entry, told
from fencelock.backends.ordered.store import SessionGone, Store
from fencelock.backends.ordered.tenures import Tenure, Tenures
from fencelock.backends.ordered.turns import Mutex
from fencelock.core.ports import Backend, Busy, Grant, Request, patience
from fencelock.core.queue import PERMIT, admitted
from fencelock.errors import BackendUnavailable
from fencelock.state import Entry

__all__ = ["GONE", "ROUNDS", "Queues"]

GONE = "its session in the store has ended"
ROUNDS = 5
"""So often a step begins anew when the queue changes under its hands."""
WAITING_LEFT = 2 / 3
"""The part of a waiter's tenure that must be left, or it is renewed."""
REMEMBERED = 1024
"""So many names that were busy the last time are remembered."""


class Queues(Backend):
    """Requests, until they hold and when they leave."""

    _store: Store
    _tenures: Tenures
    _places: dict[str, Place]
    _asking: set[str]
    """Whose step is under way."""
    _expiring: set[str]
    """Whose place is being given up, since nobody asked for it any more."""
    _busy: dict[str, None]
    """Names that somebody here had to wait for the last time."""
    _extending: dict[str, Mutex]
    """For leases that were extended: one extension at a time."""

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
        if place.signal is not None and not self._is_woken(place):
            await place.signal.wait(until - self.runtime.now())

    def wake(self) -> None:
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
