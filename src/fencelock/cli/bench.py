"""`fencelock bench`: a short benchmark against a backend of one's own.

1. One question to the server: whoever is not there is known by it, and nothing else is tried.
2. The measurements of `fencelock.cli.measuring`, one after the other, each for a bounded time. What a backend
   cannot do is said in its row.
3. The figures, each beside the round trip: what takes one or two of them is the way to the server, what takes
   many is work, or waiting.

It takes locks under random names only, and gives all of them back, also on Ctrl-C.

Not promised: that figures compare with those of another machine, or of this one at another time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import click

from fencelock.cli import status
from fencelock.cli.measuring import pairs, report
from fencelock.cli.measuring.course import PATIENCE, Course, Stop
from fencelock.cli.measuring.processes import processes
from fencelock.cli.measuring.race import threads
from fencelock.cli.measuring.row import NotMeasured, Row
from fencelock.cli.measuring.sweeps import sweeps
from fencelock.cli.options import DURATION, as_json_option, backend_options, one_url, statuses
from fencelock.cli.text import to_json
from fencelock.connect import default_url
from fencelock.errors import Unsupported
from fencelock.runtime.blocking import run

__all__ = ["bench"]

SHORTEST, LONGEST = 0.05, 300.0

HELP = """Measure locks on a backend of your own.

Some seconds of load, so not on a backend that has none to spare. Measures a round trip, a pair of acquire
and release (blocking, under asyncio, and with many tasks at once), how often one lock changes hands among
threads and among processes, and how long it takes to renew many leases. All names are random, and nothing
is left behind. Figures are those of this machine, now: compare within a run.

\b
Columns:
  COUNT     steps that were measured
  MEDIAN    half of the steps took less; P95 and P99: so many in a hundred
  SPREAD    the distance between the quartiles
  TRIPS     the median, in round trips to the server
  A SECOND  all together: pairs, handoffs, leases renewed
  SHARE     acquisitions of the least-served contender, as part of the best-served one's

\b
Examples:
  fencelock bench
  fencelock bench redis://localhost:6379
  fencelock bench --seconds 10 --contenders 32 postgresql://app@db/staging
  fencelock bench --json | jq '.measurements.pair_blocking.latency_seconds.median'

"""

STATUSES = statuses(
    ("0", "measured"),
    ("69", "the backend is unavailable, or became so"),
    ("64", "wrong usage"),
    ("130", "ended by Ctrl-C"),
)


class Step(NamedTuple):
    """A measurement, what programs and what people call it."""

    measure: Callable[[Course, str, str], Row]
    key: str
    title: str


def plan(course: Course) -> list[Step]:
    """Return what is measured, in this order. The round trip is the first: it is the yardstick."""
    return [
        Step(pairs.round_trip, "round_trip", "round trip"),
        Step(pairs.blocking, "pair_blocking", "pair, blocking"),
        Step(pairs.under_asyncio, "pair_asyncio", "pair, asyncio"),
        Step(pairs.many, "pairs_tasks", f"pairs, {course.tasks} tasks"),
        Step(threads, "handoff_threads", f"handoff, {course.contenders} threads"),
        Step(processes, "handoff_processes", f"handoff, {course.contenders} processes"),
        Step(sweeps, "renewal_sweep", f"renew {course.leases} leases"),
    ]


@click.command("bench", help=HELP + STATUSES, short_help="Measure locks on a backend of your own.")
@click.argument("target", metavar="[URL]", required=False)
@backend_options
@click.option(
    "--seconds", type=DURATION, default=2.0, metavar="SECONDS", help="For each measurement. Default: 2."
)
@click.option(
    "--tasks",
    type=click.IntRange(1, 1000),
    default=32,
    help="Asyncio tasks, each with its own name. Default: 32.",
)
@click.option(
    "--contenders",
    type=click.IntRange(2, 64),
    default=8,
    help="Threads, then processes, on one name. Default: 8.",
)
@click.option(
    "--leases", type=click.IntRange(1, 10_000), default=200, help="Leases held at once. Default: 200."
)
@as_json_option
def bench(
    target: str | None,
    url: str | None,
    namespace: str | None,
    seconds: float,
    tasks: int,
    contenders: int,
    leases: int,
    as_json: bool,
) -> int:
    if not SHORTEST <= seconds <= LONGEST:
        raise click.UsageError(f"--seconds is {seconds:g}: give between 50ms and 5m")
    chosen = one_url(target, url) or default_url()
    stop, where = Stop(), report.machine()
    course = Course(chosen, namespace, seconds, tasks, contenders, leases, stop)
    backend = _knock(course)
    with stop.listening():
        rows = _measured(course)
    if stop:
        return status.by_signal(stop.signum)
    if as_json:
        print(to_json(report.as_data(course, where, backend, rows)))
    else:
        report.show(course, where, rows)
    return status.OK


def _knock(course: Course) -> str:
    """Find out that nobody is there, while Ctrl-C still ends a wait for that; return the backend's name."""
    with course.blocking() as locks:
        backend = locks._session.backend
        try:
            run(backend.pulse(deadline=backend.runtime.now() + PATIENCE))
        except Unsupported:
            pass  # the row of the round trip says so
        return backend.name


def _measured(course: Course) -> list[Row]:
    rows: list[Row] = []
    steps = plan(course)
    with _progress(steps) as note:
        for step in steps:
            note(step)
            try:
                rows.append(step.measure(course, step.key, step.title))
            except (NotMeasured, Unsupported) as reason:
                rows.append(Row(step.key, step.title, note=f"not measured: {reason}"))
            if course.stop:
                break
    return rows


@contextmanager
def _progress(steps: Sequence[Step]) -> Iterator[Callable[[Step], None]]:
    if not sys.stderr.isatty():
        yield lambda step: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False))
    # Drawn between measurements only: a thread that draws would be part of what is measured.
    with Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as progress:
        task = progress.add_task("", total=len(steps))

        def note(step: Step) -> None:
            progress.update(task, completed=steps.index(step), description=step.title, refresh=True)

        yield note
