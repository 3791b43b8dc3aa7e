"""A history: every invocation and return of a run, and the acquisitions it tells of.

``History`` is a list of events (``fencelock.testing.events`` has the table of kinds) that any
number of threads append to. ``operations()`` folds it into one ``Operation`` per acquisition.

*Order.* Events are ordered by time. What happens at equal times depends on who recorded:

- one ``History`` object (threads of one process, or the simulator, where much happens at one
  virtual instant) knows the true order, so ties are broken by it: ``ordered`` is true;
- a file that several processes appended to, or a merge, does not, so events at equal times are
  unordered, and no check concludes anything from them: ``ordered`` is false.

An ``Instant`` carries both: ``(at, seq)``, with ``seq`` 0 in an unordered history; ``a < b`` is
then "a certainly came first".

*Files* are JSON lines. ``HistoryFile`` appends them from many processes, ``dump`` writes a whole
history (with a first line that keeps ``ordered``), ``load`` reads both and merges several. A last
line without its newline is the trace of a crash and is left out; any other bad line is an error.

*Equality* is equality of all events in recorded order: same seed, same history.
"""

from __future__ import annotations

import itertools
import json
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from fencelock.testing.events import Event, HistoryError, Kind, Mode, boottime
from fencelock.testing.recorder import Recorder

_HEADER = "fencelock-history"
_VERSION = 1

Outcome = Literal["granted", "timeout", "cancelled", "failed", "pending"]


class Instant(NamedTuple):
    """A point of the history's order; ``a < b`` means that a certainly came before b."""

    at: float
    seq: int = 0

    @classmethod
    def deadline(cls, at: float) -> Instant:
        """Return the instant at which a deadline strikes: before everything recorded at that time."""
        return cls(at, -1)


class Move(NamedTuple):
    """Something that moved, or spoke of, a lease's deadline."""

    kind: Kind
    when: Instant
    deadline: float | None
    ttl: float | None


@dataclass(slots=True)
class Operation:
    """One acquisition, as far as the history tells.

    ``place`` is when the backend acknowledged the place in the queue that the request had last;
    None if it never waited. ``crashed`` is the first crash of its client after the invocation.
    """

    request: str
    client: str
    name: str
    mode: Mode
    limit: int | None
    invoked: Instant
    place: Instant | None = None
    ticket: int | None = None
    outcome: Outcome = "pending"
    returned: Instant | None = None
    token: int | None = None
    owner: str | None = None
    deadline: float | None = None
    moves: list[Move] = field(default_factory=list)
    losses: list[Instant] = field(default_factory=list)
    release: Instant | None = None
    released: Instant | None = None
    crashed: Instant | None = None

    def __str__(self) -> str:
        kind = f"{self.mode}({self.limit})" if self.mode == "permit" else self.mode
        text = f"{self.request} {kind} {self.name!r} {self.outcome}"
        if self.token is not None:
            text += f" token {self.token}"
        end = "" if self.returned is None else f"{self.returned.at:.6f}"
        return f"{text} [{self.invoked.at:.6f}, {end}]"


class History(Recorder):
    """Events in the order in which they were recorded; safe to append to from many threads."""

    def __init__(
        self,
        events: Iterable[Event] = (),
        *,
        clock: Callable[[], float] = boottime,
        ordered: bool = True,
    ) -> None:
        super().__init__(clock=clock)
        self.ordered = ordered
        self._events: list[Event] = list(events)
        # Each with the number of events it was made from; appending makes them stale.
        self._timeline: tuple[int, tuple[tuple[Instant, Event], ...]] = (0, ())
        self._operations: tuple[int, tuple[Operation, ...]] = (0, ())

    def append(self, event: Event) -> None:
        """Take one event (``list.append`` is atomic, so no lock is needed)."""
        self._events.append(event)

    @property
    def events(self) -> tuple[Event, ...]:
        """The events in the order in which they were recorded."""
        return tuple(self._events)

    def timeline(self) -> tuple[tuple[Instant, Event], ...]:
        """Return the events in time order, each with its instant."""
        events = self.events
        if self._timeline[0] != len(events):
            order = sorted(range(len(events)), key=lambda seq: events[seq].at)  # stable: ties stay
            seqs = order if self.ordered else [0] * len(order)
            pairs = zip(order, seqs, strict=True)
            timeline = tuple((Instant(events[index].at, seq), events[index]) for index, seq in pairs)
            self._timeline = len(events), timeline
        return self._timeline[1]

    def operations(self) -> tuple[Operation, ...]:
        """Return the acquisitions, in order of invocation; a history that makes no sense raises."""
        timeline = self.timeline()
        if self._operations[0] != len(timeline):
            self._operations = len(timeline), tuple(_fold(timeline))
        return self._operations[1]

    def dump(self, path: str | os.PathLike[str]) -> None:
        """Write the whole history to a file, replacing it."""
        header = json.dumps({_HEADER: _VERSION, "ordered": self.ordered})
        lines = (event.to_json() for event in self._events)
        with Path(path).open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in itertools.chain([header], lines))

    @classmethod
    def load(cls, *paths: str | os.PathLike[str]) -> History:
        """Read histories that ``dump`` or ``HistoryFile`` wrote, and merge them if there are several."""
        histories = [cls._load(Path(path)) for path in paths]
        return histories[0] if len(histories) == 1 else cls.merge(*histories)

    @classmethod
    def merge(cls, *histories: History) -> History:
        """Return one history of all events by time; what happened at equal times is unordered."""
        events = itertools.chain.from_iterable(history._events for history in histories)
        return cls(sorted(events, key=lambda event: event.at), ordered=False)

    @classmethod
    def _load(cls, path: Path) -> History:
        events: list[Event] = []
        ordered = False
        with path.open(encoding="utf-8", newline="\n") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith("\n"):
                    break
                if number == 1 and f'"{_HEADER}"' in line:
                    ordered = _read_header(line, path)
                    continue
                try:
                    events.append(Event.from_json(line))
                except HistoryError as error:
                    raise HistoryError(f"{path}, line {number}: {error}") from error
        return cls(events, ordered=ordered)

    def render(self, limit: int | None = None) -> str:
        """Return the events as lines for people, in time order, times from the first one."""
        timeline = self.timeline()
        if not timeline:
            return "(empty history)"
        zero = timeline[0][1].at
        lines = [event.render(zero) for _, event in timeline[:limit]]
        hidden = len(timeline) - len(lines)
        return "\n".join([*lines, f"… and {hidden} more"] if hidden else lines)

    def __str__(self) -> str:
        return self.render(limit=200)

    def __repr__(self) -> str:
        return f"<History of {len(self)} events>"

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, History):
            return NotImplemented
        return self.ordered == other.ordered and self._events == other._events

    __hash__ = None  # type: ignore[assignment]


