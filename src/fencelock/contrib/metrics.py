"""What is measured: the one list behind Prometheus, OpenTelemetry and the reference page.

`lock` is a pattern of names, not a name (`patterns.py`); `mode` is exclusive, shared or permit; `backend`
is one word such as redis.
"""

from __future__ import annotations

from typing import NamedTuple

from fencelock.connect import live_sessions

__all__ = ["HOLD_BOUNDS", "METRICS", "RENEWAL_BOUNDS", "WAIT_BOUNDS", "Metric", "held_now", "waiting_now"]

RENEWAL_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
WAIT_BOUNDS = (*RENEWAL_BOUNDS, 10.0, 30.0, 60.0, 300.0)
HOLD_BOUNDS = (*WAIT_BOUNDS, 1800.0, 7200.0)

LOCK = ("lock", "mode", "backend")


class Metric(NamedTuple):
    """One metric: its name without `fencelock_` and without what its kind appends."""

    name: str
    kind: str
    labels: tuple[str, ...]
    about: str
    bounds: tuple[float, ...] = ()

    @property
    def prometheus(self) -> str:
        """The name of its series for Prometheus."""
        return f"fencelock_{self.name}{'_total' if self.kind == 'counter' else ''}"

    @property
    def opentelemetry(self) -> str:
        """Its name for OpenTelemetry, where the unit is apart."""
        return f"fencelock.{self.name.removesuffix('_seconds')}"


METRICS = (
    Metric("acquisitions", "counter", LOCK, "Locks that were acquired."),
    Metric("wait_seconds", "histogram", LOCK, "Time until a lock was acquired.", WAIT_BOUNDS),
    Metric("waiting", "gauge", LOCK, "Calls of this process that wait for a lock now."),
    Metric("timeouts", "counter", LOCK, "Locks that were not acquired within their timeout."),
    Metric("refused_tries", "counter", LOCK, "Tries (timeout 0) that found the lock busy."),
    Metric("withdrawn", "counter", LOCK, "Calls that ended without the lock: cancelled, or failed."),
    Metric("held", "gauge", LOCK, "Locks that this process holds now."),
    Metric("releases", "counter", LOCK, "Locks that were given back."),
    Metric("losses", "counter", LOCK, "Leases that were lost."),
    Metric("hold_seconds", "histogram", LOCK, "Time until a lock was released or lost.", HOLD_BOUNDS),
    Metric("breaks", "counter", ("lock", "backend"), "Locks that this process has broken by force."),
    Metric(
        "renewals",
        "counter",
        ("backend", "outcome"),
        "Leases in renewals: renewed, lost or unknown.",
    ),
    Metric(
        "renewal_seconds",
        "histogram",
        ("backend",),
        "Time of one call, for many leases.",
        RENEWAL_BOUNDS,
    ),
    Metric("backend_errors", "counter", ("backend", "step", "error"), "Steps of the backend that failed."),
)


def held_now() -> list[tuple[str, str, str]]:
    """Return name, mode and backend of every lock that this process holds."""
    return [
        (hold.request.name, hold.request.mode, session.source.backend)
        for session in live_sessions()
        for hold in session.holds.all()
    ]


def waiting_now() -> list[tuple[str, str, str]]:
    """Return name, mode and backend for every call of this process that is about to acquire a lock."""
    return [
        (one.request.name, one.request.mode, session.source.backend)
        for session in live_sessions()
        for one in list(session.acquiring.values())
    ]
