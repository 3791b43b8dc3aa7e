"""`fencelock worker`: run a worker of yours, with what it does on the terminal, or a line for each event.

The worker runs in the main thread, so SIGTERM and Ctrl-C reach it: the first lets jobs end, the second gives
them back. What is shown is asked of it from another thread, a few times a second.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from fencelock.cli import status
from fencelock.cli.options import statuses
from fencelock.cli.table import on_terminal, rich_table
from fencelock.cli.target import made
from fencelock.cli.text import shown, shown_lines, span
from fencelock.jobs import AsyncWorker, Tally, Worker

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

__all__ = ["worker"]

HEADER = ("JOB", "ATTEMPT", "FOR", "EXPIRES")
PICTURES = 4
LOGGER = "fencelock.jobs"

HELP = """Run a worker: jobs from a table, each done once.

TARGET is module:name, imported from the current directory: a fencelock.jobs.Worker or AsyncWorker, or a
function that makes one. On a terminal a live table of what it is at, otherwise one line for each job.
SIGTERM and Ctrl-C let jobs under way end; after the worker's grace, or a second signal, they are given back.

\b
Examples:
  fencelock worker myapp.jobs:worker
  fencelock worker myapp.jobs:worker --concurrency 8
  fencelock worker myapp.jobs:make_worker --once    # what is to be done now, for cron

"""

STATUSES = statuses(
    ("0", "stopped by a signal, or with --once nothing is left to do"),
    ("76", "stopped, and jobs that did not end in time were given back"),
    ("69", "the database or the lock backend was unavailable from the start"),
    ("64", "wrong usage: no such module or name, not a worker, a table that does not fit"),
)


@click.command("worker", help=HELP + STATUSES, short_help="Run a worker: jobs from a table, each done once.")
@click.argument("target")
@click.option("--concurrency", type=int, metavar="N", help="Jobs at a time, instead of what the worker says.")
@click.option("--once", is_flag=True, help="Do what is to be done now, and end.")
def worker(target: str, concurrency: int | None, once: bool) -> int:
    chosen = made(target, "worker", (Worker, AsyncWorker))
    if concurrency is not None:
        chosen.concurrency = concurrency
    with _shown(chosen):
        tally = chosen.run(once=once)
        if inspect.isawaitable(tally):
            tally = asyncio.run(_awaited(tally, chosen.source.engine))
    return status.LOST if tally.given_back else status.OK


async def _awaited(tally: Any, engine: Any) -> Tally:
    try:
        found: Tally = await tally
        return found
    finally:
        await engine.dispose()  # its connections end with this loop, or some of their threads never


class Lines(logging.Handler):
    """A line on stdout for each event; nobody may read it any more."""

    def emit(self, record: logging.LogRecord) -> None:
        stamp = time.strftime("%H:%M:%S", time.localtime(record.created))
        try:
            print(f"{stamp} {record.levelname:<7} {shown_lines(_line(record))}", flush=True)
        except (OSError, ValueError):
            pass


def _line(record: logging.LogRecord) -> str:
    return " ".join(record.getMessage().split("\n"))


@contextmanager
def _shown(chosen: Any) -> Iterator[None]:
    """Show what a worker does while the block lasts."""
    logger = logging.getLogger(LOGGER)
    before = logger.level
    if not on_terminal():
        handler: logging.Handler = Lines()
        logger.setLevel(logging.INFO)
        with _handling(logger, handler):
            yield
        logger.setLevel(before)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(file=sys.stdout, highlight=False)
    live = Live(
        console=console,
        get_renderable=lambda: picture(chosen),
        refresh_per_second=PICTURES,
        vertical_overflow="visible",
    )
    with live, _handling(logger, Above(console)):
        yield


class Above(logging.Handler):
    """Whatever went wrong, above the live table."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        style = "red" if record.levelno >= logging.ERROR else "yellow"
        self._console.print(shown_lines(_line(record)), style=style, markup=False)


@contextmanager
def _handling(logger: logging.Logger, handler: logging.Handler) -> Iterator[None]:
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def picture(chosen: Any) -> RenderableType:
    """Return what a worker is at, and what it has done."""
    from rich.console import Group
    from rich.text import Text

    rows = [
        (shown(each.name), str(each.attempt), span(each.seconds), span(each.remaining))
        for each in chosen.running()
    ]
    tally: Tally = chosen.tally
    told = [f"{getattr(tally, field)} {field.replace('_', ' ')}" for field in Tally.__dataclass_fields__]
    summary = Text(
        ", ".join(word for word in told if not word.startswith("0 ")) or "nothing to do yet", "dim"
    )
    return Group(rich_table(HEADER, rows), summary) if rows else summary
