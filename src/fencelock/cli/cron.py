"""`fencelock cron`: a command at the times of a cron line, once in the whole fleet for each of them.

A service for every host. What it does between ticks is to sleep; at a tick it reads the record, and takes the
lock if nobody was quicker. A store that is away makes it late: catching up is the schedule's business. Only
when it cannot be reached at the very beginning does the command give up, with status 69.
"""

from __future__ import annotations

import random
import sys
from typing import Any, get_args

import click

from fencelock.cli import status
from fencelock.cli.holding import client_name, die_by, holding_options, interrupted
from fencelock.cli.options import (
    DURATION,
    WrappedCommand,
    as_json_option,
    open_client,
    parse_metadata,
    statuses,
)
from fencelock.cli.signals import Interrupted, Signals
from fencelock.cli.supervise import CannotRun, check_command
from fencelock.cli.table import print_table
from fencelock.cli.text import complain, shown, span, to_json, utc
from fencelock.cli.ticking import LONGEST_REST, NotNow, Set, Ticker, Waiting
from fencelock.errors import BackendUnavailable
from fencelock.schedule import Run, Schedule
from fencelock.schedule.plan import AfterCrash, CatchUp

__all__ = ["cron", "record_option"]

RETRY = 1.0
HEADER = ("NAME", "TICK", "STATE", "HOST", "TOKEN", "ATTEMPT", "TOOK", "DETAIL")

HELP = """Run a command at the times of a cron line, once in the fleet.

Start it on every host, as a service. For each tick one host runs CMD, though the hosts' clocks differ: whose
clock is first takes the lock of the schedule NAME and records the tick, the others find it recorded. CMD runs
as under `fencelock run`, with FENCELOCK_TICK (seconds since 1970), FENCELOCK_TOKEN, FENCELOCK_NAME and
FENCELOCK_OWNER in its environment. What CMD returns is recorded; the schedule goes on.

LINE has five fields (minute, hour, day of month, month, day of week), or six with the seconds first. A line
with a fixed hour and minute runs once on the days on which the clocks change, as with Debian's cron.

\b
Examples:
  fencelock cron '*/5 * * * *' report -- ./report.sh
  fencelock cron --timezone Europe/Berlin --at-most-for 1h '30 2 * * *' backup -- ./backup.sh
  fencelock cron --ls            # the schedules, and how each has run last
  fencelock cron --ls report     # the last runs of one: when, where, how

"""

STATUSES = statuses(
    ("128+n", "signal n ended it; a CMD that runs gets the signal, and is waited for"),
    ("126, 127", "CMD cannot be executed, was not found"),
    ("69", "the backend was unavailable from the start"),
    ("64", "wrong usage: a cron line that cannot be read"),
)


