"""/metrics: what the last look at each backend said, and what this process itself counts.

`lock` is a pattern of names, at most a hundred of them (`fencelock.contrib.patterns`). `backend` is the label
of the backend, without password. A backend that does not answer has `fencelock_backend_up 0`, and no other
series: old figures are not passed off as new ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily

from fencelock.contrib.patterns import Labels
from fencelock.contrib.prometheus import install
from fencelock.dashboard.watch import Watcher
from fencelock.events import Subscription
from fencelock.findings import SEVERITIES

__all__ = ["METRICS", "Metrics"]


class Gauge(NamedTuple):
    """One metric of a backend."""

    name: str
    labels: tuple[str, ...]
    about: str


EACH = ("backend", "lock")

METRICS = (
    Gauge("fencelock_backend_up", ("backend",), "Whether the backend answered when it was last asked."),
    Gauge("fencelock_backend_poll_seconds", ("backend",), "Time that the last list of all locks took."),
    Gauge("fencelock_backend_locks", EACH, "Locks that are held or waited for."),
    Gauge("fencelock_backend_holders", EACH, "Holders."),
    Gauge("fencelock_backend_waiters", EACH, "Waiters."),
    Gauge("fencelock_backend_oldest_hold_seconds", EACH, "For how long the oldest holder has held."),
    Gauge("fencelock_backend_oldest_wait_seconds", EACH, "For how long the oldest waiter has waited."),
    Gauge("fencelock_backend_findings", ("backend", "severity"), "What doctor found at its last visit."),
)


class Metrics:
    """Hands over what was seen when somebody scrapes."""

    media_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self, backends: Sequence[Mapping[str, Any]], watchers: Mapping[str, Watcher]) -> None:
        ids = [told["id"] for told in backends]
        self._watched = [(name, watchers[id_]) for name, id_ in zip(_names(backends), ids, strict=True)]
        self._pattern = Labels()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self._own: Subscription | None = None

    def text(self) -> bytes:
        """Return the metrics as Prometheus reads them. This process is counted from the first time on."""
        self._own = self._own or install(self._registry)
        return generate_latest(self._registry)

    def close(self) -> None:
        """Stop counting."""
        if self._own is not None:
            self._own.close()
            self._own = None

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """What there will be: a registry refuses names that it has."""
        return iter(_families().values())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """What was seen."""
        families = _families()

        def add(name: str, labels: Sequence[str], value: float) -> None:
            families[f"fencelock_backend_{name}"].add_metric(labels, float(value))

        for backend, watcher in self._watched:
            is_up = watcher.trouble is None and watcher.picture.taken
            add("up", (backend,), is_up)
            if watcher.rounds.checkup is not None:
                found = [finding["severity"] for finding in watcher.rounds.checkup["findings"]]
                for severity in SEVERITIES:
                    add("findings", (backend, severity), found.count(severity))
            if not is_up:
                continue
            add("poll_seconds", (backend,), watcher.picture.totals["poll"])
            for pattern, figures in self._by_pattern(watcher).items():
                for name, value in figures.items():
                    add(name, (backend, pattern), value)
        return iter(families.values())

    def _by_pattern(self, watcher: Watcher) -> dict[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = defaultdict(
            lambda: dict.fromkeys(
                ("locks", "holders", "waiters", "oldest_hold_seconds", "oldest_wait_seconds"), 0.0
            )
        )
        for state in watcher.picture.states:
            figures = found[self._pattern(state.name)]
            figures["locks"] += 1
            figures["holders"] += len(state.holders)
            figures["waiters"] += len(state.waiters)
            for what, entries in (("hold", state.holders), ("wait", state.waiters)):
                key = f"oldest_{what}_seconds"
                figures[key] = max([figures[key], *(entry.age for entry in entries)])
        return found


def _families() -> dict[str, GaugeMetricFamily]:
    return {each.name: GaugeMetricFamily(each.name, each.about, labels=each.labels) for each in METRICS}


def _names(backends: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a name for each, no two alike: the same store may be watched as two users."""
    names = [f"{told['label']} {told['namespace']}".strip() for told in backends]
    return [
        name if names.count(name) == 1 else f"{name} {told['id']}"
        for name, told in zip(names, backends, strict=True)
    ]
