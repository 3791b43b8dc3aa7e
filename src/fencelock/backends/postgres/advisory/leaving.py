"""Letting go: release, and the clean-up after whatever was interrupted.

A request is registered before anything is sent for it, and stays so until it is certain that its session
has nothing of it: whatever happens, `abandon` finds it, reads off the reply that nobody took, and lets go.
Where that cannot be done the connection goes, if nothing else is at stake on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from fencelock.backends.postgres.address import Address
from fencelock.backends.postgres.advisory.keys import Keys
from fencelock.backends.postgres.advisory.seat import ASKED, Hold, Seat
from fencelock.backends.postgres.advisory.seats import Seats
from fencelock.backends.postgres.advisory.statements import FALSE, TRUE, Statements
from fencelock.backends.postgres.failures import Refused, no_answer, said
from fencelock.backends.postgres.failures import unreachable as not_reached
from fencelock.backends.postgres.link import Broken, Statement
from fencelock.backends.postgres.records import details
from fencelock.core.ports import Request
from fencelock.errors import BackendUnavailable, FencelockError
from fencelock.runtime import clock
from fencelock.runtime.base import Runtime

__all__ = ["Leaving"]

CANCEL_AGAIN = 0.02


class Leaving:
    """The requests of one client, and how they end."""

    def __init__(self, address: Address, runtime: Runtime, namespace: str, **hooks: Any) -> None:
        self.keys = Keys(namespace)
        self.seats = Seats(address, runtime, **hooks)
        self.holds = self.seats.holds
        self._statements = Statements(address.schema)
        self._block = f'SELECT reserved FROM "{address.schema}".advisory_block WHERE id = 0'
        self._polling: dict[bytes, list[Hold]] = {}  # by key, in the order in which they came
        self._runtime = runtime
        self._is_over = False

    def wake(self) -> None:
        """The client is closing: end every wait, and those that are still to come."""
        self._is_over = True
        self.seats.wake()
        for line in tuple(self._polling.values()):
            for hold in tuple(line):
                self._ring([hold])

    def new(self, request: Request) -> Hold:
        """Register a request."""
        hold = Hold(request, self.keys.find(request.name), details(request))
        self.holds[request.owner] = hold
        return hold

    async def _reply(
        self, seat: Seat, statement: Statement, values: Sequence[bytes | None], deadline: float
    ) -> Any:
        result = await seat.call(statement, values, deadline)
        if result.get_value(0, 0) != seat.pid_text:
            self.seats.check(seat, result)
        return result.get_value(0, 1)

    async def give(self, hold: Hold, deadline: float) -> bool:
        """Let go of what is held; say whether it was."""
        owner, seat = hold.request.owner, hold.seat
        assert seat is not None
        try:
            await self.seats.lock(seat, owner, deadline)
            if hold.shared:
                return await self._leave_locked(hold, seat, deadline)
            there = await self._reply(seat, self._statements.give, (hold.key.number,), deadline)
            self._off(hold)
            self.holds.pop(owner, None)
            return bool(there == TRUE)
        except Broken as error:
            raise not_reached(self.seats.label, str(error)) from error
        except TimeoutError as error:
            hold.state = ASKED
            raise no_answer(self.seats.label) from error
        except Refused as error:
            hold.state = ASKED
            raise said(self.seats.label, error) from error
        finally:
            self.seats.free(seat, owner)

    async def _leave(self, hold: Hold, deadline: float) -> None:
        """A reader that was not let in: it was counted on its seat nevertheless."""
        owner, seat = hold.request.owner, hold.seat
        assert seat is not None
        try:
            await self.seats.lock(seat, owner, deadline)
            await self._leave_locked(hold, seat, deadline)
            self.holds[owner] = hold
        except TimeoutError as error:
            raise no_answer(self.seats.label) from error
        except Refused as error:
            raise said(self.seats.label, error) from error
        finally:
            self.seats.free(seat, owner)

    async def _leave_locked(self, hold: Hold, seat: Seat, deadline: float) -> bool:
        is_last = len(seat.keys.get(hold.key.number, ())) <= 1
        values = (hold.key.number, b"%d" % hold.slot, TRUE if is_last else FALSE)
        there = await self._reply(seat, self._statements.leave, values, deadline)
        self._off(hold)
        self.holds.pop(hold.request.owner, None)
        return bool(there == TRUE)

    async def forget(self, hold: Hold, deadline: float) -> None:
        """A request that has nothing on the server is over."""
        await self._unnote(hold, deadline, hold.request.owner)
        self.holds.pop(hold.request.owner, None)

    async def abandon(self, request: Request, deadline: float) -> None:
        """Let go of whatever a request may have left, wherever it was interrupted."""
        who = object()  # not the owner: two may try to clean up after it
        hold = self.holds.get(request.owner)
        left = self.seats.take_over(request.owner, who)
        try:
            if hold is None:
                return
            for seat in left:
                if seat is not hold.seat:
                    self.seats.free(seat, who)
            is_told = await self._unnote(hold, deadline, who)
            await self.withdraw(hold, deadline, who)
            if not is_told:
                self.holds[request.owner] = hold  # to be found again
                raise no_answer(self.seats.label)
            self.holds.pop(request.owner, None)
        finally:
            for seat in left:  # cut short, it must not keep what the next attempt needs
                self.seats.free(seat, who)

    async def withdraw(self, hold: Hold, deadline: float, who: object) -> None:
        """Let go of what a request has, or may have, on its seat; if that cannot be, the seat goes."""
        number, seat = hold.key.number, hold.seat
        if seat is None:
            return
        try:
            await self.seats.lock(seat, who, deadline)
            if hold.seat is seat:
                if seat.waiting is hold:
                    await self._cancel(hold, seat, deadline)
                await self._undo_locked(hold, seat, deadline)
        except Broken:
            self.holds.pop(hold.request.owner, None)
        except (TimeoutError, Refused, BackendUnavailable) as error:
            if len(seat.keys) > 1 or len(seat.keys.get(number, ())) > 1:
                raise no_answer(self.seats.label) from error
            self.seats.died(seat, "it did not answer when a lock was to be let go")
        finally:
            self.seats.free(seat, who)

    async def _undo(self, hold: Hold, deadline: float) -> None:
        """A step failed: the request goes on, but has nothing."""
        if hold.seat is not None:
            with suppress(BackendUnavailable):
                await self.withdraw(hold, deadline, hold.request.owner)
                self.holds[hold.request.owner] = hold
                hold.state = ASKED

    async def _undo_locked(self, hold: Hold, seat: Seat, deadline: float) -> None:
        number, slot = hold.key.number, b"%d" % hold.slot
        statements = self._statements
        if len(seat.keys.get(number, ())) <= 1:
            shared = TRUE if hold.shared else FALSE
            await self._reply(seat, statements.drop, (number, shared), deadline)
        if hold.shared:
            await self._reply(seat, statements.leave, (number, slot, FALSE), deadline)
        seat.waiting = None
        self._end_wait(hold.request.owner)
        self._off(hold)
        self.holds.pop(hold.request.owner, None)

    async def _cancel(self, hold: Hold, seat: Seat, deadline: float) -> None:
        """End a wait on the server, at once."""
        who = object()
        values = (seat.pid_text, hold.key.number)
        again = CANCEL_AGAIN
        while seat.is_behind:
            other = await self.seats.any(who, deadline)
            try:
                await self._reply(other, self._statements.cancel, values, deadline)
            finally:
                self.seats.free(other, who)
            try:
                await seat.answer(min(deadline, clock.now() + again))
            except TimeoutError:
                again *= 2
                if clock.now() >= deadline:
                    raise
            except Refused:
                return

    def _off(self, hold: Hold) -> None:
        """The request has nothing on its seat any more."""
        seat = hold.seat
        if seat is None:
            return
        holds = seat.keys.get(hold.key.number, [])
        if hold in holds:
            if len(holds) == 1:
                del seat.keys[hold.key.number]
                if not seat.keys and seat.idle:
                    seat.rest()
            else:
                holds.remove(hold)
            seat.give_slot(hold.slot)
        hold.seat = None

    # Those who come back --------------------------------------------------------------------

    def _is_first(self, hold: Hold) -> bool:
        """Whether nobody else of this client came before and comes back for the same lock."""
        line = self._polling.get(hold.key.number)
        while line and line[0] is not hold:
            first = line[0]
            if self.holds.get(first.request.owner) is first:
                return False
            self._leave_line(first)  # it was interrupted on its way out
        return True

    def _leave_line(self, hold: Hold) -> None:
        line = self._polling.get(hold.key.number, [])
        if hold in line:
            line.remove(hold)
            if not line:
                self._polling.pop(hold.key.number, None)
            else:
                self._ring(line)

    def _end_wait(self, owner: str) -> None:
        """There is room in the server's queue: let those look who have none there."""
        self.seats.end_wait(owner)
        if self._polling:
            for line in tuple(self._polling.values()):
                self._ring(line)

    def _ring(self, line: Sequence[Hold]) -> None:
        for first in line[:1]:
            if first.bell is not None:
                first.bell.notify()

    async def _unnote(self, hold: Hold, deadline: float, who: object, mine: Seat | None = None) -> bool:
        """It does not come back any more; say whether nobody sees it any more.

        `who` has the seat `mine`, and keeps it.
        """
        self._leave_line(hold)
        noted = hold.noted
        if noted is None:
            return True
        seat, slot = noted
        free = seat  # to speak on; not its own if that is in use, perhaps by what this interrupts
        try:
            is_used = seat.waiting is not None or seat.user.get(0, who) is not who
            if is_used and seat is not mine and not seat.ended:
                who = object()  # or it would be given the seat that it waits on
                free = await self.seats.any(who, deadline)
            await self.seats.lock(free, who, deadline)
            if hold.noted is noted:  # nobody else has cleaned up meanwhile
                values = (seat.pid_text, b"%d" % slot)
                await self._reply(free, self._statements.unnote, values, deadline)
                hold.noted = None
                seat.give_slot(slot)
        except Broken:
            if not seat.ended:
                return False
            hold.noted = None  # it went with its session
        except (TimeoutError, Refused, FencelockError):
            return False  # it goes by its deadline, if nobody asks again
        finally:
            if free is not mine:
                self.seats.free(free, who)
        return True
