"""A look at a whole set-up: what the backend finds, how far its servers are, how their clocks stand.

1. `doctor` of the backend reads the server's settings and judges them.
2. `pulse` is called a few times. Of each server the shortest round trip tells its clock best: the server
   read it somewhere between question and answer, so half the trip is how wrong the offset can be.
3. The guarantees are refined by what was found.

Wall clocks are read here for people to compare. No lease and no token depends on what they say.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from fencelock.errors import BackendError
from fencelock.findings import Finding, Pulse, Severity, by_severity, refined, worst

if TYPE_CHECKING:
    from fencelock.core.ports import Backend
    from fencelock.guarantees import Guarantees

__all__ = [
    "Checkup",
    "Latency",
    "clock_findings",
    "examine",
    "http_time",
    "latency_finding",
    "quantile",
    "quantiles",
    "timed",
]

Latency = dict[str, float]

ROUNDS = 20
LIMIT = 5.0
"""Seconds that the round trips may take, all together: a slow server is known by then."""
SLOW, VERY_SLOW = 0.01, 0.25
DIFFERS, DIFFERS_MUCH = 1.0, 5.0
HTTP_GRAIN = 1.0
"""HTTP tells whole seconds."""


@dataclass(frozen=True, slots=True)
class Checkup:
    """What was found out about a set-up."""

    findings: Sequence[Finding]
    """The worst first."""
    guarantees: Guarantees
    """What the backend promises, refined by the findings."""
    trips: Sequence[float]
    """Seconds of each round trip; none where something critical keeps the servers from answering."""
    clocks: Sequence[Pulse]
    """The best reading of each server that tells its time."""


async def examine(backend: Backend, rounds: int = ROUNDS) -> Checkup:
    """Look at the set-up of a backend. Does I/O, changes nothing. Raises what `doctor` raises."""
    found = list(await backend.doctor())
    try:
        pulses = await _pulses(backend, rounds)
    except BackendError:
        # Something critical says why, and is what people need then.
        if worst(found) != "critical":
            raise
        pulses = []
    clocks = _best(pulses)
    trips = [pulse.trip for pulse in pulses]
    found += clock_findings(clocks)
    found += [latency_finding(trips)] if trips else []
    return Checkup(by_severity(found), refined(backend.guarantees, found), trips, clocks)


async def _pulses(backend: Backend, rounds: int) -> list[Pulse]:
    runtime = backend.runtime
    pulses: list[Pulse] = []
    until = runtime.now() + LIMIT
    while not pulses or (len(pulses) < rounds and runtime.now() < until):
        pulses += await backend.pulse(deadline=runtime.now() + LIMIT)
    return pulses


def _best(pulses: Iterable[Pulse]) -> list[Pulse]:
    """Return for each server that tells its time the reading that is surest."""
    best: dict[str, Pulse] = {}
    for pulse in pulses:
        if pulse.offset is not None and pulse.uncertainty <= best.get(pulse.server, pulse).uncertainty:
            best[pulse.server] = pulse
    return list(best.values())


async def timed(server: str, ask: Callable[[], Awaitable[float | None]], grain: float = 0.0) -> Pulse:
    """Return the pulse of a server that answers `ask` with its time, rounded down to `grain` seconds."""
    wall, began = time.time(), time.perf_counter()
    told = await ask()
    trip = time.perf_counter() - began
    if told is None:
        return Pulse(server, trip)
    return Pulse(server, trip, told + grain / 2 - (wall + trip / 2), trip / 2 + grain / 2)


def http_time(date: str | None) -> float | None:
    """Return the seconds in the header `Date` of an HTTP answer; `None` if there is none that makes sense."""
    try:
        return None if date is None else parsedate_to_datetime(date).timestamp()
    except ValueError:
        return None


def clock_findings(clocks: Sequence[Pulse]) -> list[Finding]:
    """Judge the clocks of servers against the clock of this machine."""
    several = len(clocks) > 1
    return [_clock(pulse, f"clock of {pulse.server}" if several else "clock") for pulse in clocks]


def _clock(pulse: Pulse, subject: str) -> Finding:
    assert pulse.offset is not None
    # A clock that was set five seconds off is read as 4.9998: rounded as it is shown.
    size = round(abs(pulse.offset), 1)
    sure = f"± {_small(pulse.uncertainty)}"
    if size < DIFFERS:
        return Finding("ok", subject, f"within {DIFFERS:g} s of this machine's ({sure})")
    where = "ahead of" if pulse.offset > 0 else "behind"
    detail = (
        f"{size:.1f} s {where} this machine's ({sure}): no lease depends on that, but schedules run early or "
        "late, times in lists and logs do not agree, and whoever sets the clock right in one step may end "
        "leases early or keep dead holders longer"
    )
    severity: Severity = "warning" if size >= DIFFERS_MUCH else "notice"
    advice = "run NTP on the server and here, and let it slew clocks, not set them"
    return Finding(severity, subject, detail, advice, setting=f"offset {pulse.offset:+.1f} s")


def _small(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


def latency_finding(trips: Sequence[float]) -> Finding:
    """Judge how long a round trip takes. There is at least one."""
    median, late = quantile(trips, 0.5), quantile(trips, 0.95)
    detail = f"{median * 1000:.2f} ms for a round trip, {late * 1000:.2f} ms for one in twenty"
    if median < SLOW:
        return Finding("ok", "latency", detail)
    severity: Severity = "notice" if median < VERY_SLOW else "warning"
    advice = "each acquire and each release waits for one at least: use a server that is nearer, or less busy"
    return Finding(severity, "latency", detail, advice)


def quantile(times: Sequence[float], share: float) -> float:
    """Return the time that this share of all times does not exceed. There is at least one."""
    ordered = sorted(times)
    return ordered[round((len(ordered) - 1) * share)]


def quantiles(times: Sequence[float]) -> Latency:
    """Return minimum, median, 95th and 99th percentile of at least one time."""
    return {
        "min": min(times),
        "median": quantile(times, 0.5),
        "p95": quantile(times, 0.95),
        "p99": quantile(times, 0.99),
        "rounds": len(times),
    }
