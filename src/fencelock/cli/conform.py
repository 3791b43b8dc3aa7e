"""`fencelock conform`: the public conformance checks against any backend.

The checks themselves are `fencelock.testing.conformance`; this shows them as they go.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from fencelock.backends import hide_password
from fencelock.cli import status
from fencelock.cli.options import as_json_option, one_url, open_client, statuses
from fencelock.cli.table import on_terminal
from fencelock.cli.text import shown, shown_lines, to_json
from fencelock.connect import default_url

if TYPE_CHECKING:
    from fencelock.testing.conformance import Result, Summary

__all__ = ["conform"]

FLAVOURS = ("blocking", "asyncio")
FAILED = 1
MARKS = {"passed": "ok", "failed": "FAILED", "not applicable": "n/a"}
STYLES = {"passed": "green", "failed": "bold red", "not applicable": "dim"}

HELP = """Check a backend against everything fencelock promises.

Runs the public conformance checks, each in the blocking and in the asyncio flavour. What a
backend does not declare is checked as well: it must be refused. The names used are random
ones, so the backend may be in use. The last line is always "N passed, N failed".

\b
Examples:
  fencelock conform sqlite:///var/lib/app/locks.db
  fencelock conform memory:// --flavour asyncio
  fencelock conform --json redis://localhost | jq '.failed'

"""

STATUSES = statuses(
    ("0", "nothing failed"),
    ("1", "something failed"),
    ("69", "the backend is unavailable"),
    ("64", "wrong usage"),
)


@click.command(
    "conform", help=HELP + STATUSES, short_help="Check a backend against everything fencelock promises."
)
@click.argument("target", metavar="URL", required=False)
@click.option(
    "--url", metavar="URL", help="The same as the argument. Default: $FENCELOCK_URL, else an embedded file."
)
@click.option(
    "--flavour", type=click.Choice(FLAVOURS), metavar="FLAVOUR", help="Only this one: blocking or asyncio."
)
@click.option(
    "--loop",
    type=click.Choice(("asyncio", "uvloop")),
    metavar="LOOP",
    help="The event loop of the asyncio flavour: asyncio (default) or uvloop, which must be installed.",
)
@click.option("--only", multiple=True, metavar="CHECK", help="Only this check. May be given several times.")
@as_json_option
def conform(
    target: str | None,
    url: str | None,
    flavour: str | None,
    loop: str | None,
    only: Sequence[str],
    as_json: bool,
) -> int:
    chosen = one_url(target, url) or default_url()
    _choose(loop)
    _knock(chosen)
    from fencelock.testing import conformance

    flavours = FLAVOURS if flavour is None else (flavour,)
    names = list(only) or None
    total = len(flavours) * (len(names) if names else len(conformance.checks()))
    with _progress(total, quiet=as_json) as note:
        summary = conformance.run(chosen, flavours=flavours, only=names, on_result=note)
    if as_json:
        print(to_json(_plain(chosen, summary)))
    else:
        _report(summary)
    sys.stdout.flush()
    print(f"{summary.passed} passed, {summary.failed} failed", file=sys.stderr if as_json else sys.stdout)
    return FAILED if summary.failed else status.OK


def _choose(loop: str | None) -> None:
    """Have this process and those that it starts use this event loop."""
    from fencelock.testing.conformance import loops

    if loop is not None:
        os.environ[loops.VARIABLE] = loop
    loops.factory()


def _knock(url: str) -> None:
    """Find out that nobody is there before every single check does."""
    with open_client(url) as locks:
        lock = locks.lock(f"fencelock-conform-{os.urandom(8).hex()}", ttl=max(5.0, locks.guarantees.min_ttl))
        lock.acquire().release()


@contextmanager
def _progress(total: int, *, quiet: bool) -> Iterator[Callable[[Result], None]]:
    if quiet:
        yield lambda result: None
    elif on_terminal():
        with _bar(total) as note:
            yield note
    else:
        yield lambda result: print(_line(result), flush=True)


@contextmanager
def _bar(total: int) -> Iterator[Callable[[Result], None]]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.text import Text

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, transient=True) as progress:
        task = progress.add_task("", total=total)

        def note(result: Result) -> None:
            progress.console.print(Text(_line(result), style=STYLES[result.outcome]))
            progress.update(task, advance=1, description=shown(result.check.name))

        yield note


def _line(result: Result) -> str:
    mark = MARKS[result.outcome]
    return f"{mark:<6}  {result.flavour:<8}  {result.seconds:6.2f}s  {shown(result.check.name)}"


def _report(summary: Summary) -> None:
    again = [(result, result.at_first) for result in summary.results if result.at_first]
    _section("Repeated once, since something was late at first in a check about time:", again)
    for outcome, title in (("not applicable", "Not applicable here:"), ("failed", "Failed:")):
        some = [
            (result, f"{result.detail}\n{result.traceback}".rstrip())
            for result in summary.results
            if result.outcome == outcome
        ]
        _section(title, some)
    count = f"{len(summary.results)} checks, {summary.not_applicable} of them not applicable"
    print(f"\n{count}, {summary.repeated} repeated")


def _section(title: str, results: Sequence[tuple[Result, str]]) -> None:
    if results:
        print(f"\n{title}\n")
    for result, detail in results:
        print(f"  {shown(result.check.name)} ({result.flavour}, about {result.check.promise})")
        print(f"    {shown(result.check.doc)}")
        for line in shown_lines(detail).splitlines():
            print(f"    {line}")


def _plain(url: str, summary: Summary) -> dict[str, Any]:
    return {
        "url": hide_password(url),
        "passed": summary.passed,
        "failed": summary.failed,
        "not_applicable": summary.not_applicable,
        "repeated": summary.repeated,
        "results": [
            {
                "check": result.check.name,
                "promise": result.check.promise,
                "shows": result.check.doc,
                "flavour": result.flavour,
                "outcome": result.outcome,
                "seconds": round(result.seconds, 3),
                "detail": result.detail,
                "traceback": result.traceback,
                "at_first": result.at_first,
            }
            for result in summary.results
        ],
    }
