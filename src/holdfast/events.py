"""Events: what happens to locks in this process, as it happens.

    from holdfast import events

    with events.subscribe(print):
        ...

One stream for the whole process: every client, blocking and asyncio, every kind of lock. A lock of several
names tells of each of them, an election of the lock behind it. The event says which client and which backend.

A subscriber is called where it happens, on that thread and in that task, and the lock waits for it: it must
be quick, and must not block. What it raises is logged once and harms nobody. It may subscribe, unsubscribe
and use locks itself; it is then told of those as well.

Nobody has subscribed: nothing is made and nothing is called. `holdfast.contrib.prometheus` and
`holdfast.contrib.opentelemetry` are subscribers; `log` writes events to the log.

Not promised: an order between threads; that events are told of locks in other processes (`client.list` shows
those); what `inspect` and `list` do. In a forked child the parent's holds are not held, and no event says so.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from holdfast.core import events as core
from holdfast.core.events import (
    Acquired,
    BackendFailed,
    Broken,
    Event,
    Lost,
    Released,
    Renewed,
    Subscriber,
    TimedOut,
    Waiting,
    Withdrawn,
    fields,
)
from holdfast.errors import ConfigurationError
from holdfast.names import shown

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

_changing = threading.Lock()


class Subscription:
    """A subscriber that is told of events, until `close()`. Also a context manager."""

    def __init__(self, subscriber: Subscriber, then: Callable[[], None] | None = None) -> None:
        self._subscriber = subscriber
        self._then = then
        self._is_open = True
        with _changing:
            core.subscribers = (*core.subscribers, subscriber)

    def close(self) -> None:
        """Be told no more. An event that is being told may still come. Idempotent."""
        with _changing:
            if not self._is_open:
                return
            self._is_open = False
            left = list(core.subscribers)
            del left[next(index for index, known in enumerate(left) if known is self._subscriber)]
            core.subscribers = tuple(left)
            core.faulty[:] = [known for known in core.faulty if known is not self._subscriber]
        if self._then is not None:
            self._then()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Subscription of {self._subscriber!r}{'' if self._is_open else ', closed'}>"


def subscribe(subscriber: Subscriber) -> Subscription:
    """Call `subscriber(event)` for every event of this process, from now on.

    Example:
        >>> import holdfast
        >>> def tell(event):
        ...     print(type(event).__name__, event.name)
        >>> with holdfast.Client("memory://") as locks, subscribe(tell):
        ...     with locks.lock("invoice:42"):
        ...         pass
        Acquired invoice:42
        Released invoice:42
    """
    if not callable(subscriber):
        raise ConfigurationError(
            f"subscriber={shown(subscriber)} is not callable: give a function that takes the event"
        )
    return Subscription(subscriber)


def log(level: int = logging.DEBUG, logger: str = "holdfast.events") -> Subscription:
    """Write every event to the log, each as one record with the event's fields in `record.holdfast`."""
    to = logging.getLogger(logger)

    def write(event: Event) -> None:
        if to.isEnabledFor(level):
            told = ", ".join(f"{key}={value!r}" for key, value in event._asdict().items())
            to.log(level, "%s(%s)", type(event).__name__, told, extra={"holdfast": fields(event)})

    return Subscription(write)
