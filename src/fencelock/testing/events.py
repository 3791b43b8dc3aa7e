"""One line of a history: what a client did or saw, and when.

An ``Event`` is flat, so that it is one JSON object on one line and many processes can append to
one file. Everything that belongs to one acquisition carries the same ``request`` id, from the
``acquire`` that was invoked to the last thing its lease said.

kind        recorded                                                     carries
----------  -----------------------------------------------------------  ----------------------
acquire     before the call                                              name, mode, limit
queued      after the backend acknowledged the enqueue step              token: the ticket, if known
requeued    after the request was found to have lost its place and       token: the new ticket
            the backend acknowledged a new one
granted     after acquire returned a lease                               token, owner, deadline
timeout     after acquire gave up in time, or try_acquire said no
cancelled   after acquire was cancelled
failed      after acquire raised anything else                           detail
extend      before lease.extend(ttl)                                     ttl
extended    after it returned                                            deadline
renewed     when a renewal moved the deadline                            deadline
held        when the lease was asked and said it is held                 deadline
lost        when the loss was signalled                                  detail
release     before lease.release()
released    after it returned
crashed     before the client was killed (every request of the client)
paused      before the client was stopped
resumed     after it was continued
break       before an operator breaks the lock or deletes its records    name ("" = all), owner
broke       after that
write       after a write to a guarded resource                          resource, token, base, value,
                                                                         seq, accepted
plain       after a write to an unguarded resource                       resource, base, value,
                                                                         accepted

Times are seconds on one clock that all clients share (``boottime``, or the simulator's virtual
clock). "Before the call" and "after it returned" are what makes the checks sound: a recorded
interval then contains the real one. ``renewed`` and ``held`` are the exceptions, a claim rather
than a call: their ``at`` is a clock reading taken *before* the decision, never after it.

Not promised: that the clock is the same on two machines. A history is of one host.
"""

from __future__ import annotations

import json
import time
from typing import Any, Literal, NamedTuple, get_args

Mode = Literal["exclusive", "shared", "permit"]
Kind = Literal[
    "acquire",
    "queued",
    "requeued",
    "granted",
    "timeout",
    "cancelled",
    "failed",
    "extend",
    "extended",
    "renewed",
    "held",
    "lost",
    "release",
    "released",
    "crashed",
    "paused",
    "resumed",
    "break",
    "broke",
    "write",
    "plain",
]
Value = int | str

MODES: frozenset[str] = frozenset(get_args(Mode))
KINDS: frozenset[str] = frozenset(get_args(Kind))


class HistoryError(ValueError):
    """The history itself makes no sense: the recorder is wrong, not the lock."""


def boottime() -> float:
    """Seconds on a clock that all processes of the host share and that goes on during suspend."""
    return time.clock_gettime(_BOOTTIME)


# Only Linux has CLOCK_BOOTTIME; elsewhere CLOCK_MONOTONIC is the nearest that processes share.
_BOOTTIME: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Event(NamedTuple):
    """One recorded fact; the table above says which kind carries which fields."""

    kind: Kind
    at: float
    client: str
    request: str = ""
    name: str = ""
    mode: Mode | None = None
    limit: int | None = None
    token: int | None = None
    owner: str | None = None
    deadline: float | None = None
    ttl: float | None = None
    resource: str | None = None
    base: Value | None = None
    value: Value | None = None
    seq: int | None = None
    accepted: bool | None = None
    detail: str | None = None

    def to_json(self) -> str:
        """Return the event as one line, without its newline; fields at their default are left out."""
        defaults = self._field_defaults
        pairs = zip(self._fields, self, strict=True)
        fields = {key: value for key, value in pairs if key not in defaults or value != defaults[key]}
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> Event:
        """Read what ``to_json`` wrote; anything else is a ``HistoryError``."""
        try:
            fields: Any = json.loads(line)
            event = cls(**fields)
        except (ValueError, TypeError) as error:
            raise HistoryError(f"not an event: {line[:80]!r}") from error
        if event.kind not in KINDS or (event.mode is not None and event.mode not in MODES):
            raise HistoryError(f"unknown kind or mode: {line[:80]!r}")
        return event

    def render(self, zero: float = 0.0) -> str:
        """Return one line for people, with times counted from ``zero``."""
        parts = [f"{self.at - zero:12.6f}", f"{self.client:<8}", f"{self.kind:<9}"]
        parts += [part for part in (self.request, repr(self.name) if self.name else "", self.mode) if part]
        parts += [
            f"{key}={value}"
            for key, value in zip(self._fields[6:], self[6:], strict=True)
            if value is not None and key not in {"deadline"}
        ]
        if self.deadline is not None:
            parts.append(f"until={self.deadline - zero:.6f}")
        return " ".join(parts)
