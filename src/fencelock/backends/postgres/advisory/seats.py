"""The seats of a client: its connections, who uses them, and what becomes of them.

There are at most `pool_size`. Whoever needs one takes the first that is free, opens another, or waits until
one is free again; waiting in the server's queue leaves at least one seat for everybody else. A seat that
ends takes its locks with it: every lease on it is reported as lost, once, and nothing is ever asked for
again on its behalf.

Behind a pooler a seat is good for something only if the pooler gives it one session of the server for good.
That is found out when the first seat is opened, and every reply says which session it came from.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from fencelock.backends.postgres.address import Address
from fencelock.backends.postgres.advisory.flavours import TaskSeat, ThreadSeat
from fencelock.backends.postgres.advisory.seat import HELD, Hold, Seat
from fencelock.backends.postgres.advisory.settings import settings_for
from fencelock.backends.postgres.dialling import CONNECT, dial, dial_async
from fencelock.backends.postgres.failures import MISSING, Refused, closed, no_answer, no_connection, said
from fencelock.backends.postgres.failures import unreachable as not_reached
from fencelock.backends.postgres.link import Broken
from fencelock.backends.postgres.pools import OWN_PID
from fencelock.errors import BackendUnavailable, ConfigurationError, FencelockError
from fencelock.runtime import clock, locks
from fencelock.runtime.base import Runtime, Signal

__all__ = ["Seats", "another_session"]

LOOK_EVERY = 0.05
"""Whoever waits for a seat looks this often, should a call have been lost."""
SOON = 0.005
CLOSE_LIMIT = 0.5
CLOSED = "this client is closed"


def another_session(label: str) -> ConfigurationError:
    """A pooler in transaction mode is in between."""
    return ConfigurationError(
        f"{label}: a pooler in transaction mode is in between, and session locks do not survive that: "
        "connect to the server itself or to a pooler in session mode, or use postgresql://"
    )


class Seats:
    """The connections of one client. `who` is always the owner of a request, or an object of its own."""

    def __init__(
        self,
        address: Address,
        runtime: Runtime,
        dead_after: int,
        lost: Callable[[str, str], None],
        make_schema: Callable[[float], Awaitable[None]],
        keeps_sessions: Callable[[float], Awaitable[bool]],
    ) -> None:
        self.label = address.label
        self.holds: dict[str, Hold] = {}
        self._address = address
        self._runtime = runtime
        self._dead_after = dead_after
        self._enter = f'SELECT * FROM "{address.schema}".advisory_enter()'
        self._clear = f'DELETE FROM "{address.schema}".advisory_slots WHERE pid = pg_backend_pid()'
        self._lost = lost
        self.make_schema = make_schema
        self._keeps_sessions = keeps_sessions
        self._guard = locks.rlock()  # a signal handler may take a lock in the middle of taking one
        self._seats: list[Seat] = []
        self._opening: set[object] = set()
        self._waiting: set[object] = set()
        self._starved: deque[Signal] = deque()
        self._is_checked = False
        self._most = address.pool_size
        self._closed = False

    # Using a seat ---------------------------------------------------------------------------

    async def any(self, who: object, deadline: float) -> Seat:
        """Return a seat that is now `who`'s."""
        while True:
            seat = await self.one_without(None, who, deadline)
            if seat is not None:
                return seat

    async def one_without(self, key: bytes | None, who: object, deadline: float) -> Seat | None:
        """Return a seat that is now `who`'s and does not have the key; `None`: look again who has it."""
        seat = self._free_seat(who, key)
        if seat is not None:
            return seat

        def is_one_free() -> bool:
            return any(not seat.user and key not in seat.keys for seat in tuple(self._seats))

        if any(seat.waiting is None and key not in seat.keys for seat in tuple(self._seats)):
            await self._starve(
                self._starved, deadline, is_one_free, SOON
            )  # a step is short, connecting is not
            seat = self._free_seat(who, key)
            if seat is not None:
                return seat
        if self._may_open(who):
            try:
                return await self._open(who, deadline)
            except BackendUnavailable as error:
                if clock.now() < deadline:
                    raise
                raise no_connection(self.label, is_well=True) from error
        await self._starve(self._starved, deadline, is_one_free)
        return None

    async def for_a_wait(self, owner: str, deadline: float) -> Seat | None:
        """Return a seat that is now `owner`'s and has nothing; `None` if there is none to spare.

        It counts as waiting until `end_wait`.
        """
        with self._guard:
            if len(self._waiting - {owner}) >= self._address.pool_size - 1:
                return None
            self._waiting.add(owner)
        seat = self._free_seat(owner, None, empty=True)
        if seat is None and self._may_open(owner):
            with suppress(BackendUnavailable):  # the server has no connection left: poll
                seat = await self._open(owner, deadline)
        if seat is None:
            self._waiting.discard(owner)
        return seat

    def end_wait(self, owner: str) -> None:
        """The owner does not wait in the server's queue, or not any more."""
        self._waiting.discard(owner)

    def is_full(self, count: int) -> bool:
        """Whether there are no more seats than `count`, and there can be none."""
        return count >= len(self._seats) + len(self._opening) >= self._address.pool_size

    def _free_seat(self, who: object, key: bytes | None, *, empty: bool = False) -> Seat | None:
        if self._closed:
            raise closed()
        for seat in self._seats.copy():
            if key in seat.keys or (empty and seat.keys):
                continue
            if seat.user.setdefault(0, who) is who:
                if not seat.ended and key not in seat.keys and not (empty and seat.keys):
                    return seat
                self.free(seat, who)
        return None

    async def lock(self, seat: Seat, who: object, deadline: float) -> None:
        """Make `who` the seat's user."""
        while seat.user.setdefault(0, who) is not who and not seat.ended:  # one that has ended is never free
            await self._starve(seat.queue, deadline, lambda: not seat.user or bool(seat.ended))
        if seat.ended:
            self.free(seat, who)
            raise Broken(seat.ended)

    def free(self, seat: Seat, who: object) -> None:
        """The seat is not `who`'s any more, if it was."""
        if seat.user.get(0) is not who:
            return
        if seat.ended:
            seat.close()  # and nobody else uses it
        else:
            del seat.user[0]
        if seat.queue or self._starved:
            for queue in (seat.queue, self._starved):
                with suppress(IndexError):
                    queue.popleft().notify()

    def take_over(self, owner: object, who: object) -> list[Seat]:
        """What an interrupted call of `owner` left in use is `who`'s from now on."""
        with self._guard:
            self._opening.discard(owner)
            left = [seat for seat in self._seats if seat.user.get(0) is owner]
            # It waits on the server until it was cancelled there, for which a seat must be left.
            if all(seat.waiting is None for seat in left):
                self._waiting.discard(owner)
            for seat in left:
                seat.user[0] = who
            return left

    def has_answered(self, since: float) -> bool:
        """Whether the server has answered on any seat since then."""
        return any(seat.heard >= since for seat in tuple(self._seats))

    def having(self, key: bytes) -> list[Seat]:
        """Return the seats that have a key."""
        return [seat for seat in self._seats.copy() if key in seat.keys]

    async def _starve(
        self,
        queue: deque[Signal],
        deadline: float,
        is_over: Callable[[], bool],
        longest: float = LOOK_EVERY,
    ) -> None:
        left = deadline - clock.now()
        if left <= 0:
            raise no_connection(self.label, is_well=True)
        signal = self._runtime.signal()
        queue.append(signal)
        if not is_over():  # meanwhile, when nobody knew that there is somebody to call
            await signal.wait(min(left, longest))
        with suppress(ValueError):
            queue.remove(signal)

    # Opening and ending ---------------------------------------------------------------------

    def wake(self) -> None:
        """The client is closing: a step that a signal handler has interrupted for that may have a seat."""
        self._most += 1

    def _may_open(self, who: object) -> bool:
        with self._guard:
            if len(self._seats) + len(self._opening - {who}) >= self._most:
                return False
            self._opening.add(who)
            return True

    async def _open(self, who: object, deadline: float) -> Seat:
        """Return a new seat, which is `who`'s. `who` is one of those who may."""
        try:
            left = min(deadline - clock.now(), CONNECT)
            if left <= 0:
                raise no_answer(self.label)
            until = clock.now() + left
            if self._runtime.flavour == "asyncio":
                pg = await dial_async(self._address, left)
                seat: Seat = TaskSeat(pg, pg.backend_pid, self.died)
            else:
                pg = dial(self._address, left)
                seat = ThreadSeat(pg, pg.backend_pid, self.died)
            seat.user[0] = who
            try:
                await self._make_fit(seat, until, deadline)
                with self._guard:
                    if self._closed:  # meanwhile
                        raise closed()
                    self._seats.append(seat)
            except BaseException:
                self._end(seat, "it was not opened")
                seat.close()
                raise
            return seat
        finally:
            self._opening.discard(who)

    async def _make_fit(self, seat: Seat, until: float, deadline: float) -> None:
        script = f"{settings_for(self._dead_after, seat.pg.server_version)} {self._enter}"
        try:
            if not self._is_checked:  # before anything is set: it would be set in somebody else's session
                pid = int((await seat.run(OWN_PID, until)).get_value(0, 0))
                if pid != seat.pid and not await self._keeps_sessions(deadline):
                    raise another_session(self.label)
                self._is_checked = True
            try:
                result = await seat.run(script, until)
            except Refused as error:
                if error.state not in MISSING:
                    raise
                await self.make_schema(deadline)
                result = await seat.run(script, deadline)
            pid = int(result.get_value(0, 0))
        except Refused as error:
            raise said(self.label, error) from error
        except (Broken, TimeoutError) as error:
            raise not_reached(self.label, str(error)) from error
        seat.pid, seat.pid_text = pid, b"%d" % pid
        seat.reserved = int(result.get_value(0, 1))
        seat.is_proven = False

    def check(self, seat: Seat, result: Any) -> None:
        """Raise unless the reply came from the seat's own session."""
        if result.get_value(0, 0) != seat.pid_text:
            self.died(seat, "a pooler gave its session to somebody else")
            raise another_session(self.label)

    def died(self, seat: Seat, words: str) -> None:
        """The seat is of no use any more. May be called on any thread, and again."""
        with self._guard:
            if seat.ended:
                return
            seat.ended = words
            if seat in self._seats:
                self._seats.remove(seat)
            gone = [hold for holds in tuple(seat.keys.values()) for hold in tuple(holds) if hold.seat is seat]
            if seat.waiting is not None:
                self._waiting.discard(seat.waiting.request.owner)
            for hold in gone:
                if self.holds.get(hold.request.owner) is hold:
                    del self.holds[hold.request.owner]
        for hold in gone:
            if hold.state is HELD:
                self._lost(hold.request.owner, f"the session that held it has ended: {words}")
        closer = object()
        if seat.user.setdefault(0, closer) is closer:
            seat.close()
        else:
            seat.hang_up()  # its user closes it; if that never comes back, the session is over all the same
        for signal in tuple(seat.queue):
            signal.notify()

    async def close(self) -> None:
        """Close every connection; what is still in use ends with it."""
        self._closed = True
        closer = object()
        for seat in tuple(self._seats):
            if seat.user.setdefault(0, closer) is closer:
                # Only its rows: without them the next who connects has less to sweep.
                with suppress(Broken, TimeoutError, Refused, FencelockError):
                    await seat.run(self._clear, clock.now() + CLOSE_LIMIT)
                self._end(seat, CLOSED)
                seat.close()
            else:
                self._end(seat, CLOSED)
                seat.hang_up()  # its user closes it

    def _end(self, seat: Seat, words: str) -> None:
        with self._guard:
            seat.ended = seat.ended or words
            if seat in self._seats:
                self._seats.remove(seat)

    def finish(self) -> None:
        """Close every connection at once, without the runtime: its event loop may be gone."""
        self._closed = True
        for seat in tuple(self._seats):
            seat.ended = seat.ended or CLOSED
            with suppress(Exception):
                seat.close()
        self._seats.clear()

    def drop(self) -> None:
        """In a forked child: let go of every connection without telling the server."""
        for seat in tuple(self._seats):
            seat.drop()
