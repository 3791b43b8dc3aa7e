"""One schedule on one host: look, take a turn, end it.

    look    read the record: what is due, and if nothing, when to look again
    take    try the lock; then, in one change of the record: what another has left running has crashed,
            what is due now, and that it has begun. Nothing is due any more: give the lock back
    end     write how it went, if no newer token has written

Each tick is run once, and here is why. Whoever runs a tick has the lock and has moved the record's cursor to
that tick *before* the work begins, by a write that fails if the record has changed since it was read. So of
any number of hosts one succeeds; the others find the cursor there. No clock takes part in this argument. A
host that is paused between lock and write may write after its lease was lost: then either somebody with a
newer token wrote before it and it is refused, or it is the one that moved the cursor. It looks at its lease
once more before it works: if that is lost it takes back what it wrote, or, if it cannot any more, the next
holder of the lock takes it for a crash.

A host that dies in the middle has moved the cursor: its tick is run again only by `after_crash="again"`, when
`at_most_for` is over. The lock is not what makes a tick unique, it keeps two ticks of a schedule from running
at the same time. `at_least_for` keeps it longer than the work takes: with the record that is a second fence
behind the first, for those who gave the record a store that may forget.

NOT promised: that work which ignores the loss of its lease stops, nor that a tick whose host died left no
trace. A resource that must not see it twice compares `tick.token` (`fencelock.fencing`) or takes the tick as
a key (`fencelock.idempotency`).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, NamedTuple

from fencelock.connections import settled
from fencelock.errors import BackendError, BackendUnavailable, StaleToken
from fencelock.schedule.book import Book
from fencelock.schedule.plan import Moment, Plan, Policy, plan
from fencelock.schedule.records import CRASHED, RUNNING, TIMED_OUT, Record, Run

__all__ = ["Clocks", "Turn", "Turns"]

BUSY, LONG_BUSY = 1.0, 5.0
"""Seconds between two tries of a lock that somebody has, at most: before and after that is in the record."""
FIRST_RETRY, LAST_RETRY = 0.5, 15.0
"""Seconds between two tries of a store that is away: from the one, doubling, to the other."""
PERSISTENCE = 30.0
"""Seconds for which the end of a run is tried to be written."""

log = logging.getLogger("fencelock")


class Clocks(NamedTuple):
    """How time passes here."""

    wall: Callable[[], float]
    """The time of day, for ticks."""
    now: Callable[[], float]
    """A monotonic clock, for everything else."""
    pause: Callable[[float], Awaitable[None]]
    """Wait so many seconds, or less if the schedule is stopped."""
    sleep: Callable[[float], Awaitable[None]]
    """Wait so many seconds."""


class Turn:
    """The right to run one tick, and the lease under which it runs."""

    def __init__(self, lease: Any, run: Run, cursor: int, began: float) -> None:
        self.lease = lease
        self.run = run
        self.cursor = cursor
        """Where the record's cursor stood before."""
        self.began = began
        self.is_expired = False


