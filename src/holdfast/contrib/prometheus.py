"""Prometheus: counters, histograms and gauges of the locks of this process.

    from holdfast.contrib import prometheus

    prometheus.install()                    # into prometheus_client's own registry
    prometheus_client.start_http_server(9100)

The counting is done here, and handed over when somebody scrapes (`collect`). A value object of
prometheus_client takes a lock for each number, and one pair of acquire and release changes six of them:
that alone costs a third of a lock in memory. Here an event is two steps: find the series of its name,
append the seconds to a list. Lists are folded into buckets when they are long, and at a scrape. What can be
derived is not counted: acquisitions are the number of waits, releases the number of holds that were not
lost.

Safe for threads and for signal handlers: appending is one atomic step, folding is done by whoever gets the
lock without waiting for it. In a forked child nothing is held and nobody waits; the counters go on from
where they were.

Not promised: the multiprocess mode of prometheus_client (`PROMETHEUS_MULTIPROC_DIR`), which knows only
values of its own. Serve each process on a port of its own there, or use OpenTelemetry.
"""

from __future__ import annotations

import os
import threading
import weakref
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Any

from holdfast.contrib.calls import missing
from holdfast.contrib.metrics import HOLD_BOUNDS, METRICS, RENEWAL_BOUNDS, WAIT_BOUNDS, Metric
from holdfast.contrib.patterns import Labels, Pattern
from holdfast.errors import ConfigurationError
from holdfast.events import (
    Acquired,
    BackendFailed,
    Broken,
    Event,
    Lost,
    Released,
    Renewed,
    Subscription,
    TimedOut,
    Waiting,
    Withdrawn,
)

