"""Waiting: in the server's queue, on a connection that has nothing else, or by coming back.

A wait in the queue is one statement, sent and not waited for; its reply comes when the lock does, whoever
looks. It has no end of its own, since who leaves the queue loses its place, unless the whole request ends
soon.

Whoever is granted the lock has the time of a waiter, a few seconds, to show that it is alive: then it is
given a whole ttl. So one that was stopped in the queue does not keep the others for longer.
"""

from __future__ import annotations

from typing import Any

from fencelock.backends.postgres.advisory.leaving import Leaving
from fencelock.backends.postgres.advisory.seat import ASKED, HELD, POLLING, WAITING, Hold, Seat
from fencelock.backends.postgres.advisory.statements import FALSE, TRUE
from fencelock.backends.postgres.failures import Refused, no_answer, said
from fencelock.backends.postgres.failures import unreachable as not_reached
from fencelock.backends.postgres.link import Broken
from fencelock.core.ports import patience
from fencelock.runtime import clock

__all__ = ["Waiting"]

NEAR = 3.0
"""A step that has less time than this has no more because the whole request has not."""
AFTERWARDS = 1.0
"""Seconds after its deadline at which a wait ends by itself, should its client not end it."""
CONFIRM = 1.0
LOOK_EVERY = 0.05
"""A wait looks this often whether its client is closing: the server does not know."""


class Waiting(Leaving):
    """How requests wait."""

    async def stand(self, hold: Hold, deadline: float) -> None:
        """Stand in the server's queue, or come back."""
        owner, number = hold.request.owner, hold.key.number
        seat = await self.seats.for_a_wait(owner, deadline) if self._is_first(hold) else None
        if seat is None:
            await self._note(hold, deadline)
            return
        try:
            hold.slot = seat.new_slot()
            hold.seat = seat
            seat.keys[number] = [hold]
            await self._reply(seat, self._statements.stand, self._standing(hold, b"1", hold.slot), deadline)
            await self._unnote(hold, deadline, owner, seat)
            await seat.prepare(self._statements.queue, deadline)  # without an answer it does not wait there
            seat.waiting = hold
            hold.state = WAITING
            left = deadline - clock.now()
            limit = b"%d" % ((left + AFTERWARDS) * 1000) if left < NEAR else b"0"
            shared = TRUE if hold.shared else FALSE
            idle = self._turn_idle(hold, seat)
            ttl, reserved = repr(hold.request.ttl).encode(), b"%d" % seat.reserved
            values = (number, shared, b"%d" % hold.slot, ttl, limit, reserved, idle)
            await seat.begin(self._statements.queue, values, deadline)
        except Broken as error:
            self.holds[owner] = hold
            hold.state, hold.seat = ASKED, None
            raise not_reached(self.seats.label, str(error)) from error
        except TimeoutError as error:
            raise no_answer(self.seats.label) from error
        except Refused as error:
            raise said(self.seats.label, error) from error
        finally:
            if hold.state is not WAITING:
                self._end_wait(owner)
                self.seats.free(seat, owner)

    async def await_turn(self, hold: Hold, deadline: float) -> bool:
        """Wait for the server's word until `deadline`; say whether it is granted."""
        seat = hold.seat
        assert seat is not None
        try:
            result = await self._answered(seat, deadline)
            self.seats.check(seat, result)
            token = result.get_value(0, 1)
        except TimeoutError:
            return False
        except Broken as error:
            raise not_reached(self.seats.label, str(error)) from error
        except Refused as error:
            await self.withdraw(hold, clock.now() + 1.0, hold.request.owner)
            raise said(self.seats.label, error) from error
        if token is None:
            self._off(hold)
            hold.state = ASKED
        else:
            hold.token = int(token)
            hold.state = HELD
            if seat.ended:  # meanwhile, and nobody was told of it
                raise not_reached(self.seats.label, seat.ended)
        seat.waiting = None
        self._end_wait(hold.request.owner)
        try:
            if token is not None:
                await self._confirm(hold, seat)
        finally:
            self.seats.free(seat, hold.request.owner)
        return token is not None

    async def _answered(self, seat: Seat, deadline: float) -> Any:
        while not self._is_over:
            try:
                return await seat.answer(min(deadline, clock.now() + LOOK_EVERY))
            except TimeoutError:
                if clock.now() >= deadline:
                    raise
        raise TimeoutError

    async def _confirm(self, hold: Hold, seat: Seat) -> None:
        """It is alive, and has the lock for a whole ttl: until now it was given the time of a waiter."""
        seat.note_idle(self._turn_idle(hold, seat))
        idle = seat.idle_for(hold.request.ttl)
        if idle is None:
            return
        try:
            await self._reply(seat, self._statements.idle, (idle,), clock.now() + CONFIRM)
            seat.note_idle(idle)
        except Broken as error:
            raise not_reached(self.seats.label, str(error)) from error
        except (TimeoutError, Refused):
            return  # the next renewal tells it

    def _turn_idle(self, hold: Hold, seat: Seat) -> bytes | None:
        """How long the server waits for a sign of life from somebody whose turn has come."""
        return seat.idle_for(min(hold.request.ttl, patience(hold.request.ttl)))

    async def _note(self, hold: Hold, deadline: float) -> None:
        """Let others see that it waits, by coming back."""
        if hold.noted is not None and hold.noted[0].ended:
            hold.noted = None
        if hold.state is not POLLING:
            hold.bell = self._runtime.signal()
            hold.state = POLLING
            line = self._polling.setdefault(hold.key.number, [])
            if hold not in line:
                line.append(hold)
        owner = hold.request.owner
        if hold.noted is None:
            seat = await self.seats.any(owner, deadline)
            hold.noted = seat, seat.new_slot()
        else:
            seat = hold.noted[0]
        try:
            await self.seats.lock(seat, owner, deadline)
            values = self._standing(hold, b"2", hold.noted[1])
            await self._reply(seat, self._statements.stand, values, deadline)
        except (Broken, TimeoutError, Refused):
            return  # nobody sees it, that is all
        finally:
            self.seats.free(seat, owner)

    def _standing(self, hold: Hold, waiting: bytes, slot: int) -> tuple[bytes, ...]:
        return (
            hold.key.number,
            TRUE if hold.shared else FALSE,
            waiting,
            b"%d" % slot,
            hold.key.place,
            hold.request.owner.encode(),
            repr(patience(hold.request.ttl)).encode(),
            hold.details,
        )
