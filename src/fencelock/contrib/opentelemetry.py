"""OpenTelemetry: a span for each wait and each hold, and the metrics that Prometheus gets.

    from fencelock.contrib import opentelemetry

    opentelemetry.install()                 # with the providers that the program has set

| span | begins | ends | is an error if |
|---|---|---|---|
| `fencelock wait` | when asked for | when acquired, or given up | it timed out, or the backend failed |
| `fencelock hold` | when acquired | when released or lost | it was lost |

Both are children of the span that is current where the lock is acquired, and `fencelock hold` does not
become current itself: what is done under the lock stays a child of your own span, beside it. A try that
finds the lock busy is no error. Attributes: `fencelock.lock` (the name), `.token`, `.mode`, `.backend`,
`.owner`. A span may have the name of a lock, since spans are not counted by it; metrics have its pattern
(`patterns.py`).

Times: a wait is told when it is over, so its span begins so many seconds before now. How long it took is
by the monotonic clock; where that lies on the trace's axis is by the wall clock, as with every span.

Not promised: a span for what a process held when it was killed, and in a forked child for what its parent
holds.
"""

from __future__ import annotations

import os
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from fencelock.contrib.calls import missing
from fencelock.contrib.metrics import METRICS, held_now, waiting_now
from fencelock.contrib.patterns import Labels, Pattern
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

try:
    refuse_old("opentelemetry", "fencelock.contrib.opentelemetry")
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter_provider
    from opentelemetry.trace import Span, Status, StatusCode, TracerProvider, get_tracer_provider
except ModuleNotFoundError as error:
    raise missing(error, "opentelemetry") from error

from fencelock._version import __version__

__all__ = ["install"]

INTERRUPTED = {"CancelledError", "KeyboardInterrupt", "GeneratorExit", "SystemExit"}
"""Errors that say that somebody wanted it to end."""

_spans: weakref.WeakSet[Spans] = weakref.WeakSet()


def install(
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    *,
    pattern: Pattern = None,
) -> Subscription:
    """Trace and measure every lock of this process, from now on; `close()` what it returns to end that.

    The providers are those that the program has set, by default. `pattern` says what the attribute `lock` of
    the metrics is, as for Prometheus.

    Example:
        >>> import fencelock
        >>> with fencelock.Client("memory://") as locks, install():
        ...     with locks.lock("invoice:42") as lease:
        ...         lease.is_held()
        True
    """
    spans = Spans(get_tracer_provider() if tracer_provider is None else tracer_provider)
    meters = Meters(get_meter_provider() if meter_provider is None else meter_provider, Labels(pattern))
    _spans.add(spans)

    def tell(event: Event) -> None:
        spans.tell(event)
        meters.tell(event)

    kinds = (Acquired, TimedOut, Withdrawn, Released, Lost, Renewed, BackendFailed, Broken)
    return Subscription(dict.fromkeys(kinds, tell), meters.close)


class Spans:
    """The spans of waits, made when they are over, and of holds, kept until they are."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer("fencelock", __version__)
        self._open: dict[str, Span] = {}

    def forked(self) -> None:
        """In a forked child: the parent ends its own."""
        self._open.clear()

    def tell(self, event: Event) -> None:
        """Begin or end what this event begins or ends."""
        match event:
            case Acquired():
                self._waited(event).end()
                self._open[event.owner] = self._tracer.start_span("fencelock hold", attributes=_about(event))
            case TimedOut():
                span = self._waited(event)
                if event.timeout > 0:
                    span.set_status(Status(StatusCode.ERROR, f"not acquired within {event.timeout:g}s"))
                span.end()
            case Withdrawn():
                span = self._waited(event)
                if event.error not in INTERRUPTED:
                    span.set_status(Status(StatusCode.ERROR, event.error))
                span.end()
            case Released() | Lost():
                found = self._open.pop(event.owner, None)
                if found is None:  # acquired before there was anybody to trace it
                    return
                if isinstance(event, Lost):
                    found.set_status(Status(StatusCode.ERROR, event.reason))
                found.end()

    def _waited(self, event: Acquired | TimedOut | Withdrawn) -> Span:
        began = time.time_ns() - int(event.waited * 1e9)
        return self._tracer.start_span("fencelock wait", attributes=_about(event), start_time=began)


def _about(event: Acquired | TimedOut | Withdrawn) -> dict[str, str | int]:
    about: dict[str, str | int] = {
        "fencelock.lock": event.name,
        "fencelock.mode": event.mode,
        "fencelock.backend": event.backend,
        "fencelock.owner": event.owner,
    }
    if isinstance(event, Acquired):
        about["fencelock.token"] = event.token
    return about


class Meters:
    """The metrics, as instruments of OpenTelemetry."""

    def __init__(self, provider: MeterProvider, labels: Labels) -> None:
        self._labels = labels
        self._is_open = True
        meter = provider.get_meter("fencelock", __version__)
        self._instruments: dict[str, Any] = {}
        for metric in METRICS:
            name, about = metric.opentelemetry, metric.about
            if metric.kind == "histogram":
                self._instruments[metric.name] = meter.create_histogram(
                    name, "s", about, explicit_bucket_boundaries_advisory=list(metric.bounds)
                )
            elif metric.kind == "counter":
                self._instruments[metric.name] = meter.create_counter(name, description=about)
            else:
                look = held_now if metric.name == "held" else waiting_now
                meter.create_observable_gauge(name, [self._looking(look)], description=about)

    def close(self) -> None:
        """Nothing is held or waited for any more, as far as these are asked."""
        self._is_open = False

    def _looking(
        self, look: Callable[[], list[tuple[str, str, str]]]
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(options: CallbackOptions) -> Iterable[Observation]:
            if not self._is_open:
                return []
            counted = Counter((self._labels(name), mode, backend) for name, mode, backend in look())
            return [
                Observation(number, {"lock": lock, "mode": mode, "backend": backend})
                for (lock, mode, backend), number in counted.items()
            ]

        return observe

    def tell(self, event: Event) -> None:
        """Count an event."""
        match event:
            case Acquired():
                self._add("acquisitions", self._lock(event))
                self._instruments["wait_seconds"].record(event.waited, self._lock(event))
            case TimedOut():
                self._add("timeouts" if event.timeout > 0 else "refused_tries", self._lock(event))
            case Withdrawn():
                self._add("withdrawn", self._lock(event))
            case Released() | Lost():
                self._add("losses" if isinstance(event, Lost) else "releases", self._lock(event))
                self._instruments["hold_seconds"].record(event.held, self._lock(event))
            case Renewed():
                self._add("renewals", {"backend": event.backend, "outcome": "renewed"}, event.leases)
                self._add("renewals", {"backend": event.backend, "outcome": "lost"}, event.lost)
                self._add("renewals", {"backend": event.backend, "outcome": "unknown"}, event.unknown)
                self._instruments["renewal_seconds"].record(event.seconds, {"backend": event.backend})
            case BackendFailed():
                about = {"backend": event.backend, "step": event.step, "error": event.error}
                self._add("backend_errors", about)
            case Broken():
                self._add("breaks", {"lock": self._labels(event.name), "backend": event.backend})

    def _lock(self, event: Acquired | TimedOut | Withdrawn | Released | Lost) -> dict[str, str]:
        return {"lock": self._labels(event.name), "mode": event.mode, "backend": event.backend}

    def _add(self, name: str, attributes: dict[str, str], by: int = 1) -> None:
        self._instruments[name].add(by, attributes)


def _after_fork() -> None:
    for spans in list(_spans):
        spans.forked()


os.register_at_fork(after_in_child=_after_fork)