try:
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
        >>> import holdfast, prometheus_client
        >>> registry = prometheus_client.CollectorRegistry()
        >>> with holdfast.Client("memory://") as locks, install(registry):
        ...     with locks.lock("invoice:42"):
        ...         labels = {"lock": "invoice:*", "mode": "exclusive", "backend": "memory"}
        ...         registry.get_sample_value("holdfast_held", labels)
        1.0
    """
    registry = REGISTRY if registry is None else registry
    collector = Collector(Labels(pattern))
    try:
        registry.register(collector)
    except ValueError as error:
        raise ConfigurationError(f"this registry has the metrics of holdfast already: {error}") from None
    _collectors.add(collector)
    return Subscription(collector.tell, lambda: registry.unregister(collector))


class Tally:
    """A histogram: values that were not looked at yet, and the buckets of those that were."""

    __slots__ = ("bounds", "counts", "fresh", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.fresh: list[float] = []
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def fold(self) -> None:
        """Put the fresh values into their buckets. Whoever calls has the lock."""
        size = len(self.fresh)
        values = sorted(self.fresh[:size])
        del self.fresh[:size]  # what was appended meanwhile stays
        below = 0
        for index, bound in enumerate(self.bounds):
            upto = bisect_right(values, bound, below)
            self.counts[index] += upto - below
            below = upto
        self.counts[-1] += size - below
        self.sum += sum(values)

    def buckets(self) -> list[tuple[str, float]]:
        """The buckets as Prometheus wants them: each with all that are below its bound."""
        names = [*map(str, self.bounds), "+Inf"]
        return list(zip(names, accumulate(self.counts), strict=True))


class Series:
    """What is counted for one pattern, mode and backend."""

    __slots__ = ("holds", "labels", "numbers", "waits")

    def __init__(self, labels: tuple[str, str, str]) -> None:
        self.labels = labels
        self.waits = Tally(WAIT_BOUNDS)
        self.holds = Tally(HOLD_BOUNDS)
        self.numbers: Counter[str] = Counter()


class Collector:
    """Listens to events, and hands over what it has counted when asked."""

    def __init__(self, labels: Labels) -> None:
        self._labels = labels
        self._series: dict[tuple[str, str, str], Series] = {}
        self._renewals: dict[str, Tally] = {}
        self._numbers: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self._known: dict[tuple[str, str, str], Series] = {}
        self._held: dict[str, Series] = {}
        self._waiting: dict[str, Series] = {}
        self._lock = threading.RLock()
        self._folding = threading.Lock()
        self.tell = self._subscriber()

    def forked(self) -> None:
        """In a forked child: its parent's locks are not held here, nor is a lock of its threads of use."""
        self._lock, self._folding = threading.RLock(), threading.Lock()
        self._held.clear()
        self._waiting.clear()

    # Events -----------------------------------------------------------------------------

    def _subscriber(self) -> Callable[[Event], None]:
        # One function for the two events that every lock has, with all it needs in reach: this is what
        # is paid for each of them.
        known, held, waiting, find, fold, other = (
            self._known,
            self._held,
            self._waiting,
            self._find,
            self._fold,
            self._other,
        )

        def tell(event: Event) -> None:
            if type(event) is Acquired:
                name, mode, _, owner, waited, backend, _ = event
                key = name, mode, backend
                series = known.get(key) or find(key)
                held[owner] = series
                if waiting:
                    waiting.pop(owner, None)
                tally = series.waits
                tally.fresh.append(waited)
            elif type(event) is Released:
                name, mode, _, owner, lasted, backend, _ = event
                series = (held.pop(owner) if owner in held else None) or find((name, mode, backend))
                tally = series.holds
                tally.fresh.append(lasted)
            else:
                other(event)
                return
            if len(tally.fresh) >= LONG:
                fold(tally)

        return tell

    def _find(self, key: tuple[str, str, str]) -> Series:
        name, mode, backend = key
        with self._lock:
            labels = self._labels(name), mode, backend
            series = self._series.get(labels)
            if series is None:
                series = self._series[labels] = Series(labels)
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[key] = series
        return series

    def _fold(self, tally: Tally) -> None:
        if self._folding.acquire(blocking=False):  # else somebody is at it: the next one will do
            try:
                tally.fold()
            finally:
                self._folding.release()

    def _other(self, event: Event) -> None:
        with self._lock:
            match event:
                case Waiting():
                    self._waiting[event.owner] = self._find((event.name, event.mode, event.backend))
                case TimedOut():
                    self._ended(event, "timeouts" if event.timeout > 0 else "refused_tries")
                case Withdrawn():
                    self._ended(event, "withdrawn")
                case Lost():
                    self._held.pop(event.owner, None)
                    series = self._find((event.name, event.mode, event.backend))
                    series.holds.fresh.append(event.held)
                    series.numbers["losses"] += 1
                case Renewed():
                    for outcome in ("lost", "unknown"):
                        self._count("renewals", event.backend, outcome, by=getattr(event, outcome))
                    self._count("renewals", event.backend, "renewed", by=event.leases)
                    tally = self._renewals.setdefault(event.backend, Tally(RENEWAL_BOUNDS))
                    tally.fresh.append(event.seconds)
                    if len(tally.fresh) >= LONG:
                        self._fold(tally)
                case BackendFailed():
                    self._count("backend_errors", event.backend, event.step, event.error)
                case Broken():
                    self._count("breaks", self._labels(event.name), event.backend)

    def _ended(self, event: TimedOut | Withdrawn, number: str) -> None:
        self._waiting.pop(event.owner, None)
        self._find((event.name, event.mode, event.backend)).numbers[number] += 1

    def _count(self, metric: str, *labels: str, by: int = 1) -> None:
        self._numbers[metric, labels] += by

    # Scrapes ----------------------------------------------------------------------------

    def describe(self) -> Iterator[Family]:
        """What there will be: a registry refuses names that it has."""
        return iter([_family(metric, []) for metric in METRICS])

    def collect(self) -> Iterator[Family]:
        """What was counted until now."""
        with self._folding, self._lock:
            every = list(self._series.values())
            for tally in [t for one in every for t in (one.waits, one.holds)] + list(self._renewals.values()):
                tally.fold()
            return iter([_family(metric, self._samples(metric, every)) for metric in METRICS])

    def _samples(self, metric: Metric, every: list[Series]) -> Iterable[tuple[tuple[str, ...], Any]]:
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
                now = Counter(list((self._held if metric.name == "held" else self._waiting).values()))
                return [(one.labels, now[one]) for one in every]
            case "renewal_seconds":
                return [((backend,), tally) for backend, tally in self._renewals.items()]
            case "renewals" | "backend_errors" | "breaks":
                return [(labels, n) for (name, labels), n in self._numbers.items() if name == metric.name]
            case _:
                return [(one.labels, one.numbers[metric.name]) for one in every]


def _family(metric: Metric, samples: Iterable[tuple[tuple[str, ...], Any]]) -> Family:
    name = f"holdfast_{metric.name}"
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(name, metric.about, labels=metric.labels)
        for labels, tally in samples:
            histogram.add_metric(labels, tally.buckets(), tally.sum)
        return histogram
    make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = make(name, metric.about, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def _after_fork() -> None:
    for collector in list(_collectors):
        collector.forked()


os.register_at_fork(after_in_child=_after_fork)