class Turns:
    """One schedule on one host."""

    def __init__(
        self,
        name: str,
        policy: Policy,
        book: Book,
        lock: Any,
        host: str,
        clocks: Clocks,
        *,
        before: int | None = None,
    ) -> None:
        self.name = name
        self.policy = policy
        self.book = book
        self.clocks = clocks
        self._lock = lock
        self._host = host
        self._before = before
        self.seen: dict[tuple[int, int], float] = {}
        """When the last run was first seen here, for a store that has no clock."""
        self.retry: int | None = None
        """The token of a run that is run again unless it ended well."""

    async def look(self, *, retry_failed: bool = False) -> Plan:
        """Say what is due, by the record as it stands.

        With `retry_failed` the newest run is due again if it did not end well: this run only, here and in
        what follows.
        """
        record, now = await self.book.open(self.name, self._before)
        if retry_failed and record.last is not None:
            self.retry = record.last.token
        return replace(plan(self.policy, record, self._moment(record, now), self.retry), last=record.last)

    async def take(self) -> Turn | None:
        """Begin what is due; `None` if nothing is, or somebody else has the lock."""
        lease = await settled(self._lock.try_acquire())
        if lease is None:
            return None
        turn = None
        try:
            begun = await self._begin(lease, self.clocks.now())
            if begun is not None and lease.is_held():
                turn = begun
            elif begun is not None:
                await self.withdraw(begun)
        except StaleToken as error:
            log.warning("schedule %r: overtaken before it began: %s", self.name, error)
        finally:
            if turn is None:
                await self._release(lease)
        return turn

    async def _begin(self, lease: Any, at: float) -> Turn | None:
        cursor = 0
        chosen: int | None = None

        def begin(record: Record, now: float | None) -> Record:
            nonlocal cursor, chosen
            record = record.claimed(lease.token, self._at(now))
            cursor = record.cursor
            chosen = plan(self.policy, record, self._moment(record, now), self.retry).tick
            return record if chosen is None else record.begun(chosen, lease.token, self._host, self._at(now))

        record = await self.book.change(self.name, begin)
        if chosen is None or record.last is None:
            return None
        return Turn(lease, record.last, cursor, at)

    def _at(self, now: float | None) -> float:
        """Return the time to write down: the store's if it has one, for people to read otherwise."""
        return self.clocks.wall() if now is None else now

    def _moment(self, record: Record, now: float | None) -> Moment:
        last = record.last
        since = 0.0
        if last is not None and last.state in {CRASHED, RUNNING}:
            if now is not None:
                since = now - last.started
            else:
                key = last.tick, last.attempt
                if key not in self.seen:
                    self.seen.clear()
                    self.seen[key] = self.clocks.now()
                since = self.clocks.now() - self.seen[key]
        return Moment(self.clocks.wall(), now, since)

    # The end ------------------------------------------------------------------------------------

    async def finish(
        self, turn: Turn, state: str, detail: str = "", exit_status: int | None = None
    ) -> Run | None:
        """Conclude a turn and give the lock back."""
        try:
            return await self.conclude(turn, state, detail, exit_status)
        finally:
            await self._release(turn.lease)

    async def conclude(
        self, turn: Turn, state: str, detail: str = "", exit_status: int | None = None
    ) -> Run | None:
        """Write how a turn has ended, and keep the lock for `at_least_for`.

        Returns the run as it was written; `None` if the record was refused or could not be written.
        """
        run = await self._end(turn.run, state, detail, exit_status)
        left = self.policy.at_least_for - (self.clocks.now() - turn.began)
        if left > 0 and turn.lease.is_held():
            await self.clocks.pause(left)
        if turn.is_expired:
            await turn.lease._lock.session.cleanups.undo(turn.lease._hold.request)
        return run

    async def expire(self, turn: Turn) -> None:
        """Its time is over: write that down, then let its lease count as lost, which tells the work.

        The lock itself stays taken until the work has ended or the ttl is over.
        """
        limit = f"at_most_for of {self.policy.at_most_for:g}s is over"
        turn.is_expired = True
        await self._end(turn.run, TIMED_OUT, limit)
        lease = turn.lease
        lease._lock.session.holds.lose(lease._hold, limit, gone=True)

    async def withdraw(self, turn: Turn) -> None:
        """Take back that a turn has begun, before any of its work: then it is due again, for all hosts."""
        try:
            await self.book.change(
                self.name, lambda record, now: record.withdrawn(turn.run.token, turn.cursor)
            )
        except (StaleToken, BackendError) as error:
            log.warning("schedule %r, tick %d was not begun: %s", self.name, turn.run.tick, error)

    async def _end(self, run: Run, state: str, detail: str, exit_status: int | None = None) -> Run | None:
        give_up = self.clocks.now() + PERSISTENCE
        while True:
            try:
                record = await self.book.change(
                    self.name,
                    lambda record, now: record.ended(run.token, state, detail, self._at(now), exit_status),
                )
                return record.last
            except StaleToken as error:
                log.warning("schedule %r, tick %d: the record is refused: %s", self.name, run.tick, error)
                return None
            except BackendError as error:
                is_final = isinstance(error, BackendUnavailable) and not error.transient
                if is_final or self.clocks.now() >= give_up:
                    log.error(
                        "schedule %r, tick %d: not recorded as %s: %s", self.name, run.tick, state, error
                    )
                    return None
                await self.clocks.sleep(FIRST_RETRY)  # also when stopped: somebody would take it for a crash

    async def _release(self, lease: Any) -> None:
        try:
            await settled(lease.release())
        except BackendError as error:
            log.warning("schedule %r: the lock is free after its ttl of %gs: %s", self.name, lease.ttl, error)

    # The loop -----------------------------------------------------------------------------------

    async def serve(self, work: Callable[[Turn], Awaitable[None]], is_stopped: Callable[[], bool]) -> None:
        """Run each tick as it comes, until stopped. A store that is away is waited for."""
        retry = FIRST_RETRY
        while not is_stopped():
            try:
                todo = await self.look()
                if todo.tick is not None and self.policy.jitter:
                    await self.clocks.pause(self.policy.jitter * random.random())
                turn = None
                if todo.is_worth_a_try and not is_stopped():
                    turn = await self.take()
                if turn is not None:
                    await work(turn)
                elif todo.tick is not None:
                    busy = LONG_BUSY if todo.is_unclear else BUSY
                    await self.clocks.pause(min(busy, self._lock.terms.ttl / 6) * (0.5 + random.random()))
                else:
                    check = self._lock.terms.ttl / 2 if todo.is_unclear else todo.wait
                    await self._sleep(min(todo.wait, check), is_stopped)
                retry = FIRST_RETRY
            except BackendError as error:
                if isinstance(error, BackendUnavailable) and not error.transient:
                    raise
                log.warning("schedule %r: %s (trying again)", self.name, error)
                await self.clocks.pause(retry * (0.5 + random.random()))
                retry = min(LAST_RETRY, retry * 2)

    async def _sleep(self, seconds: float, is_stopped: Callable[[], bool]) -> None:
        """Wait by the time of day, looked at often: it may be set, and the machine may sleep."""
        until = self.clocks.wall() + seconds
        while not is_stopped():
            left = min(until - self.clocks.wall(), seconds)
            if left <= 0:
                return
            await self.clocks.pause(min(left, 5.0))
