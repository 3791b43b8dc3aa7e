"""What both flavours share: jobs and their options, checked; the book; where and who we are.

NOT promised: that a schedule can be used in a forked child. Make one there.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any, Generic, TypeVar, get_args

from fencelock.connect import ClientBase
from fencelock.durations import Duration, duration
from fencelock.errors import ConfigurationError
from fencelock.lease import AsyncLease, Lease
from fencelock.lock import of_kind
from fencelock.names import check_name, shown
from fencelock.runtime import clock
from fencelock.schedule.book import Book
from fencelock.schedule.plan import AfterCrash, CatchUp, Policy
from fencelock.schedule.shelves import shelf_for
from fencelock.schedule.ticks import Cron, Every, Times, zone
from fencelock.schedule.turns import Clocks, Turn, Turns

__all__ = ["Job", "ScheduleBase", "Tick"]

LOCK = "schedule:"
"""What the names of the locks begin with."""
L = TypeVar("L", Lease, AsyncLease)
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Tick(Generic[L]):
    """What a job is told: which tick it runs, and under which lease."""

    name: str
    """The schedule's name."""
    instant: int
    """The scheduled instant, in seconds since 1970: the same on every host, and a good idempotency key."""
    at: datetime
    """The same, in the schedule's time zone."""
    attempt: int
    """1, or more if earlier attempts at this tick did not end well: perhaps they did some of it."""
    lease: L
    """The lease; a blocking job looks at `lease.lost`, which is set when `at_most_for` is over too."""

    @property
    def token(self) -> int:
        """The fencing token: larger than that of every earlier run of this schedule."""
        return self.lease.token


@dataclass(frozen=True, slots=True)
class Job:
    """A function and when it is to run."""

    name: str
    policy: Policy
    function: Callable[..., Any]
    zone: tzinfo

    def arguments(self, turn: Turn) -> tuple[Any, ...]:
        """Return what the function is called with: the tick, or nothing if it takes nothing."""
        at = datetime.fromtimestamp(turn.run.tick, self.zone)
        tick: Any = Tick(self.name, turn.run.tick, at, turn.run.attempt, turn.lease)
        return (tick,) if _takes_one(self.function) else ()


