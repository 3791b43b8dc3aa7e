"""Events: what the core tells subscribers.

`subscribers` has a tuple of functions for each kind of event, empty as long as there are none. The two
kinds that every lock has are looked at first, and nothing is made without subscribers:

    if events.to_released:
        events.tell(events.Released, events.to_released, source, hold, held)

That look is all that an unused event costs; what is rare is made in any case. Subscribers are called where it
happens: on the thread, and in the task, that acquired, released or found the loss. What they raise is logged,
once for each, and goes no further.

For each hold: one `Acquired`, told before anybody can end it, and then exactly one `Released` or `Lost`. For
each call that waits: perhaps one `Waiting`, then one of `Acquired`, `TimedOut`, `Withdrawn`. Entering a
reentrant lock again is no event.

Not promised: an order between threads. Events are tuples, not dataclasses: a frozen dataclass of seven
fields takes three times as long to make, and that is what a subscriber would cost most.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, get_args

from fencelock.core.ports import Outcome
from fencelock.errors import AcquireTimeout

if TYPE_CHECKING:
    from fencelock.core.hold import Hold
    from fencelock.core.ports import Request
    from fencelock.errors import BackendError
    from fencelock.state import Entry

__all__ = [
    "Acquired",
    "BackendFailed",
    "Broken",
    "Event",
    "Lost",
    "Released",
    "Renewed",
    "TimedOut",
    "Waiting",
    "Withdrawn",
]

log = logging.getLogger("fencelock")


class Source(NamedTuple):
    """Where events come from: what each carries of its client."""

    backend: str
    client: str


class Waiting(NamedTuple):
    """The lock is busy, and a request begins to wait for it."""

    name: str
    mode: str
    owner: str
    backend: str
    client: str


class Acquired(NamedTuple):
    """A lock was acquired, after `waited` seconds; that includes the time the backend took."""

    name: str
    mode: str
    token: int
    owner: str
    waited: float
    backend: str
    client: str


class TimedOut(NamedTuple):
    """A lock was not acquired within `timeout`; with a timeout of 0 it was only tried."""

    name: str
    mode: str
    owner: str
    waited: float
    timeout: float
    holder: Entry | None
    backend: str
    client: str


class Withdrawn(NamedTuple):
    """A call ended before it had the lock: it was cancelled or interrupted, or failed with `error`."""

    name: str
    mode: str
    owner: str
    waited: float
    error: str
    backend: str
    client: str


class Released(NamedTuple):
    """A lock was given back after `held` seconds, by whatever way but a loss."""

    name: str
    mode: str
    token: int
    owner: str
    held: float
    backend: str
    client: str


class Lost(NamedTuple):
    """A lease was lost after `held` seconds."""

    name: str
    mode: str
    token: int
    owner: str
    held: float
    reason: str
    backend: str
    client: str


class Renewed(NamedTuple):
    """One call of the backend renewed so many leases, or looked at them; it took `seconds`."""

    leases: int
    lost: int
    unknown: int
    seconds: float
    backend: str
    client: str


class BackendFailed(NamedTuple):
    """A step of the backend failed: `acquire`, `wait`, `renew`, `release`, `abandon` or `force_release`."""

    step: str
    error: str
    backend: str
    client: str


class Broken(NamedTuple):
    """A lock was broken by this client: those owners hold or wait no more."""

    name: str
    owners: tuple[str, ...]
    backend: str
    client: str


Event: TypeAlias = (
    Waiting | Acquired | TimedOut | Withdrawn | Released | Lost | Renewed | BackendFailed | Broken
)
"""Whatever a subscriber is called with."""
Subscriber: TypeAlias = Callable[[Event], object]


class Plain:
    """Counts grants or releases: called with name, mode, backend and seconds, for whom no event is made."""

    __slots__ = ("count",)

    def __init__(self, count: Callable[[str, str, str, float], object]) -> None:
        self.count = count


subscribers: dict[type, tuple[Any, ...]] = dict.fromkeys(get_args(Event), ())
"""Who is told, for each kind of event: a `Subscriber`, or `Plain` for the two kinds below."""
to_acquired: tuple[Subscriber | Plain, ...] = ()
to_released: tuple[Subscriber | Plain, ...] = ()
"""The same, for the two kinds that every lock has: looked at each time."""
faulty: list[Subscriber | Plain] = []
new = tuple.__new__
"""What `Acquired(…)` calls in the end, by a way that takes twice as long."""


def listen(changed: dict[type, tuple[Any, ...]]) -> None:
    """Tell these from now on."""
    global to_acquired, to_released
    subscribers.update(changed)
    to_acquired, to_released = subscribers[Acquired], subscribers[Released]


def emit(event: Event) -> None:
    """Call every subscriber to this kind of event."""
    for subscriber in subscribers[type(event)]:
        try:
            subscriber(event)
        except Exception as error:  # noqa: BLE001
            complain(subscriber, error)


def tell(
    kind: type[Acquired | Released],
    to: Sequence[Subscriber | Plain],
    source: Source,
    hold: Hold,
    seconds: float,
) -> None:
    """Tell of a grant, or that a hold ended as its holder wished: `to_acquired`, or `to_released`."""
    request, event = hold.request, None
    name, mode, (backend, client) = request.name, request.mode, source
    for subscriber in to:
        try:
            if isinstance(subscriber, Plain):
                subscriber.count(name, mode, backend, seconds)
                continue
            if event is None:
                event = new(kind, (name, mode, hold.token, request.owner, seconds, backend, client))
            subscriber(event)
        except Exception as error:  # noqa: BLE001
            complain(subscriber, error)


def complain(subscriber: Subscriber | Plain, error: Exception) -> None:
    """Log what a subscriber has raised, once for each."""
    if not any(subscriber is known for known in faulty):
        faulty.append(subscriber)
        log.error("a subscriber to events failed: %r (this is said once)", subscriber, exc_info=error)


def waiting(source: Source, request: Request) -> None:
    """Tell that a request has begun to wait."""
    emit(Waiting(request.name, request.mode, request.owner, *source))


def not_acquired(
    source: Source, request: Request, error: BaseException, waited: float, timeout: float
) -> None:
    """Tell how a call ended that gives no lease."""
    name, mode, owner = request.name, request.mode, request.owner
    if isinstance(error, AcquireTimeout):
        emit(TimedOut(name, mode, owner, waited, timeout, error.holder, *source))
    else:
        emit(Withdrawn(name, mode, owner, waited, type(error).__name__, *source))


def lost(source: Source, hold: Hold, held: float) -> None:
    """Tell of a loss."""
    emit(_loss(source, hold, held))


def _loss(source: Source, hold: Hold, held: float) -> Lost:
    request = hold.request
    return Lost(request.name, request.mode, hold.token, request.owner, held, hold.reason, *source)


def log_loss(source: Source, hold: Hold, held: float, level: int) -> None:
    """Write a loss to the log, whether or not there are subscribers."""
    loss = _loss(source, hold, held)
    message = "lease on %r (token %d, owner %s) was lost: %s"
    log.log(level, message, loss.name, loss.token, loss.owner, loss.reason, extra={"fencelock": fields(loss)})


def fields(event: Event) -> dict[str, object]:
    """Return an event as the log's records carry it: its kind, and its fields."""
    return {"event": type(event).__name__, **event._asdict()}


def renewed(source: Source, outcomes: Sequence[Outcome], seconds: float) -> None:
    """Tell what one call for many leases gave."""
    gone, unknown = outcomes.count(Outcome.LOST), outcomes.count(Outcome.UNKNOWN)
    emit(Renewed(len(outcomes) - gone - unknown, gone, unknown, seconds, *source))


def failed(source: Source, step: str, error: BackendError) -> None:
    """Tell that a step of the backend failed."""
    emit(BackendFailed(step, type(error).__name__, *source))


def broken(source: Source, name: str, entries: Sequence[Entry]) -> None:
    """Tell that a lock was broken."""
    emit(Broken(name, tuple(entry.owner for entry in entries), *source))
