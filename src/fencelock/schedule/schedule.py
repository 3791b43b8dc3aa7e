"""`Schedule`: for blocking code. Each job has a thread; the logic is in `turns.py`."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from fencelock.client import Client
from fencelock.durations import Duration
from fencelock.errors import LeaseLost
from fencelock.runtime.blocking import BlockingSignal
from fencelock.runtime.blocking import run as run_now
from fencelock.schedule.jobs import Job, ScheduleBase
from fencelock.schedule.records import CRASHED, DONE, FAILED, Run, exit_status_of
from fencelock.schedule.turns import Turn, Turns

__all__ = ["Schedule"]

MINUTE = 60.0

log = logging.getLogger("fencelock")


class Schedule(ScheduleBase):
    """Functions that run once in the whole fleet at each of their times. Start one on every host.

    The record of what has run is kept beside the locks, or in `record`: a URL, a function that makes a
    connection (of sqlite3, psycopg, PyMySQL or SQLAlchemy), or a `redis.Redis`.

    Example:
        >>> with Client("memory://schedules") as locks, Schedule(locks) as schedule:
        ...     @schedule.cron("0 6 * * *", name="report", timezone="Europe/Berlin")
        ...     def report(tick):
        ...         print("the report of", tick.at.date())
        ...     schedule.tick("report") is None         # it is not six o'clock
        True
    """

    _is_async = False

    def __init__(
        self, locks: Client, *, record: Any = None, timezone: str = "UTC", ttl: Duration = 30
    ) -> None:
        super().__init__(locks, record, timezone, ttl, threads=False)
        self._stopped = threading.Event()
        self._wake = BlockingSignal()
        self._failure: BaseException | None = None

    def run(self) -> None:
        """Run every job at its times, until `stop()`, SIGTERM or SIGINT; then wait for what is under way."""
        with _signals(self.stop):
            threads = [
                threading.Thread(
                    target=self._serve, args=(job,), name=f"fencelock-schedule-{job.name}", daemon=True
                )
                for job in self._jobs.values()
            ]
            for thread in threads:
                thread.start()
            while not self._stopped.is_set() and any(thread.is_alive() for thread in threads):
                # Not the event: a signal handler sets it, and may come in the middle of a wait for it.
                run_now(self._wake.wait(MINUTE))
        self._stopped.set()
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Let `run` end, from any thread. A schedule that was stopped stays so."""
        self._stopped.set()
        self._wake.notify()

    def tick(self, name: str) -> Run | None:
        """Run what is due now of a job, here and now; return the run, `None` if nothing is due here.

        An error of the function is recorded, and raised.
        """
        return self._take(*self._turns_of(name, self._pause))

    def once(
        self,
        name: str,
        function: Callable[..., object],
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
        return self._take(self._turns(job, self._pause, this_period=True), job, retry_failed)

    def history(self, name: str) -> list[Run]:
        """Return the last 20 runs of a schedule, newest first."""
        return run_now(self._book.history(name))

    def names(self) -> list[str]:
        """Return the names of all schedules that have a record, of any host."""
        return run_now(self._book.names())

    def close(self) -> None:
        """Close the connections to the record's store. The client stays open."""
        run_now(self._shelf.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self, job: Job) -> None:
        turns = self._turns(job, self._pause)

        async def work(turn: Turn) -> None:
            try:
                self._work(turns, job, turn)
            except Exception:
                log.exception("schedule %r, tick %d failed", job.name, turn.run.tick)

        try:
            run_now(turns.serve(work, self._stopped.is_set))
        except BaseException as error:  # noqa: BLE001 - it is raised again, by `run`
            self._failure = self._failure or error
            self.stop()

    def _take(self, turns: Turns, job: Job, retry_failed: bool = False) -> Run | None:
        todo = run_now(turns.look(retry_failed=retry_failed))
        turn = run_now(turns.take()) if todo.is_worth_a_try else None
        return self._work(turns, job, turn) if turn is not None else None

    def _work(self, turns: Turns, job: Job, turn: Turn) -> Run | None:
        limit = job.policy.at_most_for
        timer = None
        if limit is not None:
            timer = threading.Timer(limit, lambda: run_now(turns.expire(turn)))
            timer.daemon = True
            timer.start()
        state, detail, status = CRASHED, "", None
        try:
            job.function(*job.arguments(turn))
            state = DONE
        except BaseException as error:
            is_cut_off = isinstance(error, LeaseLost) or not isinstance(error, Exception)
            state = CRASHED if is_cut_off else FAILED
            detail, status = f"{type(error).__name__}: {error}", exit_status_of(error)
            raise
        finally:
            if timer is not None:
                timer.cancel()
                timer.join()
            run = run_now(turns.finish(turn, state, detail, status))
        return run

    async def _pause(self, seconds: float) -> None:
        self._stopped.wait(seconds)


@contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """Within it, SIGTERM and SIGINT stop the schedule; a second one does what it did before."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGINT)}

    def restore() -> None:
        for signum, handler in before.items():
            signal.signal(signum, handler)

    def handle(signum: int, frame: object) -> None:
        restore()
        stop()

    for signum in before:
        signal.signal(signum, handle)
    try:
        yield
    finally:
        restore()
