"""A hold: the core's side of a lease.

Users have a `Lease` in their hands; the session keeps the `Hold` behind it. They are two
objects so that a lease which was garbage-collected can be noticed and given back.

States, and who moves them:

    HELD ──► RELEASED    by release, or because the client was closed
      └────► LOST        by the first that sees that it is over: the clock, a renewal, a check

A hold is *abandoned* when its lease was handed out by `acquire()` and then dropped, unreleased: it is
HELD until its deadline, without renewal, and RELEASED then.

There is no way back. Leaving HELD is decided by taking the hold out of the session's table:
that is atomic, so exactly one party does it, and a loss is reported once. The first that sees the
local deadline pass makes it a loss on the spot; a renewal whose reply comes later finds a
state that is not HELD any more and cannot revive it.

With a margin the local deadline comes so much before the lease runs out: the work is told to
stop while no other request can hold the lock yet. The record stays until the margin is over, or the
work has ended and says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fencelock.core.queue import Mode
from fencelock.errors import ConfigurationError

if TYPE_CHECKING:
    from fencelock.core.ports import Request

__all__ = ["DROPPED", "HELD", "LOST", "RELEASED", "Hold", "Terms", "check_margin"]

SOON = 0.25

DROPPED = (
    "the lease on %r was dropped while it was held: it is no longer renewed and ends with its ttl; "
    "keep what acquire() returns and release it, or use a `with` block"
)

HELD = "held"
RELEASED = "released"
LOST = "lost"


class Terms:
    """What a lock object asks for, each time it is acquired."""

    __slots__ = (
        "limit",
        "margin",
        "max_hold",
        "metadata",
        "mode",
        "name",
        "on_lost",
        "reentrant",
        "renew",
        "timeout",
        "ttl",
    )

    def __init__(
        self,
        *,
        name: str,
        mode: Mode,
        limit: int,
        ttl: float,
        timeout: float,
        renew: bool,
        max_hold: float,
        reentrant: bool,
        metadata: str | None,
        on_lost: Callable[[Any], Any] | None,
        margin: float = 0.0,
    ) -> None:
        self.name = name
        self.mode = mode
        self.limit = limit
        self.ttl = ttl
        self.timeout = timeout
        self.renew = renew
        self.max_hold = max_hold
        self.reentrant = reentrant
        self.metadata = metadata
        self.on_lost = on_lost
        self.margin = margin

    def with_margin(self, margin: float) -> Terms:
        """Return the same terms with another margin."""
        check_margin(margin, self.ttl)
        check_margin(margin, self.max_hold, "max_hold")
        fields = {name: getattr(self, name) for name in self.__slots__}
        return Terms(**{**fields, "margin": margin})


def check_margin(margin: float, life: float, what: str = "ttl") -> None:
    """Raise unless a lease that lives so long has time before its margin begins."""
    if margin > life / 2:
        raise ConfigurationError(
            f"margin={margin:g} is too long for {what}={life:g}: give at most half of it, or a longer {what}"
        )


class Hold:
    """An admitted request and how long it is certain to stay admitted."""

    __slots__ = (
        "__dict__",  # the events to set when it is lost: dict.setdefault makes their creation atomic
        "abandoned",
        "cap",
        "deadline",
        "depth",
        "due",
        "entrant",
        "handed",
        "interrupted",
        "latest",
        "lease",
        "reason",
        "request",
        "shortenings",
        "since",
        "state",
        "task",
        "terms",
        "token",
        "ttl",
    )

    def __init__(
        self, request: Request, terms: Terms, token: int, sent: float, validity: float, now: float
    ) -> None:
        ttl = terms.ttl
        self.request = request
        self.terms = terms
        self.token = token
        self.ttl = ttl
        self.since = now
        self.state = HELD
        self.reason = ""
        self.latest = latest = now + terms.max_hold
        self.deadline = (sent + validity if sent + validity < latest else latest) - terms.margin
        self.due = sent + (validity if validity < ttl else ttl) / 3
        if validity < ttl / 2:  # pushed, and short until the first renewal: soon, if it lasts that long
            self.due = min(self.due, now + SOON)
        self.abandoned = False
        self.cap = math.inf  # a ttl to which an extension without an answer may yet shorten it
        self.shortenings = 0  # how many extensions to a shorter ttl have begun
        self.handed = False  # its lease was returned by `acquire()`, and is in no block
        self.depth = 0  # how many leases there are on it: more than one after re-entry
        self.entrant: tuple[object, str] | None = None  # the thread or task that may re-enter
        self.task: object = None  # the task to interrupt, while it is inside `async with`
        self.interrupted = False
        self.lease: Callable[[], Any] | None = None  # a weak reference, only for on_lost

    def take_interrupt(self, task: object) -> bool:
        """Whether `task` is still inside the block whose lease was lost; then it is interrupted."""
        if self.task is task:
            self.interrupted = True
            return True
        return False

    def why_expired(self) -> str:
        """Tell why the deadline has passed."""
        margin = self.terms.margin
        early = f", {margin:g}s before the end" if margin else ""
        if self.deadline >= self.latest - margin:
            return f"max_hold of {self.terms.max_hold:g}s is over{early}"
        if not self.terms.renew:
            return f"its ttl of {self.ttl:g}s is over and renew is off{early}"
        return f"not renewed within its ttl of {self.ttl:g}s{early}"

    def move(self, sent: float, validity: float) -> None:
        """A renewal succeeded: count anew from before it was sent.

        Meanwhile the lease may have been given a shorter ttl: no more than that is believed in.
        """
        # Written out: `min` and `max` take most of its time, and a sweep moves every hold.
        validity = self.ttl if self.ttl < validity else validity
        end = (self.latest if self.latest < sent + validity else sent + validity) - self.terms.margin
        self.deadline = end if end > self.deadline else self.deadline
        self.due = sent + validity / 3
