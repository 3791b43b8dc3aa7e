"""fencelock under test, in both flavours.

The places in the line are watched from below: every step by which a request stands in the queue again is
seen as it is acknowledged. The place was certainly kept if the steps came less than the waiter's patience
apart, each was answered, and none took longer than the ttl: a step whose answer was lost may have been
admitted, and have expired, without anybody knowing. Where records live in sessions (ZooKeeper, etcd, Consul),
the one that this record stood in must have gone on without a gap, too: who is cut off for longer than its
session is no live waiter. Otherwise only the new place counts; and a first place that may be gone when it is
heard of is none yet.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Literal

from chaos.subject import Ask, Traits
from fencelock import AcquireTimeout, AsyncClient, Client
from fencelock.backends.base import Busy, patience
from fencelock.backends.ordered import OrderedBackend
from fencelock.runtime import clock
from fencelock.testing import Mode, boottime

__all__ = ["AsyncFencelock", "Fencelock", "asyncio", "blocking"]

MODES: tuple[Mode, ...] = ("exclusive", "shared", "permit")


class Line:
    """Where one request stands."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.stands = False
        self.certain_until = 0.0
        self.kept: Callable[[], bool] = certainly
        """Whether the record is certain to be where it was when the last step came back."""

    def answered(self, sent: float, kept: Callable[[], bool], *, busy: bool) -> None:
        """A step that was sent then has come back."""
        now = boottime()
        slow = now - sent > self.ask.ttl
        if self.stands and (now > self.certain_until or slow or not self.kept()):
            self.ask.requeued()
        elif busy and not self.stands and not slow and kept():
            self.ask.queued()
            self.stands = True
        # Slow, it may have been granted and have run out since: the next step stands in line anew.
        self.certain_until = 0.0 if slow else sent + patience(self.ask.ttl)
        self.kept = kept

    def failed(self) -> None:
        """A step has gone, and no answer came."""
        self.certain_until = 0.0


def certainly() -> bool:
    """A record of its own."""
    return True


def session_lives(backend: OrderedBackend, request: Any) -> Callable[[], bool]:
    """How to tell whether the session goes on that the record of this request is in now."""
    place = backend._places.get(request.owner)
    tenure = None if place is None else place.tenure
    return lambda: tenure is not None and tenure.is_live(clock.now())


line: ContextVar[Line | None] = ContextVar("line", default=None)


def watch(locks: Any) -> Any:
    """See every step of this client's requests; return its backend."""
    backend = locks._session.backend
    step = backend.acquire

    async def acquire(request: Any, *, wait: bool, deadline: float) -> Any:
        mine = line.get() if wait else None
        sent = boottime()
        try:
            answer = await step(request, wait=wait, deadline=deadline)
        except BaseException:
            if mine is not None:
                mine.failed()
            raise
        if mine is not None:
            kept = session_lives(backend, request) if isinstance(backend, OrderedBackend) else certainly
            mine.answered(sent, kept, busy=isinstance(answer, Busy))
        return answer

    backend.acquire = acquire
    return backend


class Fencelock:
    """The blocking flavour."""

    flavour: Literal["blocking", "asyncio"] = "blocking"

    def __init__(self, url: str, client: str) -> None:
        self.locks: Any = self.connect(url, client)
        backend = watch(self.locks)
        modes = frozenset(mode for mode in MODES if mode in backend.capabilities)
        fifo = backend.guarantees.fairness == "fifo"
        self.traits = Traits(modes=modes, tokens=True, fifo=fifo, losses=True)

    def connect(self, url: str, client: str) -> Any:
        return Client(url, client_name=client)

    def acquire(self, ask: Ask) -> Any:
        line.set(Line(ask))
        try:
            return self.lock(ask).acquire(timeout=ask.timeout)
        except AcquireTimeout:
            return None

    def lock(self, ask: Ask) -> Any:
        """The lock that was asked for."""
        terms: dict[str, Any] = {"ttl": ask.ttl, "on_lost": lambda lease: ask.lost(lease._hold.reason)}
        if ask.mode == "permit":
            return self.locks.semaphore(ask.name, ask.limit, **terms)
        if ask.mode == "shared":
            return self.locks.rwlock(ask.name, **terms).read()
        return self.locks.lock(ask.name, **terms)

    def close(self) -> Any:
        return self.locks.close()


class AsyncFencelock(Fencelock):
    """The asyncio flavour."""

    flavour = "asyncio"

    def connect(self, url: str, client: str) -> Any:
        return AsyncClient(url, client_name=client)

    async def acquire(self, ask: Ask) -> Any:
        line.set(Line(ask))
        try:
            return await self.lock(ask).acquire(timeout=ask.timeout)
        except AcquireTimeout:
            return None


def blocking(url: str, client: str) -> Fencelock:
    """Make a subject of the blocking flavour."""
    return Fencelock(url, client)


def asyncio(url: str, client: str) -> AsyncFencelock:
    """Make a subject of the asyncio flavour."""
    return AsyncFencelock(url, client)
