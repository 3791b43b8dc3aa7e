"""When somebody certainly held a lock.

A *definite hold* runs from the return of acquire to the first of

- release invoked,
- the local deadline,
- loss signalled,
- the client's crash (some backends free a dead client's locks at once, and rightly),
- an operator starting to break the lock. A request that was in progress while the lock was being
  broken has no definite hold at all: its grant may have been the one that was broken.

The deadline moves. ``renewed`` and ``extended`` set it. ``held`` says that the lease claimed to be
held until then; as a lost lease is never revived (rule 5), that also vouches for all the time
before, renewals nobody recorded included. An ``extend`` on its way may already have shortened the
lease, so the deadline is the nearer of the old and the new one until it returns.

Holds are half open: ending and starting at one instant is no overlap. A grant that came back
with its validity over has no hold, and so claims nothing.

Not promised: completeness. The real hold may have begun earlier and lasted longer; whatever is
concluded from definite holds is certain, and what they do not show is not denied.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fencelock.testing.events import Event
from fencelock.testing.history import History, Instant, Operation

_NEVER = Instant(float("inf"))
_Key = Callable[[Event], tuple[str, str | None]]


@dataclass(frozen=True, slots=True)
class Hold:
    """``operation`` certainly held its lock from ``start`` until, not including, ``end``."""

    operation: Operation
    start: Instant
    end: Instant


class Spans:
    """Intervals, asked for the first that touches a given one.

    They are excuses, so doubt is in their favour: meeting at one instant is touching.
    """

    def __init__(self, spans: Iterable[tuple[Instant, Instant]]) -> None:
        ordered = sorted(spans, key=lambda span: span[1])
        self._ends = [end for _, end in ordered]
        self._first: list[Instant] = [start for start, _ in ordered]
        for index in range(len(ordered) - 2, -1, -1):
            self._first[index] = min(self._first[index], self._first[index + 1])

    def first_start(self, after: Instant) -> Instant:
        """Return the earliest start of the spans not over before ``after``; far future if none."""
        index = bisect_left(self._ends, after)
        return self._first[index] if index < len(self._first) else _NEVER

    def touches(self, start: Instant, end: Instant) -> bool:
        """Return whether a span reaches into ``[start, end]``."""
        return self.first_start(start) <= end


class Disturbances:
    """Breaks by name and owner, pauses by client: what excuses a request."""

    def __init__(self, history: History) -> None:
        timeline = history.timeline()
        breaks = _pair(timeline, "break", "broke", lambda event: (event.name, event.owner))
        pauses = _pair(timeline, "paused", "resumed", lambda event: (event.client, None))
        self._breaks: dict[str, dict[str | None, Spans]] = {}
        for (name, owner), spans in breaks.items():
            self._breaks.setdefault(name, {})[owner] = Spans(spans)
        self.pauses = {client: sorted(spans) for (client, _), spans in pauses.items()}
        self._pauses = {client: Spans(spans) for client, spans in self.pauses.items()}

    def break_of(self, operation: Operation, since: Instant | None = None) -> Instant:
        """Return when the first break that may have hit the operation began; far future if none.

        Those that were over before ``since`` are left out; by default, before it was invoked.
        """
        first = _NEVER
        since = since or operation.invoked
        for name in ("", operation.name):
            owners = self._breaks.get(name, {})
            # An owner that nobody recorded may be the one whose lock was broken.
            known = owners if operation.owner is None else (None, operation.owner)
            for owner in known:
                if owner in owners:
                    first = min(first, owners[owner].first_start(since))
        return first

    def paused_between(self, client: str, start: Instant, end: Instant) -> bool:
        """Return whether the client stood still at some time between the two."""
        return client in self._pauses and self._pauses[client].touches(start, end)


def _pair(
    timeline: Sequence[tuple[Instant, Event]], opening: str, closing: str, key: _Key
) -> dict[tuple[str, str | None], list[tuple[Instant, Instant]]]:
    """Pair opening and closing events with the same key; one that never closes lasts for ever."""
    opened: dict[tuple[str, str | None], list[Instant]] = {}
    spans: dict[tuple[str, str | None], list[tuple[Instant, Instant]]] = {}
    for when, event in timeline:
        if event.kind == opening:
            opened.setdefault(key(event), []).append(when)
        elif event.kind == closing and opened.get(key(event)):
            spans.setdefault(key(event), []).append((opened[key(event)].pop(0), when))
    for open_key, starts in opened.items():
        spans.setdefault(open_key, []).extend((start, _NEVER) for start in starts)
    return spans


def last_deadline(operation: Operation) -> float:
    """Return the time until which the lease was certainly valid, had nothing else ended it."""
    sure = operation.deadline if operation.deadline is not None else float("-inf")
    most = sure
    for move in operation.moves:
        if move.kind == "extend":
            if move.ttl is not None:
                sure = min(sure, move.when.at + move.ttl)
        elif move.deadline is not None:
            if move.kind == "renewed" and Instant.deadline(most) <= move.when:
                return sure  # too late, which rule 5 reports; the hold was over
            if move.kind == "held":
                sure, most = max(sure, move.deadline), max(most, move.deadline)
            else:
                sure = most = move.deadline
    return sure


def definite_hold(operation: Operation, disturbances: Disturbances) -> Hold | None:
    """Return the definite hold of one operation, or None if it has none."""
    return _hold(operation, disturbances, operation.invoked)


def claimed_hold(operation: Operation, disturbances: Disturbances) -> Hold | None:
    """Return the time for which an operation said that it held the lock, or None if it never did.

    A break that was over when the lock was granted does not count here: that grant may be what was broken,
    but then it was no grant for long, and whoever waits for a lock that is claimed waits for that.
    """
    since = operation.returned
    return _hold(operation, disturbances, since) if since is not None else None


def _hold(operation: Operation, disturbances: Disturbances, since: Instant) -> Hold | None:
    """Return the hold of one operation, which a break that was not over at ``since`` ends."""
    if operation.outcome != "granted" or operation.returned is None:
        return None
    ends = [Instant.deadline(last_deadline(operation)), disturbances.break_of(operation, since)]
    ends += [when for when in (operation.release, operation.crashed, *operation.losses[:1]) if when]
    end = min(ends)
    return Hold(operation, operation.returned, end) if operation.returned < end else None


def definite_holds(history: History, disturbances: Disturbances | None = None) -> list[Hold]:
    """Return all definite holds, in order of invocation."""
    disturbances = disturbances or Disturbances(history)
    holds = (definite_hold(operation, disturbances) for operation in history.operations())
    return [hold for hold in holds if hold is not None]