def _read_header(line: str, path: Path) -> bool:
    header = json.loads(line)
    if header[_HEADER] != _VERSION:
        raise HistoryError(f"{path}: history of version {header[_HEADER]}, this reads {_VERSION}")
    return bool(header["ordered"])


def _fold(timeline: Iterable[tuple[Instant, Event]]) -> Iterable[Operation]:
    operations: dict[str, Operation] = {}
    crashes: dict[str, list[Instant]] = {}
    for when, event in timeline:
        if event.kind == "acquire":
            operation = _begin(when, event)
            if operations.setdefault(event.request, operation) is not operation:
                raise HistoryError(f"request {event.request!r} was invoked twice")
        elif event.kind == "crashed":
            crashes.setdefault(event.client, []).append(when)
        elif event.request:
            known = operations.get(event.request)
            if known is None:
                raise HistoryError(f"{event.kind} of {event.request!r}, which was never invoked")
            _apply(known, when, event)
    for operation in operations.values() if crashes else ():
        instants = crashes.get(operation.client, [])
        index = bisect_left(instants, operation.invoked)
        operation.crashed = instants[index] if index < len(instants) else None
    return operations.values()


def _begin(when: Instant, event: Event) -> Operation:
    mode = event.mode or "exclusive"
    if (mode == "permit") != (event.limit is not None) or not event.request:
        raise HistoryError(f"a permit, and nothing else, has a limit; all have a request: {event.render()}")
    return Operation(event.request, event.client, event.name, mode, event.limit, when)


def _apply(operation: Operation, when: Instant, event: Event) -> None:
    match event.kind:
        case "queued" | "requeued":
            _take_place(operation, when, event)
        case "granted" | "timeout" | "cancelled" | "failed":
            _return(operation, when, event, event.kind)
        case "extend" | "extended" | "renewed" | "held":
            if event.kind != "extend" and event.deadline is None:
                raise HistoryError(f"{event.kind} of {event.request!r} without a deadline")
            operation.moves.append(Move(event.kind, when, event.deadline, event.ttl))
        case "lost":
            # Perhaps before "granted": a client that slept right after acquire returned wakes with
            # the loss already signalled, and its two threads record in either order.
            operation.losses.append(when)
        case "release":
            operation.release = operation.release or when  # release() is idempotent: the first counts
        case "released":
            operation.released = operation.released or when
        case _:
            raise HistoryError(f"{event.kind} does not belong to a request: {event.render()}")


def _take_place(operation: Operation, when: Instant, event: Event) -> None:
    """A repeated acknowledgement keeps the place; a new ticket, or ``requeued``, is a new place."""
    moved = event.kind == "requeued" or (event.token is not None and event.token != operation.ticket)
    if operation.place is None or moved:
        operation.place = when
    operation.ticket = operation.ticket if event.token is None else event.token


def _return(operation: Operation, when: Instant, event: Event, outcome: Outcome) -> None:
    if operation.outcome != "pending":
        raise HistoryError(f"request {event.request!r} returned twice")
    operation.outcome, operation.returned = outcome, when
    if outcome == "granted":
        if event.token is None or event.deadline is None:
            raise HistoryError(f"grant of {event.request!r} without token or deadline")
        operation.token, operation.deadline, operation.owner = event.token, event.deadline, event.owner
