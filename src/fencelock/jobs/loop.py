"""One run of a worker, in both flavours: slots that take a job, do it, and take the next; and a keeper.

The keeper gives the rows of what still runs more time, once in a quarter of the ttl. It learns there that a
job was taken over or cancelled. When the worker is stopped no job is begun any more; what is not ended after
the grace is given back: its lease is over, and whatever its handler still does is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fencelock.errors import BackendError
from fencelock.jobs import steps
from fencelock.jobs.attempt import Attempts, Held
from fencelock.jobs.feed import Feed
from fencelock.jobs.hands import Hands
from fencelock.jobs.job import RUNNING, JobBase
from fencelock.jobs.leases import RowLease
from fencelock.jobs.links import Link
from fencelock.jobs.outcomes import Backoff, Tally
from fencelock.jobs.ways import Got, Unlocked, Way

__all__ = ["Loop", "Terms"]

LOOK = 1.0
AFTER_GRACE = 2.0
"""Seconds for slots to end after what they did was given back."""
KEEPER = -1

log = logging.getLogger("fencelock.jobs")


@dataclass(frozen=True)
class Terms:
    """What a worker was told."""

    concurrency: int
    ttl: float
    poll: float
    attempts: int
    backoff: Backoff
    grace: float


class Loop:
    """One run."""

    def __init__(
        self,
        hands: Hands,
        way: Way,
        terms: Terms,
        handlers: Mapping[str, Callable[[Any], Any]],
        links: Callable[[], Link],
        make_job: Callable[[Got, Link], JobBase],
        *,
        once: bool,
    ) -> None:
        self._hands = hands
        self._runtime = hands.runtime
        self._way = way
        self._terms = terms
        self._links = links
        self._make_job = make_job
        self.held: dict[int, Held] = {}
        self._feed = Feed(
            hands,
            way,
            poll=terms.poll,
            once=once,
            idle=lambda: terms.concurrency - len(self.held),
            on_lost=self._lost,
        )
        self._attempts = Attempts(hands, way, handlers, attempts=terms.attempts, backoff=terms.backoff)
        self._bell, self._alarm = self._runtime.signal(), self._runtime.signal()
        self._ended: list[int] = []
        self._failure: BaseException | None = None
        self._stop_at: float | None = None
        self.is_over = False

    def tally(self) -> Tally:
        """Return what was done so far."""
        return self._attempts.ledger.tally()

    def stop(self, grace: float) -> None:
        """Begin no job any more; those under way have `grace` seconds. From any thread or signal handler."""
        until = self._runtime.now() + grace
        self._stop_at = until if self._stop_at is None else min(self._stop_at, until)
        self._feed.close()
        self._bell.notify()

    async def run(self) -> Tally:
        """Work until stopped; with `once`, until nothing is to be done."""
        keeper = self._runtime.spawn(self._guarded(KEEPER, self._keep()), "fencelock-jobs-keeper")
        slots = [
            self._runtime.spawn(self._guarded(number, self._slot()), f"fencelock-jobs-{number}")
            for number in range(self._terms.concurrency)
        ]
        try:
            while self._working():
                left = LOOK if self._stop_at is None else self._stop_at - self._runtime.now()
                if left <= 0:
                    break
                await self._bell.wait(min(left, LOOK))
        finally:
            self.stop(0.0)
            await self._runtime.finish(self._leave([*slots, keeper]))
            self.is_over = True
        if self._failure is not None:
            raise self._failure
        return self.tally()

    def _working(self) -> bool:
        return len([number for number in self._ended if number != KEEPER]) < self._terms.concurrency

    async def _leave(self, services: list[Any]) -> None:
        """Give back what is not ended."""
        if self.held:
            link = self._links()
            for held in list(self.held.values()):
                await self._give_back(held, link)
            await link.close()
        self._alarm.notify()
        until = self._runtime.now() + AFTER_GRACE
        for service in services:
            await service.join(until - self._runtime.now())

    async def _give_back(self, held: Held, link: Link) -> None:
        if held.job._state is not RUNNING or held.is_over:
            return  # its transaction decides
        held.is_over = True
        self._lose(held, "the worker was stopped")
        try:
            if await link.step(lambda door: steps.give_back(door, self._way.say, held.claimed)):
                self._attempts.ledger.add("given_back")
                log.warning("job %s was given back: the worker was stopped", held.claimed.name)
            await self._way.release(held.got)
        except BackendError as error:
            log.warning("job %s could not be given back, its ttl ends it: %s", held.claimed.name, error)

    # Slots ------------------------------------------------------------------------------------

    async def _guarded(self, number: int, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - `run` raises it
            self._failure = error
            self.stop(0.0)
        finally:
            self._ended.append(number)
            self._bell.notify()
            self._alarm.notify()

    async def _slot(self) -> None:
        link = self._links()
        try:
            got = await self._feed.next(link)
            while got is not None:
                got = await self._do(got, link) or await self._feed.next(link)
        finally:
            await self._runtime.finish(link.close())

    async def _do(self, got: Got, link: Link) -> Got | None:
        held = Held(got, self._make_job(got, link), self._runtime.now(), got.since)
        self.held[id(held)] = held
        try:
            return await self._attempts.do(held, link, lambda: self._may_go_on(held))
        finally:
            del self.held[id(held)]
            if not held.is_over:
                with suppress(BackendError):  # its ttl ends it
                    await self._runtime.finish(self._way.release(got))

    def _may_go_on(self, held: Held) -> bool:
        """Whether the statement that completes a job may begin the next one."""
        is_able = isinstance(self._way, Unlocked) and self._way.finds_and_begins
        return is_able and not self._feed.is_closed and self._feed.is_empty and held.got.lease.is_held()

    # Leases -----------------------------------------------------------------------------------

    def _lost(self, lease: Any) -> None:
        """A lock was lost: whoever works under it is interrupted, unless the end is being committed."""
        for held in list(self.held.values()):
            if held.got.lease is lease and held.job._state is RUNNING:
                self._hands.interrupt(held.slot)

    def _lose(self, held: Held, reason: str) -> None:
        if isinstance(held.got.lease, RowLease):
            held.got.lease.lose(reason)
        self._hands.interrupt(held.slot)

    async def _keep(self) -> None:
        """Give what runs for long more time, in its row."""
        link = self._links()
        try:
            while self._working():
                await self._alarm.wait(self._terms.ttl / 4)
                now = self._runtime.now()
                old = [held for held in list(self.held.values()) if self._wants_time(held, now)]
                if old:
                    with suppress(BackendError):  # whoever is at it learns by its own lease
                        await self._renew(old, link)
        finally:
            await self._runtime.finish(link.close())

    def _wants_time(self, held: Held, now: float) -> bool:
        is_old = now - held.renewed >= self._terms.ttl / 4
        return is_old and held.job._state is RUNNING and not held.is_over and held.got.lease.is_held()

    async def _renew(self, old: list[Held], link: Link) -> None:
        since = self._runtime.now()
        jobs = [held.claimed for held in old]
        over = await link.step(lambda door: steps.renew(door, self._way.say, jobs, self._terms.ttl))
        for held in old:
            if held.claimed in over:
                if held.job._state is RUNNING:
                    self._lose(held, "another attempt has begun, or the job was ended")
                continue
            held.renewed = since
            if isinstance(held.got.lease, RowLease):
                held.got.lease.renewed(since)
