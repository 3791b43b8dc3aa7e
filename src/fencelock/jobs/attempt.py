"""One attempt at a job: call the handler under the lease, and write how it ended, with the attempt's token.

While the lease is held the end is written again and again if the database is away; after that another attempt
follows. Whoever was overtaken changes nothing, and it is counted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fencelock.errors import BackendError, LeaseLost, StaleToken
from fencelock.jobs import steps
from fencelock.jobs.hands import Hands, Interrupted
from fencelock.jobs.job import FINISHED, JobBase
from fencelock.jobs.links import Link
from fencelock.jobs.outcomes import Backoff, Ledger, Reject, Retry, pause_after, reason_of
from fencelock.jobs.steps import Claimed, Ending
from fencelock.jobs.ways import Got, Unlocked, Way

__all__ = ["Attempts", "Held"]

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds between two tries to write an end."""

log = logging.getLogger("fencelock.jobs")


@dataclass(eq=False)
class Held:
    """A job that is being done."""

    got: Got
    job: JobBase
    started: float
    renewed: float
    slot: dict[str, Any] = field(default_factory=dict)
    is_over: bool = False
    """It was given back: nothing is to be written any more."""

    @property
    def claimed(self) -> Claimed:
        """What its row said."""
        return self.got.claimed


class Attempts:
    """How a worker does its jobs."""

    def __init__(
        self,
        hands: Hands,
        way: Way,
        handlers: Mapping[str, Callable[[Any], Any]],
        *,
        attempts: int,
        backoff: Backoff,
    ) -> None:
        self._hands = hands
        self._runtime = hands.runtime
        self._way = way
        self._handlers = handlers
        self._attempts = attempts
        self._backoff = backoff
        self.ledger = Ledger()

    async def do(self, held: Held, link: Link, may_go_on: Callable[[], bool]) -> Got | None:
        """Do one. Returns the next attempt, if that was begun together with the end of this one."""
        self.ledger.add("taken")
        ending = await self._outcome(held)
        if held.is_over or ending is None:
            return None
        return await self._settle(held, ending, link, may_go_on)

    async def _outcome(self, held: Held) -> Ending | None:
        """Call the handler. Returns how the attempt is to end; `None` if there is nothing to write."""
        claimed, most = held.claimed, self._attempts
        if claimed.attempt > most:
            why = "its worker crashed or lost its lease"
            return Ending("dead", reason=f"attempt {most} of {most} did not end: {why}")
        if claimed.unreadable is not None:
            return Ending("dead", reason=claimed.unreadable)
        try:
            held.got.lease.check()
            await self._hands.call(self._handlers[claimed.kind], held.job, held.slot)
            if held.job._state is not FINISHED:
                held.got.lease.check()
        except Interrupted:
            self._gone(held, "lost", "its lease was lost")
            return None
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a handler raises
            if held.job._state is not FINISHED:
                return self._after(error, held)
            log.warning("job %s is done, but its handler raised %s", claimed.name, reason_of(error))
        if held.job._state is FINISHED:
            self._told(held, Ending("done"))
            return None
        return Ending("done")

    def _after(self, error: BaseException, held: Held) -> Ending | None:
        """Return how an attempt ends that has raised something."""
        claimed = held.claimed
        if isinstance(error, StaleToken | LeaseLost) and error.token == claimed.token:
            self._gone(held, "overtaken" if isinstance(error, StaleToken) else "lost", str(error))
            return None
        reason = reason_of(error)
        if isinstance(error, Reject) or claimed.attempt >= self._attempts:
            return Ending("dead", reason=reason)
        if isinstance(error, Retry):
            return Ending("pending", error.after, reason)
        return Ending("pending", pause_after(self._backoff, claimed.attempt), reason)

    async def _settle(
        self, held: Held, ending: Ending, link: Link, may_go_on: Callable[[], bool]
    ) -> Got | None:
        """Write the end of an attempt, if it is still the last one."""
        pause = FIRST_PAUSE
        while True:
            try:
                ended, following = await self._written(held, ending, link, may_go_on)
                break
            except BackendError as error:
                if not held.got.lease.is_held() or held.is_over:
                    self._gone(held, "lost", f"its end could not be written: {error}")
                    return None
                await self._runtime.sleep(pause * (0.5 + self._runtime.jitter()))
                pause = min(pause * 2, LONGEST_PAUSE)
        if ended is None:
            self._gone(held, "overtaken", "another attempt has begun, or somebody has ended the job")
        else:
            self._told(held, ended)
        return following

    async def _written(
        self, held: Held, ending: Ending, link: Link, may_go_on: Callable[[], bool]
    ) -> tuple[Ending | None, Got | None]:
        """Return how the attempt has ended, `None` for not at all; and the next one."""
        say, claimed, following = self._way.say, held.claimed, None
        if ending.status == "done" and isinstance(self._way, Unlocked) and may_go_on():
            ended, following = await self._way.complete_and_take(link, claimed)
        else:
            ended = await link.step(lambda door: steps.end(door, say, claimed, ending))
        if ended:
            return ending, following
        found = await link.step(lambda door: steps.ended_as(door, say, claimed))
        if found in {"done", ending.status}:  # it was written already, and the answer was lost
            return ending if found == ending.status else Ending("done"), following
        return None, following

    def _gone(self, held: Held, how: str, why: str) -> None:
        if not held.is_over:
            self.ledger.add(how)
            log.warning("job %s attempt %d is not counted: %s", held.claimed.name, held.claimed.attempt, why)

    def _told(self, held: Held, ending: Ending) -> None:
        name, attempt = held.claimed.name, held.claimed.attempt
        if ending.status == "done":
            self.ledger.add("done")
            log.info(
                "job %s done in attempt %d after %.3fs", name, attempt, self._runtime.now() - held.started
            )
        elif ending.status == "dead":
            self.ledger.add("dead")
            log.error("job %s is dead after attempt %d: %s", name, attempt, ending.reason)
        else:
            self.ledger.add("retried")
            again = f"again in {ending.after:.1f}s"
            log.warning("job %s attempt %d failed, %s: %s", name, attempt, again, ending.reason)
