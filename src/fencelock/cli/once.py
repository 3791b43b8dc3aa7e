"""`fencelock once`: a command that runs if no host has run it in this period; for crontabs there already."""

from __future__ import annotations

import click

from fencelock.cli import status
from fencelock.cli.cron import record_option
from fencelock.cli.holding import Hold, client_name, die_by, holding_options, interrupted
from fencelock.cli.options import DURATION, WrappedCommand, open_client, parse_metadata, statuses, wait_option
from fencelock.cli.signals import Interrupted, Signals
from fencelock.cli.supervise import CannotRun, check_command
from fencelock.cli.text import complain
from fencelock.cli.ticking import NotNow, Set, Ticker, Waiting
from fencelock.schedule import Schedule
from fencelock.schedule.once import NotEnded, exit_status, summary, taken

__all__ = ["once"]

HELP = """Run a command if no host has run it in this period.

For a crontab that every host has: put `fencelock once NAME --per 5m --` before the command, and it runs on
one of them each time. Periods are counted from 1970 in UTC, so all hosts mean the same ones: with --per 1h
the hours, with --per 24h the days. CMD runs as under `fencelock run`, with FENCELOCK_TICK, the beginning of
the period in seconds since 1970, in its environment too.

A run that failed counts as a run. The other hosts then say where, when and how it failed, and exit with its
status. With --retry-failed they run CMD again, one at a time, and not after a run that ended well.

\b
Examples:
  */5 * * * *  fencelock once report --per 5m -- ./report.sh
  0 * * * *    fencelock once -q cleanup --per 1h --at-most-for 30m -- ./cleanup.sh
  fencelock once --retry-failed report --per 5m -- ./report.sh    # by hand, after mending it

"""

STATUSES = statuses(
    ("CMD's own", "128+n if signal n ended it; also if another host ran it in this period, and it failed"),
    ("0", "also if another host ran it in this period and it ended well, or runs it now"),
    ("1", "the run of this period failed, and has no status: it was a function of Python"),
    ("75", "the run before it did not end in time"),
    ("76", "the lease was lost or --at-most-for was over, and CMD was stopped, here or on another host"),
    ("126, 127", "CMD cannot be executed, was not found"),
    ("69", "the backend is unavailable"),
    ("64", "wrong usage"),
    ("128+n", "signal n ended the wait"),
)


@click.command(
    "once", cls=WrappedCommand, help=HELP + STATUSES, short_help="Run a command once in each period."
)
@click.argument("name")
@holding_options
@record_option
@click.option("--per", type=DURATION, required=True, help="The period: 5m, 1h, 24h.")
@click.option("--at-least-for", type=DURATION, default=0.0, help="Keep the lock at least so long.")
@click.option("--at-most-for", type=DURATION, help="Stop CMD after so long; repeat a dead host's run then.")
@wait_option("How long to wait for an earlier run to end. Default: 5s.", default=5.0)
@click.option(
    "--retry-failed", is_flag=True, help="Run CMD again if the run of this period failed or was lost."
)
@click.option(
    "-q",
    "--quiet",
    is_flag=True,
    help="Say nothing if CMD was run in this period, or runs now. A failure is said.",
)
def once(
    name: str,
    url: str | None,
    namespace: str | None,
    ttl: float,
    grace: float,
    metadata: str | None,
    record: str | None,
    per: float,
    at_least_for: float,
    at_most_for: float | None,
    wait: float,
    retry_failed: bool,
    quiet: bool,
    command: tuple[str, ...],
) -> int:
    data = parse_metadata(metadata) or {"schedule": name}

    def make() -> Set:
        locks = open_client(url, namespace, client_name(command))
        schedule = Schedule(locks, record=record, ttl=ttl)
        job = schedule._once_job(name, lambda: None, per, at_least_for, at_most_for)
        nudge = lambda lease: signals.nudge()  # noqa: E731
        turns = schedule._turns(job, waiting.pause, this_period=True, metadata=data, on_lost=nudge)
        return Set(locks, schedule, turns)

    try:
        with Signals() as signals:
            waiting = Waiting(signals)
            ticker = Ticker(command, grace, signals, make)
            ticker.check()
            check_command(command[0])
            return _once(ticker, waiting, name, wait, quiet, retry_failed)
    except CannotRun as error:
        complain(str(error))
        return error.status
    except Interrupted as error:
        return interrupted(error)


def _once(ticker: Ticker, waiting: Waiting, name: str, wait: float, quiet: bool, retry_failed: bool) -> int:
    def run() -> Hold | None:
        try:
            return ticker.run()
        except NotNow:
            return None

    try:
        hold, last = taken(
            lambda first: ticker.look(retry_failed=first and retry_failed), run, waiting.rest, wait
        )
    except NotEnded:
        complain(f"{name!r} is not run: the run before it has not ended")
        return status.NOT_ACQUIRED
    if hold is None:
        found = exit_status(last)
        if found or not quiet:
            complain(summary(name, last))
        return found
    if not hold.held:
        return status.LOST
    if hold.ending.interrupted:
        die_by(hold.ending.interrupted)
    return hold.ending.status
