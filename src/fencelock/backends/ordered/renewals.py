"""Renewals and extensions of leases in ordered records, and what is removed because nobody renews it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from fencelock.backends.ordered.places import Place
from fencelock.backends.ordered.queues import GONE, ROUNDS, Queues
from fencelock.backends.ordered.store import SessionGone
from fencelock.backends.ordered.tenures import Tenure
from fencelock.backends.ordered.turns import mutex
from fencelock.core.ports import Outcome, Renewal
from fencelock.errors import BackendUnavailable

__all__ = ["SPARE", "Renewals"]

SWEEP = 5.0
"""Seconds between two sweeps of a tenure."""
SPARE = 4
"""So many tenures are kept though nothing is in them: each ttl that a lease is extended to may leave one."""


class Renewals(Queues):
    """Requests that hold."""

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
            except (BackendUnavailable, TimeoutError) as error:
                if not getattr(error, "transient", True):
                    raise  # a right is missing, say: that is no matter of time
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
