"""Events: what happens to locks in this process, as it happens.

    from fencelock import events

    with events.subscribe(print):
        ...

One stream for the whole process: every client, blocking and asyncio, every kind of lock. A lock of several
names tells of each of them, an election of the lock behind it. The event says which client and which backend.

A subscriber is called where it happens, on that thread and in that task, and the lock waits for it: it must
be quick, and must not block. What it raises is logged once and harms nobody. It may subscribe, unsubscribe
and use locks itself; it is then told of those as well.

Where nobody has subscribed nothing is made and nothing is called. `fencelock.contrib.prometheus` and
`fencelock.contrib.opentelemetry` are subscribers; `log` writes events to the log.

Not promised: an order between threads; that events are told of locks in other processes (`client.list` shows
those); what `inspect` and `list` do. In a forked child the parent's holds are not held, and no event says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self, get_args

from fencelock.core import events as core
from fencelock.core.events import (
    Acquired,
    BackendFailed,
    Broken,
    Event,
    Lost,
    Released,
    Renewed,
    TimedOut,
    Waiting,
    Withdrawn,
    fields,
)
from fencelock.errors import ConfigurationError
from fencelock.names import shown
from fencelock.runtime import locks

__all__ = [
    "Acquired",
    "BackendFailed",
    "Broken",
    "Event",
    "Lost",
    "Released",
    "Renewed",
    "Subscription",
    "TimedOut",
    "Waiting",
    "Withdrawn",
    "fields",
    "log",
    "subscribe",
]

KINDS: tuple[type[Event], ...] = get_args(Event)
_changing = locks.lock()


class Subscription:
    """A subscriber that is told of events, until `close()`. Also a context manager."""

    def __init__(
        self,
        subscribers: Mapping[type[Event], Any],
        then: Callable[[], None] | None = None,
    ) -> None:
        self._subscribers = dict(subscribers)
        self._then = then
        self._is_open = True
        with _changing:
            core.listen({kind: (*core.subscribers[kind], told) for kind, told in self._subscribers.items()})

    def close(self) -> None:
        """Be told no more. An event that is being told may still come. Idempotent."""
        with _changing:
            if not self._is_open:
                return
            self._is_open = False
            core.listen({kind: _without(kind, told) for kind, told in self._subscribers.items()})
            for told in self._subscribers.values():
                core.faulty[:] = [known for known in core.faulty if known is not told]
        if self._then is not None:
            self._then()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        kinds = ", ".join(sorted(kind.__name__ for kind in self._subscribers))
        return f"<Subscription to {kinds}{'' if self._is_open else ', closed'}>"


def _without(kind: type[Event], subscriber: object) -> tuple[Any, ...]:
    left = list(core.subscribers[kind])
    del left[next(index for index, known in enumerate(left) if known is subscriber)]
    return tuple(left)


def subscribe(subscriber: Callable[[Any], object], *kinds: type[Event]) -> Subscription:
    """Call `subscriber(event)` for every event of these kinds in this process, or of every kind.

    Example:
        >>> import fencelock
        >>> def tell(event):
        ...     print(type(event).__name__, event.name)
        >>> with fencelock.Client("memory://") as locks, subscribe(tell):
        ...     with locks.lock("invoice:42"):
        ...         pass
        Acquired invoice:42
        Released invoice:42
    """
    if not callable(subscriber):
        raise ConfigurationError(
            f"subscriber={shown(subscriber)} is not callable: give a function that takes the event"
        )
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise ConfigurationError(
            f"kinds={shown(unknown[0])} is no kind of event: give classes such as events.Lost"
        )
    return Subscription(dict.fromkeys(kinds or KINDS, subscriber))


def log(level: int = logging.DEBUG, logger: str = "fencelock.events") -> Subscription:
    """Write every event to the log, each as one record with the event's fields in `record.fencelock`."""
    to = logging.getLogger(logger)

    def write(event: Event) -> None:
        if to.isEnabledFor(level):
            told = ", ".join(f"{key}={value!r}" for key, value in event._asdict().items())
            to.log(level, "%s(%s)", type(event).__name__, told, extra={"fencelock": fields(event)})

    return subscribe(write)
