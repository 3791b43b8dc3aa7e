"""`AsyncSchedule`: for asyncio. Each job has a task; the logic is in `turns.py`."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self

from fencelock.aio import AsyncClient
from fencelock.durations import Duration
from fencelock.errors import LeaseLost
from fencelock.schedule.jobs import Job, ScheduleBase
from fencelock.schedule.records import CRASHED, DONE, FAILED, Run, exit_status_of
from fencelock.schedule.turns import Turn, Turns

__all__ = ["AsyncSchedule"]

log = logging.getLogger("fencelock")


class AsyncSchedule(ScheduleBase):
    """The same as `Schedule`, for asyncio. A job whose time is over or whose lease is lost is cancelled.

    `record` is a URL, a function that makes an asynchronous connection (of psycopg, asyncmy or SQLAlchemy),
    or a `redis.asyncio.Redis`. With `threads=True` the function makes a blocking connection, which is used on
    a thread.
    """

    _is_async = True

    def __init__(
        self,
        locks: AsyncClient,
        *,
        record: Any = None,
        timezone: str = "UTC",
        ttl: Duration = 30,
        threads: bool = False,
    ) -> None:
        super().__init__(locks, record, timezone, ttl, threads=threads)
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        """Run every job at its times, until `stop()`, SIGTERM or SIGINT; then wait for what is under way."""
        with _signals(self.stop):
            tasks = [
                asyncio.create_task(self._serve(job), name=f"schedule {name}")
                for name, job in self._jobs.items()
            ]
            try:
                if tasks:
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
                    self.stop()
                    await asyncio.wait(tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            for task in tasks:
                task.result()

    def stop(self) -> None:
        """Let `run` end. A schedule that was stopped stays so. Call it on the loop."""
        self._stopped.set()

    async def tick(self, name: str) -> Run | None:
        """Run what is due now of a job, here and now; return the run, `None` if nothing is due here.

        An error of the function is recorded, and raised.
        """
        return await self._take(*self._turns_of(name, self._pause))

    async def once(
        self,
        name: str,
        function: Callable[..., Awaitable[object]],
        *,
        per: Duration,
        at_least_for: Duration = 0,
        at_most_for: Duration | None = None,
        retry_failed: bool = False,
    ) -> Run | None:
        """Run a function now if nobody has run it in this period yet; return the run, or `None`.

        Periods are counted from 1970: with `per=3600` they begin with the hours. For what is called often, by
        a crontab on every host or by each request. A run that failed counts as one, and `history(name)[0]`
        says why; with `retry_failed` the function is run again if the last run failed, timed out or crashed.
        """
        job = self._once_job(name, function, per, at_least_for, at_most_for)
        return await self._take(self._turns(job, self._pause, this_period=True), job, retry_failed)

    async def history(self, name: str) -> list[Run]:
        """Return the last 20 runs of a schedule, newest first."""
        return await self._book.history(name)

    async def names(self) -> list[str]:
        """Return the names of all schedules that have a record, of any host."""
        return await self._book.names()

    async def close(self) -> None:
        """Close the connections to the record's store. The client stays open."""
        await self._shelf.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _serve(self, job: Job) -> None:
        turns = self._turns(job, self._pause)

        async def work(turn: Turn) -> None:
            try:
                await self._work(turns, job, turn)
            except Exception:
                log.exception("schedule %r, tick %d failed", job.name, turn.run.tick)

        await turns.serve(work, self._stopped.is_set)

    async def _take(self, turns: Turns, job: Job, retry_failed: bool = False) -> Run | None:
        todo = await turns.look(retry_failed=retry_failed)
        turn = await turns.take() if todo.is_worth_a_try else None
        return await self._work(turns, job, turn) if turn is not None else None

    async def _work(self, turns: Turns, job: Job, turn: Turn) -> Run | None:
        task = asyncio.ensure_future(job.function(*job.arguments(turn)))
        state, detail, error = CRASHED, "", None
        try:
            await self._watch(turns, job, turn, task)
        finally:
            task.cancel()
            await asyncio.wait({task})
            if task.cancelled():
                detail = "cancelled"
            else:
                error = task.exception()
                state = DONE if error is None else CRASHED if isinstance(error, LeaseLost) else FAILED
                detail = "" if error is None else f"{type(error).__name__}: {error}"
            ending = turns.finish(turn, state, detail, exit_status_of(error))
            run = await self._locks._session.runtime.finish(ending)
        if error is not None:
            raise error
        return run  # type: ignore[no-any-return]

    async def _watch(self, turns: Turns, job: Job, turn: Turn, task: asyncio.Future[Any]) -> None:
        """Wait until the work has ended, its lease is lost, or its time is over."""
        lost = asyncio.ensure_future(turn.lease.lost.wait())
        try:
            done, _ = await asyncio.wait(
                {task, lost}, timeout=job.policy.at_most_for, return_when="FIRST_COMPLETED"
            )
            if not done:
                await turns.expire(turn)
        finally:
            lost.cancel()
            with suppress(asyncio.CancelledError):
                await lost

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopped.wait()


@contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """Within it, SIGTERM and SIGINT stop the schedule; a second one does what it did before."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGINT)}
    is_restored = False

    def restore() -> None:
        nonlocal is_restored
        if not is_restored:
            is_restored = True
            for signum, handler in before.items():
                loop.remove_signal_handler(signum)
                signal.signal(signum, handler)

    def handle() -> None:
        restore()
        stop()

    for signum in before:
        loop.add_signal_handler(signum, handle)
    try:
        yield
    finally:
        restore()
