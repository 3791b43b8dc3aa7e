"""Management commands for a crontab that every host has.

    class Command(OnceCommand):                # one host runs it, once in each period
        once_per = timedelta(days=1)

        def handle(self, *args, **options):
            ...                                # self.tick.at, self.lease.token, self.lease.check()

    class Command(ExclusiveCommand):           # any host runs it, one at a time
        lock_name = "rebuild-index"

`OnceCommand` is `fencelock once` for Django: the host that comes first takes the schedule's lock and writes
into its record that this period's run has begun; the others find that, say so, and end with status 0. If the
run failed they say where and how, and end with its status; `--retry-failed` runs it again. See
`fencelock.schedule` for why clocks that differ do not make it run twice.

`ExclusiveCommand` holds a lock while it runs, and nothing else: a host that comes later runs it again.

Statuses are those of the command line: 75 the lock was not free in time, 76 the lease was lost, 69 the
backend cannot be reached, 64 an attribute of the class is wrong.

Not promised: a command whose lease is lost is not stopped. Let it ask `self.lease.check()`.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

from fencelock.contrib.calls import current, held, missing
from fencelock.contrib.django.conf import DEFAULT, locks, record_of
from fencelock.durations import Duration, duration
from fencelock.errors import AcquireTimeout, BackendError, ConfigurationError, LeaseLost
from fencelock.lease import Lease
from fencelock.runtime.blocking import run as run_now
from fencelock.schedule import Schedule, Tick
from fencelock.schedule.once import NotEnded, exit_status, summary, taken

try:
    from django.core.management.base import (  # type: ignore[import-untyped]
        BaseCommand,
        CommandError,
        OutputWrapper,
    )
except ModuleNotFoundError as error:
    raise missing(error, "django") from error

__all__ = ["ExclusiveCommand", "OnceCommand"]

USAGE = 64
UNAVAILABLE = 69
BUSY = 75
LOST = 76


class OnceCommand(BaseCommand):  # type: ignore[misc]
    """A management command that one host of all runs, once in each period.

    Periods are counted from 1970 in UTC: with `timedelta(days=1)` they are the days. Everything that
    `fencelock.schedule` says of a run goes for it; `manage.py fencelock cron --ls` lists the runs.
    """

    once_per: Duration | None = None
    """The period: seconds or a `timedelta`. Required."""
    once_name: str | None = None
    """The schedule's name; by default made of the command's module."""
    once_using: str = DEFAULT
    once_ttl: Duration = 60
    once_timeout: Duration = 5
    """How long to wait for the run of an earlier period to end; then status 75."""
    once_at_most_for: Duration | None = None
    """After so long the lease counts as lost, and the run of a host that died is repeated."""

    tick: Tick[Lease]
    """Which period it runs for: `tick.at` is when that began, `tick.attempt` is 1 in the first attempt."""
    lease: Lease
    """What the command runs under."""

    def create_parser(self, *args: Any, **options: Any) -> Any:
        """Add `--retry-failed` to the options, also where a subclass has `add_arguments`."""
        parser = super().create_parser(*args, **options)
        parser.add_argument(
            "--retry-failed",
            action="store_true",
            help="Run the command again if its run of this period failed or was lost.",
        )
        return parser

    def execute(self, *args: Any, **options: Any) -> Any:
        """Run the command, if no host has in this period."""
        retry_failed = options.pop("retry_failed", False)
        checks = self.requires_system_checks
        if checks and not options.get("skip_checks"):  # a host that fails them leaves the run to others
            self.check(tags=None if checks == "__all__" else checks)
            options["skip_checks"] = True
        execute, output = super().execute, None

        def work(tick: Tick[Lease]) -> None:
            nonlocal output
            self.tick, self.lease = tick, tick.lease
            with current(tick.lease):
                try:
                    output = execute(*args, **options)
                except SystemExit as error:
                    _check_exit(error)
            tick.lease.check()

        if not self._run_once(work, retry_failed, options):
            return None
        return output

    def _run_once(self, work: Any, retry_failed: bool, options: dict[str, Any]) -> bool:
        """Run `work` if it is due; else say how the run of this period stands."""
        name = self.once_name or f"command:{type(self).__module__}"
        with ExitStack() as stack:
            try:
                schedule = stack.enter_context(
                    Schedule(locks(self.once_using), record=record_of(self.once_using), ttl=self.once_ttl)
                )
                job = schedule._once_job(name, work, self._period(), 0, self.once_at_most_for)
                turns = schedule._turns(job, schedule._pause, this_period=True)
                turn, last = taken(
                    lambda first: run_now(turns.look(retry_failed=first and retry_failed)),
                    lambda: run_now(turns.take()),
                    time.sleep,
                    duration(self.once_timeout, "once_timeout"),
                )
            except NotEnded as error:
                told = f"{name!r} is not run: the run before it has not ended"
                raise CommandError(told, returncode=BUSY) from error
            except ConfigurationError as error:
                raise CommandError(str(error), returncode=USAGE) from error
            except BackendError as error:
                raise CommandError(str(error), returncode=UNAVAILABLE) from error
            if turn is not None:
                try:
                    schedule._work(turns, job, turn)
                except LeaseLost as error:
                    raise CommandError(str(error), returncode=LOST) from error
                return True
        if status := exit_status(last):
            raise CommandError(summary(name, last), returncode=status)
        if options.get("verbosity", 1):
            stderr = OutputWrapper(options["stderr"]) if options.get("stderr") else self.stderr
            stderr.write(summary(name, last))
        return False

    def _period(self) -> Duration:
        if self.once_per is None:
            raise ConfigurationError(
                f"{type(self).__module__}.{type(self).__qualname__} has no period: give the class once_per, "
                "such as once_per = timedelta(days=1)"
            )
        return self.once_per


def _check_exit(error: SystemExit) -> None:
    """Let `sys.exit(0)` pass as a success; another status or a message is a failure of the command."""
    if isinstance(error.code, int | None):
        if error.code:
            raise CommandError(f"exit status {error.code}", returncode=error.code) from error
        return
    raise CommandError(str(error.code)) from error


class ExclusiveCommand(BaseCommand):  # type: ignore[misc]
    """A management command that one process of all hosts runs at a time. A later one runs it again."""

    lock_name: str | None = None
    """The lock's name; by default made of the command's module."""
    lock_using: str = DEFAULT
    lock_ttl: Duration = 60
    lock_timeout: Duration | None = 0
    """How long to wait for the lock; then status 75."""
    lock_skip: bool = False
    """Whether a command that does not get its lock ends with status 0."""

    lease: Lease
    """What the command runs under."""

    def execute(self, *args: Any, **options: Any) -> Any:
        """Run the command under its lock."""
        name = self.lock_name or f"command:{type(self).__module__}"
        try:
            lock = locks(self.lock_using).lock(name, ttl=self.lock_ttl, timeout=self.lock_timeout)
            with ExitStack() as stack:
                try:
                    self.lease = stack.enter_context(held(lock))
                except AcquireTimeout as error:
                    if not self.lock_skip:
                        raise CommandError(str(error), returncode=BUSY) from error
                    self.stderr.write(f"skipped: {error}")
                    return None
                except BackendError as error:
                    raise CommandError(str(error), returncode=UNAVAILABLE) from error
                return super().execute(*args, **options)
        except LeaseLost as error:
            raise CommandError(str(error), returncode=LOST) from error
