"""APScheduler 3: jobs that are configured on every host, and run on one of them for each run time.

    executor = OnceThreadPoolExecutor(Client("redis://localhost"), Store(connect))
    scheduler = BackgroundScheduler(executors={"default": executor})
    scheduler.add_job(report, "cron", hour=3, id="report")            # the same on each host

For each run time of a job an executor takes the lock `apscheduler:ID`, and under it asks the store whether
this run time was done (key: the job's id and its scheduled time in UTC). If not, it runs the job and writes
that down. So hosts may be late, each by another time: whoever comes after the job has ended finds the record.
Two run times of one job do not overlap in the whole fleet.

| what happens | here |
|---|---|
| it was done elsewhere | nothing: no event, and a line in the log |
| another host is at it | this one waits, up to `timeout`; then the event is `EVENT_JOB_MISSED` |
| the job raises | `EVENT_JOB_ERROR`, as ever; this counts as done, so no other host tries |
| its process dies | a waiting host takes over when its time is over, if `misfire_grace_time` lets it |
| the lease is lost | a coroutine is cancelled; a function runs on, and counts if nobody took over |
| the backend or the store fails | `EVENT_JOB_ERROR` |

The job's own id and run times must be the same on each host. An id that APScheduler made up is refused, and
so is a run time with a fraction of a second: an interval without `start_date` counts from when each
host was started. Use `cron`, or give the same `start_date`.

Not promised: that a job whose process died has not had its effect. `current_lease().token` lets the resource
tell an old run from a new one. A waiting host keeps a thread of its pool for that.
"""

from __future__ import annotations

import asyncio
import datetime
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from fencelock.aio import AsyncClient
from fencelock.client import Client
from fencelock.contrib.calls import current_lease, held, held_async, missing
from fencelock.durations import Duration, duration, optional_duration
from fencelock.errors import AcquireTimeout, ConfigurationError, LeaseLost
from fencelock.extras import refuse_old
from fencelock.idempotency import AsyncStore, Attempt, Done, InProgress, Store
from fencelock.lease import LeaseBase
from fencelock.names import shown
from fencelock.runtime import blocking
from fencelock.templates import quoted

try:
    refuse_old("apscheduler", "fencelock.contrib.apscheduler")
    from apscheduler.events import (  # type: ignore[import-untyped]
        EVENT_JOB_ERROR,
        EVENT_JOB_MISSED,
        JobExecutionEvent,
    )
    from apscheduler.executors.asyncio import AsyncIOExecutor  # type: ignore[import-untyped]
    from apscheduler.executors.base import run_coroutine_job, run_job  # type: ignore[import-untyped]
    from apscheduler.executors.pool import ThreadPoolExecutor  # type: ignore[import-untyped]
    from apscheduler.util import iscoroutinefunction_partial  # type: ignore[import-untyped]
except ModuleNotFoundError as error:
    raise missing(error, "apscheduler") from error

__all__ = ["OnceAsyncIOExecutor", "OnceThreadPoolExecutor", "current_lease"]

MADE_UP = re.compile(r"[0-9a-f]{32}")
RUN = "run"

Events = list[Any]


class Turns(ABC):
    """How one run time of a job is run once. Written once: in the blocking flavour nothing suspends."""

    def __init__(self, ttl: Duration, timeout: Duration | None) -> None:
        self._terms: dict[str, Any] = {"ttl": duration(ttl, "ttl")}
        self._timeout = optional_duration(timeout, "timeout")
        self._terms["timeout"] = self._timeout

    async def run(self, job: Any, run_times: list[datetime.datetime], logger: Any) -> Events:
        """Run a job for each of these times that nobody has run it for."""
        events: Events = []
        for run_time in run_times:
            try:
                events += await self._turn(job, run_time, logger)
            except (AcquireTimeout, InProgress) as error:
                logger.warning('Job "%s" was not run here for %s: %s', job, run_time, error)
                events.append(_event(EVENT_JOB_MISSED, job, run_time))
            except Exception as error:  # noqa: BLE001 - a store raises what its driver does
                logger.error('Job "%s" cannot be run once for %s: %s', job, run_time, error)
                events.append(_event(EVENT_JOB_ERROR, job, run_time, error))
        return events

    async def _turn(self, job: Any, run_time: datetime.datetime, logger: Any) -> Events:
        name = f"apscheduler:{quoted(job.id, 'id')}"
        key = f"{name}@{_moment(job, run_time)}"
        events: Events | None = None
        try:
            async with self._held(name):
                found = await self._begin(key)
                if isinstance(found, Done):
                    logger.info('Job "%s" was run elsewhere for %s', job, run_time)
                    return []
                events = await self._ended(found, await self._work(job, run_time, logger))
        except LeaseLost as error:
            if events is None:
                raise
            logger.warning('Job "%s" was run for %s, but %s', job, run_time, error)
        return events or []

    async def _ended(self, attempt: Attempt, events: Events) -> Events:
        """Write down that a job was run; not if it never began, or was cancelled: then others may."""
        is_off = any(
            event.code == EVENT_JOB_MISSED or isinstance(event.exception, asyncio.CancelledError)
            for event in events
        )
        await (self._abandon(attempt) if is_off else self._finish(attempt))
        return events

    @abstractmethod
    def _held(self, name: str) -> AbstractAsyncContextManager[LeaseBase]: ...

    @abstractmethod
    async def _begin(self, key: str) -> Attempt | Done: ...

    @abstractmethod
    async def _finish(self, attempt: Attempt) -> None: ...

    @abstractmethod
    async def _abandon(self, attempt: Attempt) -> None: ...

    @abstractmethod
    async def _work(self, job: Any, run_time: datetime.datetime, logger: Any) -> Events: ...