class CronCommand(WrappedCommand):
    """`fencelock cron LINE NAME -- CMD…`, or `fencelock cron --ls [NAME]`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = args[: args.index("--")] if "--" in args else args
        if "--ls" not in own:
            return super().parse_args(ctx, args)
        ctx.params["command"] = ()
        return click.Command.parse_args(self, ctx, own)


record_option = click.option(
    "--record",
    metavar="URL",
    help="Where the record is kept, if not with the locks: a SQL or Redis server, …",
)


@click.command(
    "cron", cls=CronCommand, help=HELP + STATUSES, short_help="Run a command at the times of a cron line."
)
@click.argument("line", required=False)
@click.argument("name", required=False)
@holding_options
@record_option
@click.option("--timezone", default="UTC", metavar="ZONE", help="What LINE's hours are in. Default: UTC.")
@click.option("--at-least-for", type=DURATION, default=0.0, help="Keep the lock at least so long.")
@click.option("--at-most-for", type=DURATION, help="Stop CMD after so long; repeat a dead host's tick then.")
@click.option(
    "--catch-up",
    type=click.Choice(get_args(CatchUp)),
    default="last",
    help="Which of the ticks that no host has run are run later. Default: last.",
)
@click.option(
    "--after-crash",
    type=click.Choice(get_args(AfterCrash)),
    default="again",
    help="Whether a tick whose host died is run again, after --at-most-for. Default: again.",
)
@click.option("--jitter", type=DURATION, default=0.0, help="Begin up to so late, at random.")
@click.option("--ls", "list_", is_flag=True, help="Show the schedules, or the last runs of one.")
@as_json_option
def cron(
    line: str | None,
    name: str | None,
    url: str | None,
    namespace: str | None,
    ttl: float,
    grace: float,
    metadata: str | None,
    record: str | None,
    timezone: str,
    list_: bool,
    as_json: bool,
    command: tuple[str, ...],
    **options: Any,
) -> int:
    if list_:
        return _list(line, url, namespace, record, as_json)
    if line is None or name is None:
        raise click.UsageError("LINE and NAME are missing: write fencelock cron '*/5 * * * *' NAME -- CMD…")
    data = parse_metadata(metadata) or {"schedule": name}

    def make() -> Set:
        locks = open_client(url, namespace, client_name(command))
        schedule = Schedule(locks, record=record, timezone=timezone, ttl=ttl)
        schedule.cron(line, name=name, **options)(lambda: None)
        nudge = lambda lease: signals.nudge()  # noqa: E731
        job = schedule._job(name)
        return Set(locks, schedule, schedule._turns(job, waiting.pause, metadata=data, on_lost=nudge))

    try:
        with Signals() as signals:
            waiting = Waiting(signals)
            ticker = Ticker(command, grace, signals, make)
            ticker.check()
            check_command(command[0])
            ticker.look()  # is anybody there at all?
            while True:
                ended = _step(ticker, waiting, options["jitter"])
                if ended is not None:
                    return ended
    except CannotRun as error:
        complain(str(error))
        return error.status
    except Interrupted as error:
        return interrupted(error)


def _step(ticker: Ticker, waiting: Waiting, jitter: float) -> int | None:
    """Wait for the next tick, or run one; return a status when a signal has ended CMD."""
    try:
        todo = ticker.look()
        if not todo.is_worth_a_try:
            waiting.rest(todo.wait)
            return None
        waiting.rest(jitter * random.random())
        hold = ticker.run()
    except NotNow:
        waiting.rest(RETRY * (0.5 + random.random()))
        return None
    except CannotRun as error:
        complain(f"{error}: waiting for the next tick")
        return None
    except BackendUnavailable as error:
        if not error.transient:
            raise
        complain(f"{error}: trying again")
        waiting.rest(LONGEST_REST * (0.5 + random.random()))
        return None
    waiting.check()
    if hold.held and hold.ending.interrupted:
        die_by(hold.ending.interrupted)
    return status.by_signal(hold.ending.asked) if hold.ending.asked else None


def _list(name: str | None, url: str | None, namespace: str | None, record: str | None, as_json: bool) -> int:
    with open_client(url, namespace) as locks, Schedule(locks, record=record) as schedule:
        names = schedule.names() if name is None else [name]
        found = {each: schedule.history(each)[: None if name is not None else 1] for each in names}
    runs = [(each, run) for each in names for run in found[each]]
    if as_json:
        print(to_json([{"name": each, "at": run.at.isoformat(), **run.as_dict()} for each, run in runs]))
    elif runs:
        print_table(HEADER, [_row(each, run) for each, run in runs])
    else:
        print("No schedule has run." if name is None else f"'{shown(name)}' has not run.", file=sys.stderr)
    return status.OK


def _row(name: str, run: Run) -> tuple[str, ...]:
    took = "-" if run.ended is None else span(max(0.0, run.ended - run.started))
    host, detail = shown(run.host), shown(run.detail)
    return shown(name), utc(run.tick), run.state, host, str(run.token), str(run.attempt), took, detail
