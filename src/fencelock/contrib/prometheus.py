"""Prometheus: counters, histograms and gauges of the locks of this process.

    from fencelock.contrib import prometheus

    prometheus.install()                    # into prometheus_client's own registry
    prometheus_client.start_http_server(9100)

The counting is done here, and handed over when somebody scrapes (`collect`). A value of prometheus_client
takes a lock for each number, and one pair of acquire and release would change six of them: that costs a third
of a lock in memory. Here an event is two steps: find the series of its name, append the seconds to a list.
Lists are folded into buckets when they are long, and at a scrape. What can be derived is not counted:
acquisitions are the number of waits, releases the number of holds that were not lost; what is held and who
waits is read from the clients' own tables.

Safe for threads and for signal handlers: appending is one atomic step, and folding is done by whoever gets
the lock without waiting for it. In a forked child the counters go on from where they were.

Not promised: the multiprocess mode of prometheus_client (`PROMETHEUS_MULTIPROC_DIR`), which knows only values
of its own. Serve each process on a port of its own, or use OpenTelemetry.
"""

from __future__ import annotations

import os
import weakref
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any

from fencelock.contrib.calls import missing
from fencelock.contrib.metrics import (
    HOLD_BOUNDS,
    METRICS,
    RENEWAL_BOUNDS,
    WAIT_BOUNDS,
    Metric,
    held_now,
    waiting_now,
)
from fencelock.contrib.patterns import Labels, Pattern
from fencelock.core.events import Plain
from fencelock.errors import ConfigurationError
from fencelock.events import (
    Acquired,
    BackendFailed,
    Broken,
    Event,
    Lost,
    Released,
    Renewed,
    Subscription,
    TimedOut,
    Withdrawn,
)
from fencelock.extras import refuse_old
from fencelock.runtime import locks

try:
    refuse_old("prometheus", "fencelock.contrib.prometheus")
    from prometheus_client import REGISTRY, CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.core import Metric as Family
except ModuleNotFoundError as error:
    raise missing(error, "prometheus") from error

__all__ = ["install"]

LONG = 256
"""A list of so many values is folded."""
REMEMBERED = 10_000

_collectors: weakref.WeakSet[Collector] = weakref.WeakSet()


def install(registry: CollectorRegistry | None = None, *, pattern: Pattern = None) -> Subscription:
    """Measure every lock of this process, from now on; `close()` what it returns to end that.

    `registry` is prometheus_client's own by default. `pattern` says what the label `lock` is: a function of
    the name, or a list of templates such as `invoice:{id}`; by default numbers and UUIDs become `*`.

    Example:
        >>> import fencelock, prometheus_client
        >>> registry = prometheus_client.CollectorRegistry()
        >>> with fencelock.Client("memory://") as locks, install(registry):
        ...     with locks.lock("invoice:42"):
        ...         labels = {"lock": "invoice:*", "mode": "exclusive", "backend": "memory"}
        ...         registry.get_sample_value("fencelock_held", labels)
        1.0
    """
    registry = REGISTRY if registry is None else registry
    collector = Collector(Labels(pattern))
    try:
        registry.register(collector)
    except ValueError as error:
        raise ConfigurationError(f"this registry has the metrics of fencelock already: {error}") from None
    _collectors.add(collector)
    return Subscription(collector.subscribers(), lambda: registry.unregister(collector))


