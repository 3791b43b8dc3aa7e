"""Where the slots of a worker get their jobs from: one of them looks, all of them share what it finds.

Where nothing is to be had the one that looks waits, so an empty table costs one query in `poll` seconds,
however many slots there are. Where all that was found was taken by others it waits shortly, then longer. A
database or lock backend that is away makes the pauses longer, up to `LONGEST_TROUBLE`.

What was found is kept for `poll` seconds: after that another look sees what has come since and goes first.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from fencelock.errors import BackendError, BackendUnavailable
from fencelock.jobs.hands import Hands
from fencelock.jobs.links import Link
from fencelock.jobs.steps import Candidate
from fencelock.jobs.ways import Found, Got, Way

__all__ = ["Feed"]

FIRST_PAUSE = 0.02
"""Seconds after all that was found was taken by others; doubled up to `poll`."""
FIRST_TROUBLE, LONGEST_TROUBLE = 0.5, 10.0
FRUITLESS = 3
"""How often a worker that is to end looks again when others have all that there is."""

log = logging.getLogger("fencelock.jobs")


class Feed:
    """The next job for whoever asks, until `close`, or with `once` until nothing is to be done."""

    def __init__(
        self,
        hands: Hands,
        way: Way,
        *,
        poll: float,
        once: bool,
        idle: Callable[[], int],
        on_lost: Callable[[Any], None],
    ) -> None:
        self._runtime = hands.runtime
        self._way = way
        self._poll = poll
        self._once = once
        self._idle = idle
        self._on_lost = on_lost
        self._mutex = hands.mutex()
        self._bell = self._runtime.signal()
        self._found: deque[Found] = deque()
        self._looked = 0.0
        self._taking: set[str] = set()
        """Jobs that slots of this worker are just taking: another look may still find them."""
        self._hits = self._misses = self._fruitless = 0
        self._pause = FIRST_PAUSE
        self._troubles = {"looking": 0, "taking": 0}
        self.is_closed = False

    def close(self) -> None:
        """Give out nothing more. From any thread, or a signal handler."""
        self.is_closed = True
        self._bell.notify()

    @property
    def is_empty(self) -> bool:
        """Whether the next one who asks has to look."""
        return not self._found

    async def next(self, link: Link) -> Got | None:
        """Return the next attempt, begun; `None` when the worker is to end."""
        while True:
            async with self._mutex:
                found = await self._found_or_waited(link)
                if isinstance(found, Candidate):
                    self._taking.add(found.name)
            if found is None:
                return None
            try:
                got = await self._way.take(link, found, self._on_lost)
            except BackendError as error:
                await self._trouble(error, "taking")
                continue
            finally:
                if isinstance(found, Candidate):
                    self._taking.discard(found.name)
            self._well("taking")
            if got is not None:
                self._hits += 1
                return got
            self._misses += 1

    async def _found_or_waited(self, link: Link) -> Found | None:
        self._drop_old()  # not what it has just found: a slow database would never give it a job
        while True:
            while self._found:
                found = self._found.popleft()
                if not self.is_closed or isinstance(found, Got):  # what was begun is done
                    return found
            if self.is_closed:
                return None
            hits, misses, self._hits, self._misses = self._hits, self._misses, 0, 0
            if hits or misses:
                self._way.tried(hits, misses)
            if hits:
                self._fruitless = 0
                self._pause = FIRST_PAUSE
            elif self._fruitless:
                if self._once and self._fruitless > FRUITLESS:
                    self.close()
                    return None
                await self._bell.wait(min(self._pause, self._poll) * (0.5 + self._runtime.jitter()))
                self._pause *= 2
                if self.is_closed:
                    return None
            await self._look(link)

    def _drop_old(self) -> None:
        if self._found and self._runtime.now() - self._looked > self._poll:
            self._found = deque(found for found in self._found if isinstance(found, Got))

    async def _look(self, link: Link) -> None:
        self._looked, taking = self._runtime.now(), self._taking.copy()
        try:
            found = await self._way.find(link, max(1, self._idle()))
        except BackendError as error:
            await self._trouble(error, "looking")
            return
        self._well("looking")
        self._found.extend(each for each in found if isinstance(each, Got) or each.name not in taking)
        if found:
            self._fruitless += 1
        elif self._once:
            self.close()
        else:
            self._fruitless = 0
            await self._bell.wait(self._poll * (0.75 + 0.5 * self._runtime.jitter()))

    async def _trouble(self, error: BackendError, where: str) -> None:
        """The database or the locks are away: wait, longer each time; raise where waiting cannot help."""
        count = self._troubles[where]
        is_final = isinstance(error, BackendUnavailable) and not error.transient
        if is_final or (self._once and count >= FRUITLESS):
            raise error
        if count == 0:
            log.warning("%s: trying again", error)
        self._troubles[where] = count + 1
        pause = min(FIRST_TROUBLE * 2.0 ** min(count, 10), LONGEST_TROUBLE)
        until = self._runtime.now() + pause * (0.5 + self._runtime.jitter())
        while not self.is_closed and (left := until - self._runtime.now()) > 0:
            await self._runtime.sleep(min(left, 0.2))

    def _well(self, where: str) -> None:
        if self._troubles[where]:
            self._troubles[where] = 0
            log.warning("the %s is back", "database" if where == "looking" else "lock backend")
