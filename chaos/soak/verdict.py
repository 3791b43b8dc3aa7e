"""What flat means.

Work goes in rounds, and after each there is a *lull*: nobody works, everything was given back or has expired,
garbage was collected. Only there are figures exact, so only there are they judged; those taken at work are
drawn, and their counts looked at roughly.

The first third of the lulls is warm-up. For one measure of one process, over the other two thirds:

grows     the growth is the median slope of all pairs of lulls (Theil and Sen: a few odd ones do not matter)
          times the time between the first and the last. A count may not grow by one more than its allowance;
          memory may grow by 2% and its allowance.
stays up  the median of a count in the last third must not be above the highest of the warm-up by more than
          its allowance.
at work   the median of a count in the last third must not be above that of the middle third by more than a
          quarter of it, 2, and its allowance; asked where there are some dozens of samples.
closed    when every client has closed, nothing at all may be left.

With fewer than six lulls nothing can be told, and that is a failure too.

Not promised: that a leak smaller than the allowance is seen. `MEASURES` says what it is for each. Threads,
tasks and records have none. Sockets have one: a pool keeps as many connections as were ever wanted at once,
and with luck that is reached late; whether each of them is closed in the end has no allowance.
"""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

__all__ = ["MEASURES", "Finding", "Measure", "Sample", "growth", "judge"]

Moment = Literal["work", "lull", "closed"]
PART = 0.02
"""The part of itself by which memory may grow."""
AT_WORK = 0.25, 2.0
ENOUGH = 60
"""Samples at work, for their medians to mean something."""
POOL = 3
"""Lanes of a client, each of which may want a connection."""


class Measure(NamedTuple):
    """What is measured."""

    about: str
    kind: Literal["count", "memory", "shown"]
    allowance: float = 0.0
    """By which it may grow; memory besides its 2%."""


MEASURES: Mapping[str, Measure] = {
    "rss": Measure("resident memory of a client, KiB", "memory", 1024),
    "blocks": Measure("blocks that Python has allocated in a client", "memory", 2000),
    "objects": Measure("objects that the collector tracks in a client", "memory", 1000),
    "threads": Measure("threads of a client", "count"),
    "sockets": Measure("open sockets of a client", "count", POOL),
    "files": Measure("open files of a client, sockets included", "count", POOL),
    "tasks": Measure("asyncio tasks of a client", "count"),
    "left": Measure("keys, rows and leases in the store that should not be there in a lull", "count"),
    "expired": Measure("rows that have expired and wait for the next sweep", "shown"),
    "leases": Measure("leases of etcd", "count"),
    "sessions": Measure("sessions of ZooKeeper", "count", POOL),
    "watches": Measure("watches that ZooKeeper's members keep", "count", POOL),
    "connections": Measure("connections that a server has", "count", 4 * POOL),
    "used": Measure("what the store says that it uses, KiB", "memory", 1024),
    "private": Measure("private memory of the servers' processes, KiB: their caches fill for hours", "shown"),
}


@dataclass(frozen=True)
class Sample:
    """What was seen of one process at one time."""

    at: float
    """Seconds since the work began."""
    backend: str
    who: str
    moment: Moment
    values: Mapping[str, float]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Finding:
    """One measure of one process."""

    backend: str
    who: str
    measure: str
    start: float
    middle: float
    end: float
    growth: float
    allowed: float
    why: str = ""
    """What is wrong with it; empty if it is flat."""

    @property
    def is_judged(self) -> bool:
        return MEASURES[self.measure].kind != "shown"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


Point = tuple[float, float]


def growth(points: Sequence[Point]) -> float:
    """How much a line of (time, value) has risen from its first to its last point."""
    pairs = itertools.combinations(sorted(points), 2)
    slopes = [(late[1] - early[1]) / (late[0] - early[0]) for early, late in pairs if late[0] > early[0]]
    if not slopes:
        return 0.0
    times = [at for at, _ in points]
    return statistics.median(slopes) * (max(times) - min(times))


def judge(samples: Iterable[Sample]) -> list[Finding]:
    """Say of every measure of every process whether it was flat."""
    lines: dict[tuple[str, str, str], dict[str, list[Point]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        for measure, value in sample.values.items():
            lines[sample.backend, sample.who, measure][sample.moment].append((sample.at, value))
    return [_finding(*key, moments) for key, moments in lines.items()]


def _finding(backend: str, who: str, measure: str, moments: Mapping[str, Sequence[Point]]) -> Finding:
    lulls = sorted(moments.get("lull", ()))
    first, middle, last = _thirds(lulls)
    if len(first) < 2:
        why = f"only {len(lulls)} lulls: too few to judge"
        return Finding(backend, who, measure, 0.0, 0.0, 0.0, 0.0, 0.0, why)
    start, mid, end = (_median(points) for points in (first, middle, last))
    rise = growth([*middle, *last])
    kind = MEASURES[measure].kind
    allowed = MEASURES[measure].allowance + (0.0 if kind == "count" else mid * PART)
    found = Finding(backend, who, measure, start, mid, end, round(rise, 2), round(allowed, 2))
    if kind == "shown":
        return found
    reasons = []
    if rise >= allowed + (kind == "count"):
        reasons.append(f"grows by {rise:,.1f} in a lull")
    if kind == "count":
        reasons += _counted(first, last, moments, allowed)
    return Finding(**{**found.as_dict(), "why": "; ".join(reasons)})


def _counted(
    first: Sequence[Point], last: Sequence[Point], moments: Mapping[str, Sequence[Point]], allowed: float
) -> Iterable[str]:
    """What else is asked of a count."""
    highest, final = max(value for _, value in first), _median(last)
    if final > highest + allowed:
        yield f"stays up: {final:g} at the end, at most {highest:g} in the warm-up"
    at_work = sorted(moments.get("work", ()))
    if len(at_work) >= ENOUGH:
        before, after = map(_median, _thirds(at_work)[1:])
        if after > before * (1 + AT_WORK[0]) + AT_WORK[1] + allowed:
            yield f"at work: {after:g} after {before:g}"
    for _, value in moments.get("closed", ()):
        if value:
            yield f"closed: {value:g} left when all had closed"


def _thirds(points: Sequence[Point]) -> tuple[Sequence[Point], Sequence[Point], Sequence[Point]]:
    part = len(points) // 3
    return points[:part], points[part : len(points) - part], points[len(points) - part :]


def _median(points: Sequence[Point]) -> float:
    return statistics.median(value for _, value in points)