class Tally:
    """A histogram: values that were not looked at yet, and the buckets of those that were."""

    __slots__ = ("bounds", "counts", "fresh", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.fresh: list[float] = []  # never another one: others have its append
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def fold(self) -> None:
        """Put the fresh values into their buckets. Whoever calls has the lock."""
        size = len(self.fresh)
        values = self.fresh[:size]
        del self.fresh[:size]  # what was appended meanwhile stays
        if not values:
            return
        self.sum += sum(values)
        first, last = bisect_left(self.bounds, min(values)), bisect_left(self.bounds, max(values))
        if first == last:  # as often with a lock that is used much
            self.counts[first] += size
            return
        values.sort()
        below = 0
        for index in range(first, last):
            upto = bisect_right(values, self.bounds[index], below)
            self.counts[index] += upto - below
            below = upto
        self.counts[last] += size - below

    def buckets(self) -> list[tuple[str, float]]:
        """The buckets as Prometheus wants them: each with all that are below its bound."""
        names = [*map(str, self.bounds), "+Inf"]
        return list(zip(names, accumulate(self.counts), strict=True))


class Series:
    """What is counted for one pattern, mode and backend."""

    __slots__ = ("add_hold", "add_wait", "backend", "fresh", "holds", "labels", "mode", "numbers", "waits")

    def __init__(self, labels: tuple[str, str, str]) -> None:
        self.labels = labels
        _, self.mode, self.backend = labels
        self.waits, self.holds = Tally(WAIT_BOUNDS), Tally(HOLD_BOUNDS)
        self.add_wait, self.add_hold = self.waits.fresh.append, self.holds.fresh.append
        self.fresh = self.holds.fresh
        self.numbers: Counter[str] = Counter()


class Collector:
    """Listens to events, and hands over what it has counted when asked."""

    def __init__(self, labels: Labels) -> None:
        self._labels = labels
        self._series: dict[tuple[str, str, str], Series] = {}
        self._latest: dict[str, Series] = {}
        self._renewals: dict[str, Tally] = {}
        self._numbers: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self.forked()

    def forked(self) -> None:
        """In a forked child: a thread of the parent may have had the locks."""
        self._lock, self._folding = locks.rlock(), locks.lock()

    # Events -----------------------------------------------------------------------------

    def subscribers(self) -> dict[type[Event], Any]:
        """Who wants to be told of what."""
        # Two functions for the events that every lock has, with all they need in reach: this is what is
        # paid for each lock. Who releases has acquired, so it is enough to fold then.
        latest, find, fold = self._latest, self._find, self._fold

        def acquired(name: str, mode: str, backend: str, waited: float) -> None:
            try:
                series = latest[name]
            except KeyError:
                series = find(name, mode, backend)
            if series.mode is not mode or series.backend is not backend:
                series = find(name, mode, backend)
            series.add_wait(waited)

        def released(name: str, mode: str, backend: str, held: float) -> None:
            try:
                series = latest[name]
            except KeyError:
                series = find(name, mode, backend)
            if series.mode is not mode or series.backend is not backend:
                series = find(name, mode, backend)
            series.add_hold(held)
            if len(series.fresh) >= LONG:
                fold(series.waits, series.holds)

        rest = (TimedOut, Withdrawn, Lost, Renewed, BackendFailed, Broken)
        return {Acquired: Plain(acquired), Released: Plain(released), **dict.fromkeys(rest, self._other)}

    def _find(self, name: str, mode: str, backend: str) -> Series:
        with self._lock:
            labels = self._labels(name), mode, backend
            series = self._series.get(labels)
            if series is None:
                series = self._series[labels] = Series(labels)
            if len(self._latest) >= REMEMBERED:
                self._latest.clear()
            self._latest[name] = series
        return series

    def _fold(self, *tallies: Tally) -> None:
        if self._folding.acquire(blocking=False):  # else somebody is at it: the next one will do
            try:
                for tally in tallies:
                    tally.fold()
            finally:
                self._folding.release()

    def _other(self, event: Event) -> None:
        with self._lock:
            match event:
                case TimedOut():
                    number = "timeouts" if event.timeout > 0 else "refused_tries"
                    self._find(event.name, event.mode, event.backend).numbers[number] += 1
                case Withdrawn():
                    self._find(event.name, event.mode, event.backend).numbers["withdrawn"] += 1
                case Lost():
                    series = self._find(event.name, event.mode, event.backend)
                    series.numbers["losses"] += 1
                    series.add_hold(event.held)
                case Renewed():
                    self._count("renewals", event.backend, "renewed", by=event.leases)
                    self._count("renewals", event.backend, "lost", by=event.lost)
                    self._count("renewals", event.backend, "unknown", by=event.unknown)
                    tally = self._renewals.setdefault(event.backend, Tally(RENEWAL_BOUNDS))
                    tally.fresh.append(event.seconds)
                    self._fold(tally)
                case BackendFailed():
                    self._count("backend_errors", event.backend, event.step, event.error)
                case Broken():
                    self._count("breaks", self._labels(event.name), event.backend)

    def _count(self, metric: str, *labels: str, by: int = 1) -> None:
        self._numbers[metric, labels] += by

    # Scrapes ----------------------------------------------------------------------------

    def describe(self) -> Iterator[Family]:
        """What there will be: a registry refuses names that it has."""
        return iter([_family(metric, []) for metric in METRICS])

    def collect(self) -> Iterator[Family]:
        """What was counted until now."""
        with self._folding, self._lock:
            now = {"held": self._now(held_now()), "waiting": self._now(waiting_now())}
            every = list(self._series.values())
            for tally in [t for one in every for t in (one.waits, one.holds)] + list(self._renewals.values()):
                tally.fold()
            return iter([_family(metric, self._samples(metric, every, now)) for metric in METRICS])

    def _now(self, locks: Iterable[tuple[str, str, str]]) -> Counter[Series]:
        return Counter(self._find(*lock) for lock in locks)

    def _samples(
        self, metric: Metric, every: list[Series], now: dict[str, Counter[Series]]
    ) -> Iterable[tuple[tuple[str, ...], Any]]:
        match metric.name:
            case "acquisitions":
                return [(one.labels, sum(one.waits.counts)) for one in every]
            case "releases":
                return [(one.labels, sum(one.holds.counts) - one.numbers["losses"]) for one in every]
            case "wait_seconds":
                return [(one.labels, one.waits) for one in every]
            case "hold_seconds":
                return [(one.labels, one.holds) for one in every]
            case "held" | "waiting":
                return [(one.labels, now[metric.name][one]) for one in every]
            case "renewal_seconds":
                return [((backend,), tally) for backend, tally in self._renewals.items()]
            case "renewals" | "backend_errors" | "breaks":
                return [(labels, n) for (name, labels), n in self._numbers.items() if name == metric.name]
            case _:
                return [(one.labels, one.numbers[metric.name]) for one in every]


def _family(metric: Metric, samples: Iterable[tuple[tuple[str, ...], Any]]) -> Family:
    name = f"fencelock_{metric.name}"
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(name, metric.about, labels=metric.labels)
        for labels, tally in samples:
            histogram.add_metric(labels, tally.buckets(), tally.sum)
        return histogram
    make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = make(name, metric.about, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, float(value))
    return family


def _after_fork() -> None:
    for collector in list(_collectors):
        collector.forked()


os.register_at_fork(after_in_child=_after_fork)
