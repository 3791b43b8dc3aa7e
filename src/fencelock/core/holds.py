"""The table of what one client holds, and how a hold ends.

A hold ends when it is taken out of the table. `dict.pop` is atomic, so exactly one party ends it; `hold.py`
has the states. A hold that ends without a release leaves a record in the backend, and so a cleanup.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from fencelock.core import events
from fencelock.core.hold import DROPPED, HELD, LOST, RELEASED

if TYPE_CHECKING:
    from fencelock.core.background import Background
    from fencelock.core.cleanup import Cleanups
    from fencelock.core.hold import Hold
    from fencelock.core.reentry import Reentry
    from fencelock.runtime.base import Runtime
    from fencelock.state import Entry

__all__ = ["Holds", "abandoned"]

log = logging.getLogger("fencelock")

abandoned: set[str] = set()
"""The owner ids of all abandoned holds of this process."""


class Holds:
    """What one client holds."""

    def __init__(
        self,
        runtime: Runtime,
        source: events.Source,
        cleanups: Cleanups,
        reentry: Reentry,
        timekeeper: Background,
    ) -> None:
        self._runtime = runtime
        self._source = source
        self._cleanups = cleanups
        self._reentry = reentry
        self._timekeeper = timekeeper
        self._table: dict[str, Hold] = {}  # by owner

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, hold: Hold) -> bool:
        return hold.request.owner in self._table

    def all(self) -> list[Hold]:
        """Return the holds as they are now."""
        return list(self._table.values())

    def add(self, hold: Hold) -> None:
        """From now on the hold is renewed, and its loss is noticed."""
        self._table[hold.request.owner] = hold
        self._timekeeper.wake_by(hold.due if hold.due < hold.deadline else hold.deadline)

    def is_held(self, hold: Hold, now: float | None = None) -> bool:
        """Whether the hold is certain, by the local clock. Seeing its end makes it a loss."""
        if hold.state is not HELD:
            return False
        if (self._runtime.now() if now is None else now) < hold.deadline:
            return True
        self.lose(hold, hold.why_expired())
        return False

    # How a hold ends -----------------------------------------------------------------------

    def end(self, hold: Hold, *, tell: bool = True) -> bool:
        """Take the hold out of the table as released; `False` if it had ended already."""
        if self._table.pop(hold.request.owner, None) is None:
            return False
        hold.state = RELEASED
        if hold.entrant is not None:
            self._reentry.forget(hold)
        if hold.abandoned:
            abandoned.discard(hold.request.owner)
        if tell and events.to_released:
            held = self._runtime.now() - hold.since
            events.tell(events.Released, events.to_released, self._source, hold, held)
        return True

    def end_unreleased(self, hold: Hold) -> bool:
        """The same for a hold whose record is still in the backend: its cleanup is pending from now on."""
        if not self.end(hold):
            return False
        self._cleanups.add(hold.request, hold.ttl)
        return True

    def expire(self, hold: Hold) -> None:
        """Its deadline has passed: a loss, unless it was abandoned and only waited for that."""
        if hold.abandoned:
            self.end_unreleased(hold)
        else:
            self.lose(hold, hold.why_expired())

    def lose(self, hold: Hold, reason: str, *, gone: bool = False, wanted: bool = False) -> bool:
        """End the hold as lost, once; `gone` says that the backend has no record of it.

        With `wanted` its holder said so: the work is told to stop, but nothing went wrong.
        """
        if self._table.pop(hold.request.owner, None) is None:
            return False
        if not gone:
            # First: a subscriber may close the client. Not before the margin is over.
            self._cleanups.add(hold.request, hold.ttl, hold.terms.margin)
        self.mark_lost(hold, reason, wanted=wanted)
        return True

    def lose_by_owner(self, owner: str, reason: str) -> None:
        """The backend knows that a lease has ended, and has no record of it. May be called on any thread."""
        hold = self._table.get(owner)
        if hold is not None:
            self.lose(hold, reason, gone=True)

    def mark_lost(self, hold: Hold, reason: str, *, wanted: bool = False) -> None:
        """Tell the holder, its task and the subscribers that the hold was lost."""
        hold.reason = reason
        hold.state = LOST
        abandoned.discard(hold.request.owner)
        self._reentry.forget(hold)
        for event in list(hold.__dict__.values()):
            event.set()
        held = self._runtime.now() - hold.since
        events.log_loss(self._source, hold, held, logging.DEBUG if wanted else logging.WARNING)
        if hold.task is not None:
            task = hold.task
            self._runtime.interrupt(task, lambda: hold.take_interrupt(task))
        lease = hold.lease() if hold.lease is not None else None
        if lease is not None and hold.terms.on_lost is not None:
            self._runtime.callback(hold.terms.on_lost, lease)
        # Last: no subscriber delays what the work is told.
        if wanted:
            events.tell(events.Released, events.to_released, self._source, hold, held)
        else:
            events.lost(self._source, hold, held)

    # The events of a loss ------------------------------------------------------------------

    def event(self, hold: Hold) -> Any:
        """Return the event that is set when the hold is lost."""
        event = hold.__dict__.setdefault("event", self._runtime.event())
        if hold.state is LOST:
            event.set()
        return event

    def share_event(self, hold: Hold, event: Any) -> None:
        """Set `event` as well when the hold is lost: several holds may share one."""
        hold.__dict__[f"shared {len(hold.__dict__)}"] = event
        if hold.state is LOST:
            event.set()

    # Abandoned holds -----------------------------------------------------------------------

    def abandon(self, hold: Hold, place: str = "") -> None:
        """Renew it no longer, and let it end with its ttl: its holder may be at work without knowing."""
        if hold not in self or hold.abandoned:
            return
        hold.abandoned = True
        self._reentry.forget(hold)
        abandoned.add(hold.request.owner)
        self._timekeeper.wake_by(hold.deadline)
        log.warning("%s%s", DROPPED % hold.request.name, place)

    def abandoned_on(self, name: str, holder: Entry | None) -> bool:
        """Whether an abandoned hold of this process holds the lock."""
        if not abandoned:
            return False  # there may be many holds, and many tries
        if holder is not None and holder.owner in abandoned:
            return True
        return any(hold.abandoned and hold.request.name == name for hold in self.all())
