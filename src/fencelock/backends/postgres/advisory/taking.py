"""Taking: a try on any connection that does not have the key.

Readers. A session that has a lock shared gets it again at once, past a writer that waits. So one more
reader of a client asks on a session that does not have it, and is turned away there like anybody; if it is
let in, it joins the session that has it, and the one that asked lets go again, all in one call.
"""

from __future__ import annotations

from collections.abc import Sequence

from fencelock.backends.postgres.advisory.leaving import Leaving
from fencelock.backends.postgres.advisory.seat import ASKED, HELD, Hold, Seat
from fencelock.backends.postgres.advisory.statements import FALSE, TRUE
from fencelock.backends.postgres.failures import MISSING, Refused, no_answer, said
from fencelock.backends.postgres.failures import unreachable as not_reached
from fencelock.backends.postgres.link import Broken
from fencelock.core.ports import PoolExhausted
from fencelock.runtime import clock

__all__ = ["Taking"]


FIRST = 1_000_000_000_000_000
"""No token is smaller: what is comes from a sequence that was just made. See schema.sql."""


class Fresh(Broken):
    """A connection broke that had never answered: another one would break too."""


class Taking(Leaving):
    """How requests take a lock that is free."""

    async def take(self, hold: Hold, deadline: float) -> bool:
        """Try once; say whether it is granted."""
        began = clock.now()
        try:
            return await self._take(hold, deadline)
        except PoolExhausted as error:
            if self.seats.has_answered(began):
                raise
            raise no_answer(self.seats.label) from error

    async def _take(self, hold: Hold, deadline: float) -> bool:
        number = hold.key.number
        if self._polling and not self._is_first(hold):
            return False
        made = False
        while True:
            having = self.seats.having(number)  # usually none
            home = None
            if having:
                held = [
                    seat for seat in having if any(one.state is HELD for one in seat.keys.get(number, ()))
                ]
                if held and not (hold.shared and all(one.shared for one in held[0].keys.get(number, ()))):
                    return False  # this client has it
                if held and not await self._make_room(having, held, number, deadline):
                    return False
                home = held[0] if held else None
            try:
                if home is None:
                    answer = await self._take_on(hold, None, deadline)
                else:
                    answer = await self._join(hold, home, deadline)
                if answer is not None:
                    return answer
            except Broken as error:
                self.holds[hold.request.owner] = hold  # it lives on, without the seat
                hold.state, hold.seat = ASKED, None
                if clock.now() >= deadline or isinstance(error, Fresh):
                    raise not_reached(self.seats.label, str(error)) from error
            except TimeoutError as error:
                raise no_answer(self.seats.label) from error
            except Refused as error:
                if made or error.state not in MISSING:
                    raise said(self.seats.label, error) from error
                await self.seats.make_schema(deadline)  # somebody has dropped it
                made = True

    async def _take_on(self, hold: Hold, home: Seat | None, deadline: float) -> bool | None:
        """Ask on some seat, for itself or on behalf of `home`. `None`: nobody was asked, look again."""
        owner, number = hold.request.owner, hold.key.number
        try:
            seat = await self.seats.one_without(number, owner, deadline)
        except PoolExhausted as error:
            if home is None:
                raise
            raise no_answer(self.seats.label) from error  # the other seat counts this reader already
        if seat is None:
            return None
        was_proven = seat.is_proven
        try:
            if home is None:
                hold.slot = seat.new_slot()
                hold.seat = seat
                seat.keys[number] = [hold]
            token = await self._ask(hold, seat, home, deadline)
            if token is None:
                if home is None:
                    self._off(hold)
                return False
            hold.token = int(token)
            hold.state = HELD
            if (home or seat).ended:  # meanwhile, and nobody was told of it
                raise Broken((home or seat).ended)
            if hold.token >= seat.reserved:
                await self._learn_block(seat, deadline)
        except Broken as error:
            if was_proven or home is not None:
                raise
            raise Fresh(str(error)) from error
        except Refused:
            self.seats.free(seat, owner)
            await self._undo(hold, deadline)
            raise
        finally:
            self.seats.free(seat, owner)
        if self._polling or hold.noted is not None:
            await self._unnote(hold, deadline, hold.request.owner)
        return True

    async def _ask(self, hold: Hold, seat: Seat, home: Seat | None, deadline: float) -> bytes | None:
        """Ask on this seat; return the token, or `None`."""
        number, slot = hold.key.number, b"%d" % hold.slot
        owner, ttl = hold.request.owner.encode(), repr(hold.request.ttl).encode()
        idle = seat.idle_for(hold.request.ttl) if home is None else None
        if home is None and idle is None and not hold.shared and hold.slot in seat.rows:
            # Nothing has to be made or told: the lock, the number and the row in one plain statement.
            values = (number, slot, hold.key.place, owner, ttl, hold.details)
            result = await seat.call(self._statements.quick, values, deadline)
            if result.ntuples:
                self.seats.check(seat, result)
                token: bytes = result.get_value(0, 1)
                if FIRST <= int(token) <= seat.reserved:
                    return token
                await self._reply(seat, self._statements.give, (number,), deadline)
        shared, pid = (TRUE if hold.shared else FALSE), (home or seat).pid_text
        reserved = b"%d" % seat.reserved
        more = (number, shared, pid, slot, hold.key.place, owner, ttl, hold.details, reserved, idle)
        answer: bytes | None = await self._reply(seat, self._statements.take, more, deadline)
        if answer is not None:
            seat.note_idle(idle)
            (home or seat).rows.add(hold.slot)
        return answer

    async def _learn_block(self, seat: Seat, deadline: float) -> None:
        """The block that the seat knew of is used up: see how far the next one reaches."""
        result = await seat.run(self._block, deadline)
        if result.ntuples:
            seat.reserved = int(result.get_value(0, 0))

    async def _join(self, hold: Hold, home: Seat, deadline: float) -> bool | None:
        """One more reader: if let in, it shares what `home` has. `None`: that has changed, look again."""
        owner, number = hold.request.owner, hold.key.number
        try:
            await self.seats.lock(home, owner, deadline)
            others = home.keys.get(number, [])
            # As in `_take`, or it would come back here for ever: the first may be on its way in or out.
            if not others or not others[0].shared or all(one.state is not HELD for one in others):
                return None
            hold.slot = home.new_slot()
            hold.seat = home
            others.append(hold)  # from now on nobody else is the last to leave
            idle = home.idle_for(hold.request.ttl)
            if idle is not None:
                await self._reply(home, self._statements.idle, (idle,), deadline)
                home.note_idle(idle)
        finally:
            self.seats.free(home, owner)
        try:
            answer = await self._take_on(hold, home, deadline)
        except Broken:
            if not home.ended:  # the one that asked has broken: the other still counts this reader
                await self._leave(hold, deadline)
            raise
        if not answer:
            await self._leave(hold, deadline)
        return answer

    async def _make_room(
        self, having: Sequence[Seat], held: Sequence[Seat], number: bytes, deadline: float
    ) -> bool:
        """See to it that there is a seat without the key; say whether there is."""
        if not self.seats.is_full(len(having)):
            return True
        for seat in held[1:]:
            if len(seat.keys) == 1 and len(seat.keys.get(number, ())) == 1:
                await self._merge(held[0], seat, number, deadline)
                return True
        return False

    async def _merge(self, home: Seat, seat: Seat, number: bytes, deadline: float) -> None:
        """Let the one reader on `seat` share what `home` has; `seat` is then free of it."""
        who = object()
        try:
            await self.seats.lock(home, who, deadline)
            await self.seats.lock(seat, who, deadline)
            others, mine = home.keys.get(number), seat.keys.get(number)
            if (
                not others
                or not mine
                or {one.state for one in (*others, *mine)} != {HELD}
                or len(seat.keys) > 1
            ):
                return
            (hold,) = mine
            old, hold.slot, hold.seat = hold.slot, home.new_slot(), home
            others.append(hold)
            try:
                values = (number, b"%d" % old, home.pid_text, b"%d" % hold.slot)
                await self._reply(seat, self._statements.move, values, deadline)
            except BaseException:
                self.seats.died(seat, "it was in doubt")  # it has nothing else
                raise
            home.rows.add(hold.slot)
            seat.rows.discard(old)
            del seat.keys[number]
            seat.give_slot(old)
        except (TimeoutError, Refused):
            return
        finally:
            self.seats.free(seat, who)
            self.seats.free(home, who)