class ScheduleBase:
    """Jobs, and where their records are kept."""

    _is_async: bool

    def __init__(self, locks: Any, record: Any, timezone: str, ttl: Duration, threads: bool) -> None:
        wanted = "an AsyncClient" if self._is_async else "a Client"
        if not isinstance(locks, ClientBase) or locks._session.runtime.flavour != self._flavour:
            raise ConfigurationError(f"locks={shown(locks)} is not {wanted} of fencelock")
        self._locks: Any = locks
        self._zone = zone(timezone)
        self._ttl = duration(ttl, "ttl")
        locks.lock(LOCK, ttl=ttl)  # type: ignore[attr-defined]  # or it is refused, here and now
        self._wall = time.time
        backend = locks._session.backend
        self._shelf = shelf_for(backend, record, is_async=self._is_async, threads=threads)
        self._book = Book(self._shelf, backend.namespace, self._time)
        self._jobs: dict[str, Job] = {}
        self._ticked: dict[str, Turns] = {}

    def _time(self) -> float:
        return self._wall()

    @property
    def _flavour(self) -> str:
        return "asyncio" if self._is_async else "blocking"

    def cron(
        self,
        line: str,
        *,
        name: str,
        timezone: str | None = None,
        at_least_for: Duration = 0,
        at_most_for: Duration | None = None,
        catch_up: CatchUp = "last",
        catch_up_limit: int = 100,
        after_crash: AfterCrash = "again",
        jitter: Duration = 0,
    ) -> Callable[[F], F]:
        """Let a function run at the times of a cron line, once in the whole fleet for each of them.

        The function takes a `Tick`, or nothing. The options are those of `every`.
        """
        where = self._zone if timezone is None else zone(timezone)
        return self._decorator(
            Cron(line, where),
            name,
            where,
            at_least_for,
            at_most_for,
            catch_up,
            catch_up_limit,
            after_crash,
            jitter,
        )

    def every(
        self,
        interval: Duration,
        *,
        name: str,
        at_least_for: Duration = 0,
        at_most_for: Duration | None = None,
        catch_up: CatchUp = "last",
        catch_up_limit: int = 100,
        after_crash: AfterCrash = "again",
        jitter: Duration = 0,
    ) -> Callable[[F], F]:
        """Let a function run every so many seconds, counted from 1970, once in the whole fleet for each.

        `at_least_for` keeps the lock so long, `at_most_for` ends the work then and decides when a tick whose
        host died may be run again (`after_crash`; without it, never). `catch_up` says which of the ticks that
        nobody ran are run later: the `last`, `all` of them in order (the newest `catch_up_limit`), or `none`.
        A run begins up to `jitter` seconds late, at random.
        """
        return self._decorator(
            Every(interval),
            name,
            self._zone,
            at_least_for,
            at_most_for,
            catch_up,
            catch_up_limit,
            after_crash,
            jitter,
        )

    def _decorator(self, times: Times, name: str, where: tzinfo, *options: Any) -> Callable[[F], F]:
        _check_schedule_name(name)
        if name in self._jobs:
            raise ConfigurationError(f"name={name!r} is taken: give each schedule a name of its own")
        policy = _policy(times, *options)

        def register(function: F) -> F:
            self._check_function(function)
            self._jobs[name] = Job(name, policy, function, where)
            return function

        return register

    def _check_function(self, function: Any) -> None:
        if not callable(function):
            raise ConfigurationError(f"{shown(function)} is not a function")
        if inspect.iscoroutinefunction(function) != self._is_async:
            other = "Schedule" if self._is_async else "AsyncSchedule"
            raise ConfigurationError(f"{shown(function)} is of the other flavour: use {other} for it")
        _takes_one(function)

    def _job(self, name: str) -> Job:
        if name not in self._jobs:
            known = ", ".join(map(repr, sorted(self._jobs))) or "none"
            raise ConfigurationError(f"name={shown(name)} is no schedule here: there is {known}")
        return self._jobs[name]

    def _once_job(
        self,
        name: str,
        function: Callable[..., Any],
        per: Duration,
        at_least: Duration,
        at_most: Duration | None,
    ) -> Job:
        _check_schedule_name(name)
        self._check_function(function)
        policy = _policy(Every(per, "per"), at_least, at_most, "last", 1, "again", 0)
        return Job(name, policy, function, self._zone)

    def _turns_of(self, name: str, pause: Callable[[float], Awaitable[None]]) -> tuple[Turns, Job]:
        """Return a job and its turns, the same ones each time: they remember what they saw."""
        job = self._job(name)
        if name not in self._ticked:
            self._ticked[name] = self._turns(job, pause)
        return self._ticked[name], job

    def _turns(
        self,
        job: Job,
        pause: Callable[[float], Awaitable[None]],
        *,
        this_period: bool = False,
        **options: Any,
    ) -> Turns:
        """Return the turns of a job; with `this_period` a new one begins with the tick before now."""
        session = self._locks._session
        options = {"metadata": {"schedule": job.name}, **options}
        lock = of_kind(self._locks.lock(LOCK + job.name, ttl=self._ttl, timeout=0, **options), "schedule")
        before = job.policy.times.missed(-1, self._wall(), 1)[0] - 1 if this_period else None
        clocks = Clocks(self._time, clock.now, pause, session.runtime.sleep)
        host = f"{session.origin.host}:{session.origin.pid}"
        return Turns(job.name, job.policy, self._book, lock, host, clocks, before=before)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(self._jobs) or 'empty'}>"


def _policy(
    times: Times,
    at_least_for: Duration,
    at_most_for: Duration | None,
    catch_up: CatchUp,
    catch_up_limit: int,
    after_crash: AfterCrash,
    jitter: Duration,
) -> Policy:
    least = duration(at_least_for, "at_least_for")
    most = None if at_most_for is None else duration(at_most_for, "at_most_for")
    if most is not None and not least < most:
        raise ConfigurationError(
            f"at_most_for={shown(at_most_for)} is not longer than at_least_for={least:g}"
        )
    for value, what, known in ((catch_up, "catch_up", CatchUp), (after_crash, "after_crash", AfterCrash)):
        if value not in get_args(known):
            raise ConfigurationError(
                f"{what}={shown(value)} is not known: write {' or '.join(get_args(known))}"
            )
    if (
        isinstance(catch_up_limit, bool)
        or not isinstance(catch_up_limit, int)
        or not 1 <= catch_up_limit <= 10_000
    ):
        raise ConfigurationError(f"catch_up_limit={shown(catch_up_limit)} is out of range: give 1 to 10000")
    return Policy(times, catch_up, catch_up_limit, after_crash, least, most, duration(jitter, "jitter"))


def _check_schedule_name(name: str) -> None:
    check_name(name)
    check_name(LOCK + name, "name")


def _takes_one(function: Callable[..., Any]) -> bool:
    """Whether a function takes the tick; it may take nothing. Raises `ConfigurationError` for any other."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True  # one in C that does not tell
    for values, answer in (((None,), True), ((), False)):
        try:
            signature.bind(*values)
        except TypeError:
            continue
        return answer
    raise ConfigurationError(f"{shown(function)} must take one argument, the tick, or none")