def _moment(job: Any, run_time: datetime.datetime) -> str:
    """Return the scheduled time as all hosts write it. Raises `ConfigurationError` for a time of one host."""
    if MADE_UP.fullmatch(job.id):
        raise ConfigurationError(
            f"job id {job.id!r} was made up on this host: give add_job an id, the same on each host"
        )
    moment = run_time.astimezone(datetime.UTC)
    if moment.microsecond:
        raise ConfigurationError(
            f"job {job.id!r} is due at {moment.isoformat()}, which is this host's own time: use cron, "
            "or give a start_date in whole seconds"
        )
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _event(code: int, job: Any, run_time: datetime.datetime, error: Exception | None = None) -> Any:
    return JobExecutionEvent(
        code, job.id, job._jobstore_alias, run_time, exception=error, traceback=None if error is None else ""
    )


# Blocking -------------------------------------------------------------------------------------


class BlockingTurns(Turns):
    """On the thread that runs the job."""

    def __init__(self, locks: Client, store: Store, ttl: Duration, timeout: Duration | None) -> None:
        super().__init__(ttl, timeout)
        if not isinstance(locks, Client) or not isinstance(store, Store):
            raise ConfigurationError(f"give a Client and a Store, not {shown(locks)} and {shown(store)}")
        self._locks = locks
        self._store = store

    @asynccontextmanager
    async def _held(self, name: str) -> AsyncIterator[LeaseBase]:
        with held(self._locks.lock(name, **self._terms)) as lease:
            yield lease

    async def _begin(self, key: str) -> Attempt | Done:
        return self._store.begin(key, RUN, timeout=self._timeout)

    async def _finish(self, attempt: Attempt) -> None:
        self._store.finish(attempt, True)

    async def _abandon(self, attempt: Attempt) -> None:
        self._store.abandon(attempt)

    async def _work(self, job: Any, run_time: datetime.datetime, logger: Any) -> Events:
        events: Events = run_job(job, job._jobstore_alias, [run_time], logger.name)
        return events


class OnceThreadPoolExecutor(ThreadPoolExecutor):  # type: ignore[misc]
    """APScheduler's executor on threads; each run time of a job is run once in the fleet.

    `timeout` says for how long to wait for another host that is at it, to take over if it dies.
    """

    def __init__(
        self,
        locks: Client,
        store: Store,
        *,
        ttl: Duration = 30.0,
        timeout: Duration | None = 60.0,
        max_workers: int = 10,
        pool_kwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(max_workers, pool_kwargs)
        self._turns = BlockingTurns(locks, store, ttl, timeout)

    def _do_submit_job(self, job: Any, run_times: list[datetime.datetime]) -> None:
        def work() -> Events:
            return blocking.run(self._turns.run(job, run_times, self._logger))

        def ended(future: Future[Events]) -> None:
            error = future.exception()
            if error is not None:
                self._run_job_error(job.id, error, error.__traceback__)
            else:
                self._run_job_success(job.id, future.result())

        self._pool.submit(work).add_done_callback(ended)


# Asyncio --------------------------------------------------------------------------------------


class AsyncioTurns(Turns):
    """On the loop that the scheduler runs on."""

    def __init__(
        self, locks: AsyncClient, store: AsyncStore, ttl: Duration, timeout: Duration | None
    ) -> None:
        super().__init__(ttl, timeout)
        if not isinstance(locks, AsyncClient) or not isinstance(store, AsyncStore):
            raise ConfigurationError(
                f"give an AsyncClient and an AsyncStore, not {shown(locks)} and {shown(store)}"
            )
        self._locks = locks
        self._store = store

    def _held(self, name: str) -> AbstractAsyncContextManager[LeaseBase]:
        return held_async(self._locks.lock(name, **self._terms))

    async def _begin(self, key: str) -> Attempt | Done:
        return await self._store.begin(key, RUN, timeout=self._timeout)

    async def _finish(self, attempt: Attempt) -> None:
        await self._store.finish(attempt, True)

    async def _abandon(self, attempt: Attempt) -> None:
        await self._store.abandon(attempt)

    async def _work(self, job: Any, run_time: datetime.datetime, logger: Any) -> Events:
        asked = job, job._jobstore_alias, [run_time], logger.name
        if iscoroutinefunction_partial(job.func):
            events: Events = await run_coroutine_job(*asked)
        else:
            events = await asyncio.to_thread(run_job, *asked)
        return events


class OnceAsyncIOExecutor(AsyncIOExecutor):  # type: ignore[misc]
    """APScheduler's executor for asyncio; each run time of a job is run once in the fleet.

    Coroutines run on the scheduler's loop, other functions on a thread.
    """

    def __init__(
        self,
        locks: AsyncClient,
        store: AsyncStore,
        *,
        ttl: Duration = 30.0,
        timeout: Duration | None = 60.0,
    ) -> None:
        super().__init__()
        self._turns = AsyncioTurns(locks, store, ttl, timeout)

    def _do_submit_job(self, job: Any, run_times: list[datetime.datetime]) -> None:
        def ended(task: asyncio.Task[Events]) -> None:
            self._pending_futures.discard(task)
            try:
                events = task.result()
            except BaseException as error:  # noqa: BLE001 - a cancelled one is among them
                self._run_job_error(job.id, error, error.__traceback__)
            else:
                self._run_job_success(job.id, events)

        task = self._eventloop.create_task(self._turns.run(job, run_times, self._logger))
        self._pending_futures.add(task)
        task.add_done_callback(ended)
