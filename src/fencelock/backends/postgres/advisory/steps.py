"""What a request does on its way: try, stand in line, be granted, let go; and what is done for all at once.

One coroutine for each step, for both flavours: `taking.py`, `waiting.py`,
`leaving.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from fencelock.backends.postgres.advisory.keys import Key
from fencelock.backends.postgres.advisory.seat import GRACE, HELD, Hold, Seat
from fencelock.backends.postgres.advisory.statements import FALSE, TRUE
from fencelock.backends.postgres.advisory.taking import Taking
from fencelock.backends.postgres.advisory.waiting import Waiting
from fencelock.backends.postgres.failures import FORBIDDEN, MISSING, Refused, no_answer, said
from fencelock.backends.postgres.failures import unreachable as not_reached
from fencelock.backends.postgres.link import Broken, Statement
from fencelock.core.ports import Outcome, Renewal
from fencelock.errors import BackendUnavailable
from fencelock.runtime import clock

__all__ = ["Steps"]

ANSWERS = {"r": Outcome.RENEWED, "h": Outcome.HELD, "l": Outcome.LOST}


class Steps(Taking, Waiting):
    """The requests of one client, on their whole way."""

    async def renew(self, renewals: Sequence[Renewal], deadline: float) -> list[Outcome]:
        """See that the sessions are there, and show the new deadlines."""
        now = clock.now()
        await self._let_go_of_the_late(now, deadline)
        outcomes = [Outcome.LOST] * len(renewals)
        by_seat: dict[Seat, list[tuple[int, Hold]]] = {}
        for index, renewal in enumerate(renewals):
            hold = self.holds.get(renewal.request.owner)
            if hold is None or hold.state is not HELD or hold.token != renewal.token or hold.seat is None:
                continue
            if hold.deadline > now:
                by_seat.setdefault(hold.seat, []).append((index, hold))
                if renewal.extend:
                    hold.ttl = renewal.ttl
        left = len(by_seat)
        for seat, asked in by_seat.items():
            until = min(deadline, clock.now() + max(0.5, (deadline - clock.now()) / left))
            left -= 1
            answers = await self._renew_on(seat, [(renewals[index], hold) for index, hold in asked], until)
            for (index, hold), outcome in zip(asked, answers, strict=True):
                outcomes[index] = outcome
                if outcome is Outcome.RENEWED:
                    end = now + renewals[index].ttl
                    hold.deadline = end if renewals[index].exact else max(hold.deadline, end)
        return outcomes

    async def _let_go_of_the_late(self, now: float, deadline: float) -> None:
        """What was not renewed in time is over, whoever failed to say so."""
        for hold in list(self.holds.values()):
            if hold.state is HELD and hold.deadline + GRACE <= now and hold.seat is not None:
                with suppress(BackendUnavailable):
                    await self.withdraw(hold, deadline, object())

    async def _renew_on(
        self, seat: Seat, asked: Sequence[tuple[Renewal, Hold]], deadline: float
    ) -> list[Outcome]:
        keys = b",".join(hold.key.number for _, hold in asked)
        slots = b",".join(b"%d" % hold.slot for _, hold in asked)
        ttls = b",".join(repr(one.ttl).encode() if one.extend else b"NULL" for one, _ in asked)
        exact = b",".join(TRUE if one.exact else FALSE for one, _ in asked)
        who = object()
        try:
            await self.seats.lock(seat, who, deadline)
            longest = max(hold.ttl for holds in tuple(seat.keys.values()) for hold in tuple(holds))
            idle = seat.idle_for(longest, exact=True)
            values = (*(b"{%b}" % column for column in (keys, slots, ttls, exact)), idle)
            try:
                letters = await self._reply(seat, self._statements.renew, values, deadline)
            except Refused as error:
                if error.state not in MISSING:
                    raise
                await self.seats.make_schema(deadline)  # somebody has dropped it, or it is an older one
                letters = await self._reply(seat, self._statements.renew, values, deadline)
            seat.note_idle(idle)
        except Broken:
            return [Outcome.LOST] * len(asked)
        except Refused as error:
            if error.state == FORBIDDEN:
                raise said(self.seats.label, error) from error
            return [Outcome.UNKNOWN] * len(asked)
        except (TimeoutError, BackendUnavailable):
            return [Outcome.UNKNOWN] * len(asked)
        finally:
            self.seats.free(seat, who)
        return [ANSWERS[letter] for letter in letters.decode()]

    async def look(self, key: Key, deadline: float) -> Any:
        """Return the rows of one key."""
        return await self._look(self._statements.inspect, (key.number, key.place), deadline)

    async def list(self, prefix: str, deadline: float) -> Any:
        """Return the rows of all names with a prefix."""
        return await self._look(self._statements.list, self.keys.range_of(prefix), deadline)

    async def _look(self, statement: Statement, values: Sequence[bytes], deadline: float) -> Any:
        who = object()
        while True:
            seat = await self.seats.any(who, deadline)
            was_proven = seat.is_proven
            try:
                return await seat.call(statement, values, deadline)
            except Broken as error:
                if not was_proven or clock.now() >= deadline:
                    raise not_reached(self.seats.label, str(error)) from error
            except TimeoutError as error:
                raise no_answer(self.seats.label) from error
            except Refused as error:
                raise said(self.seats.label, error) from error
            finally:
                self.seats.free(seat, who)
