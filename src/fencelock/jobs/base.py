"""What `Worker` and `AsyncWorker` share: what they were given, checked, and what is asked of them."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from fencelock.connections import Door
from fencelock.durations import Duration, duration
from fencelock.errors import ConfigurationError
from fencelock.jobs.hands import Hands
from fencelock.jobs.job import JobBase
from fencelock.jobs.links import Link, shortage
from fencelock.jobs.loop import Loop, Terms
from fencelock.jobs.outcomes import Backoff, Tally, check_backoff, check_count
from fencelock.jobs.shape import Shape
from fencelock.jobs.statements import Statements
from fencelock.jobs.table import TableBase
from fencelock.jobs.ways import way_for
from fencelock.names import check_name, shown

__all__ = ["ENDING", "Running", "WorkerBase"]

MOST = 1000
SHORTEST_POLL = 0.01
ENDING = (signal.SIGTERM, signal.SIGINT)

log = logging.getLogger("fencelock.jobs")


class Running(NamedTuple):
    """A job that a worker is at."""

    name: str
    attempt: int
    seconds: float
    remaining: float
    """Seconds for which the lease is certain."""


class WorkerBase:
    """What both flavours share: everything that was given, checked."""

    _loop: Loop | None = None
    _job: type[JobBase]

    def __init__(
        self,
        locks: Any,
        source: TableBase,
        handlers: Mapping[str, Callable[[Any], Any]],
        *,
        concurrency: int,
        ttl: Duration,
        poll: Duration,
        attempts: int,
        backoff: Backoff,
        grace: Duration,
        strict: bool,
    ) -> None:
        self.locks = locks
        self.source = source
        self.handlers = dict(handlers) if isinstance(handlers, Mapping) else {}
        if not self.handlers:
            raise ConfigurationError(f"handlers={shown(handlers)} has none: give {{kind: function}}")
        for kind, handler in self.handlers.items():
            check_name(kind, "kind")
            if not callable(handler):
                raise ConfigurationError(f"the handler of {kind!r} is not callable: {shown(handler)}")
        self._strict = bool(strict)
        self._terms = Terms(
            concurrency=check_count(concurrency, "concurrency", MOST),
            ttl=_positive(ttl, "ttl"),
            poll=max(_positive(poll, "poll"), SHORTEST_POLL),
            attempts=check_count(attempts, "attempts", 2**31 - 1),
            backoff=check_backoff(backoff),
            grace=duration(grace, "grace"),
        )
        if locks is not None:
            locks.lock("fencelock-jobs", ttl=self._terms.ttl)  # raises if the backend cannot keep the ttl
        self._stopped_early = False

    @property
    def concurrency(self) -> int:
        """How many jobs it does at a time."""
        return self._terms.concurrency

    @concurrency.setter
    def concurrency(self, value: int) -> None:
        self._terms = replace(self._terms, concurrency=check_count(value, "concurrency", MOST))

    @property
    def tally(self) -> Tally:
        """What this run has done so far, or the last one."""
        return self._loop.tally() if self._loop is not None else Tally()

    def running(self) -> list[Running]:
        """Return the jobs that it is at."""
        loop = self._loop
        if loop is None:
            return []
        now = loop._runtime.now()
        return [
            Running(held.claimed.name, held.claimed.attempt, now - held.started, held.got.lease.remaining())
            for held in list(loop.held.values())
        ]

    def stop(self, *, grace: Duration | None = None) -> None:
        """Begin no job any more and let those under way end, for `grace` seconds. From any thread."""
        seconds = self._terms.grace if grace is None else duration(grace, "grace")
        if self._loop is None or self._loop.is_over:
            self._stopped_early = True
        else:
            self._loop.stop(seconds)

    def _arrived(self, *_: Any) -> None:
        """A signal: the first one lets jobs end, the second one does not wait for them."""
        assert self._loop is not None
        self._loop.stop(self._terms.grace if self._loop._stop_at is None else 0.0)

    def _made(self, hands: Hands, shape: Shape, once: bool) -> Loop:
        say = Statements(shape, sorted(self.handlers))
        worker = f"{socket.gethostname()}:{os.getpid()}"[:255]
        way = way_for(self.locks, hands.runtime, say, self._terms.ttl, worker)
        engine, attempts = self.source.engine, self._terms.attempts
        loop = Loop(
            hands,
            way,
            self._terms,
            self.handlers,
            self.source._link,
            lambda got, link: self._job(got.claimed, got.lease, attempts, engine, say, link),
            once=once,
        )
        if self._stopped_early:
            self._stopped_early = False
            loop.stop(0.0)
        return loop

    async def _prepare(self, link: Link, shape: Shape) -> None:
        """Say what is odd about the table; refuse what cannot work."""
        if shape.kind is not None and shape.kind not in self.handlers:
            raise ConfigurationError(
                f"handlers has none for {shape.kind!r}, the one kind of table {shown(shape.shown_table)}"
            )
        short = shortage(self.source.engine, self.concurrency)
        if short is not None:
            log.warning("%s", short)
        for line in shape.advice:
            log.warning("table %s: %s", shown(shape.shown_table), line)
        others = await link.step(lambda door: self._unserved(door, shape))
        if others:
            listed = ", ".join(map(shown, others[:10])) + (" …" if len(others) > 10 else "")
            said = f"jobs of kinds that this worker has no handler for are waiting: {listed}"
            if self._strict:
                raise ConfigurationError(f"{said}: add handlers, or leave strict out")
            log.warning("%s", said)

    async def _unserved(self, door: Door, shape: Shape) -> list[str]:
        if shape.kind is not None:
            return []
        say = Statements(shape)
        rows = (await door.run(say.other_kinds, say.live_values)).rows
        return sorted({str(row["kind"]) for row in rows} - self.handlers.keys())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.source!r} kinds={sorted(self.handlers)}>"


def _positive(value: Duration, what: str) -> float:
    seconds = duration(value, what)
    if seconds == 0:
        raise ConfigurationError(f"{what}={value!r} is no time at all: give more than 0 seconds")
    return seconds
