"""`fencelock jobs`: look at a table of jobs, and change what is there."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fencelock.backends import hide_password
from fencelock.cli import status
from fencelock.cli.options import DURATION, as_json_option, statuses
from fencelock.cli.table import print_table
from fencelock.cli.target import made
from fencelock.cli.text import shown, shown_metadata, span, to_json
from fencelock.connections import settled
from fencelock.errors import ConfigurationError
from fencelock.jobs import AsyncTable, AsyncWorker, JobState, Table, Worker
from fencelock.jobs.shape import STATUSES as WORDS
from fencelock.jobs.shape import TABLE
from fencelock.runtime import blocking

if TYPE_CHECKING:
    from sqlalchemy import Engine

__all__ = ["jobs"]

HEADER = ("ID", "KIND", "STATUS", "ATTEMPTS", "DUE", "PRIORITY", "WORKER", "REASON")
NEEDS_IDS = {"show", "retry", "cancel"}
WEEK = 7 * 86400.0
DRIVERS = {
    **dict.fromkeys(("postgresql", "postgres"), "postgresql+psycopg"),
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}

HELP = """Look at jobs, and change what is there.

\b
  ls             how many there are of each status, and a line for each job, those due first, first
  show ID…       everything about these jobs
  retry ID…      let dead or cancelled jobs begin anew, now; a job that is running is refused
  cancel ID…     end jobs that have not ended; one that is running cannot complete any more
  purge          delete jobs that ended longer ago than --older-than

The table is that of --source, or the one called --table in the database --db.

\b
Examples:
  fencelock jobs ls --source myapp.jobs:worker --status dead
  fencelock jobs retry 17 18 --db postgresql://localhost/app
  fencelock jobs purge --older-than 24h --db sqlite:///app.db
  fencelock jobs ls --json --db sqlite:///app.db | jq '.counts.pending'

"""

STATUSES = statuses(
    ("0", "done; also when there is nothing to see"),
    ("69", "the database is unavailable"),
    ("64", "wrong usage: no such job, one that is running, a table that does not fit"),
)


@click.command("jobs", help=HELP + STATUSES, short_help="Look at jobs, and change what is there.")
@click.argument("action", type=click.Choice(["ls", "show", "retry", "cancel", "purge"]))
@click.argument("ids", nargs=-1, metavar="[ID]…")
@click.option("--source", metavar="MODULE:NAME", help="A Table of yours, or a Worker whose table is meant.")
@click.option("--db", metavar="URL", help="A database, as SQLAlchemy writes it.")
@click.option("--table", metavar="NAME", help=f"The ready-made table in --db. Default: {TABLE}.")
@click.option("--status", type=click.Choice(WORDS), help="ls: only these.")
@click.option("--kind", metavar="KIND", help="ls: only these.")
@click.option("--limit", type=int, default=100, help="ls: at most so many. Default: 100.")
@click.option("--older-than", type=DURATION, default=WEEK, help="purge: ended so long ago. Default: a week.")
@as_json_option
def jobs(
    action: str,
    ids: tuple[str, ...],
    source: str | None,
    db: str | None,
    table: str | None,
    status: str | None,
    kind: str | None,
    limit: int,
    older_than: float,
    as_json: bool,
) -> int:
    if bool(ids) != (action in NEEDS_IDS):
        told = "which: give the ids of jobs" if action in NEEDS_IDS else "no ids: leave them out"
        raise click.UsageError(f"{action} needs {told}")
    chosen = found_table(source, db, table)
    if action == "ls":
        act = _ls(chosen, status, kind, limit, as_json)
    elif action == "show":
        act = _show(chosen, ids, as_json)
    elif action == "purge":
        act = _purge(chosen, older_than, as_json)
    else:
        act = _change(chosen, action, ids, as_json)
    act = _and_disposed(chosen, act)
    return asyncio.run(act) if isinstance(chosen, AsyncTable) else blocking.run(act)


async def _and_disposed(table: Table | AsyncTable, act: Coroutine[Any, Any, int]) -> int:
    try:
        return await act
    finally:
        await settled(table.engine.dispose())


def found_table(source: str | None, db: str | None, table: str | None) -> Table | AsyncTable:
    """Return the table that is meant."""
    if (source is None) == (db is None):
        raise click.UsageError("give --source module:name, or --db URL")
    if source is None:
        return Table(_engine(db or ""), table or TABLE)
    if table is not None:
        raise click.UsageError("--table goes with --db: --source says which table it is")
    found = made(source, "table", (Table, AsyncTable, Worker, AsyncWorker))
    chosen: Table | AsyncTable = found.source if isinstance(found, Worker | AsyncWorker) else found
    return chosen


def _engine(url: str) -> Engine:
    try:
        from sqlalchemy import create_engine, make_url
    except ImportError:
        raise ConfigurationError(
            "--db needs the package 'sqlalchemy': pip install 'fencelock[jobs]'"
        ) from None
    from sqlalchemy.exc import SQLAlchemyError

    try:
        parsed = make_url(url)
        if parsed.drivername in DRIVERS:
            parsed = parsed.set(drivername=DRIVERS[parsed.drivername])
        engine = create_engine(parsed)
    except (SQLAlchemyError, ValueError, ImportError) as error:
        told = str(error).partition("\n")[0]
        raise ConfigurationError(f"--db {hide_password(url)!r} cannot be used: {told}") from None
    if engine.dialect.is_async:
        raise ConfigurationError(f"--db {hide_password(url)!r} has an asynchronous driver: leave it out")
    file = parsed.database
    if engine.dialect.name == "sqlite" and file and not file.startswith("file:") and not Path(file).exists():
        raise ConfigurationError(f"there is no file {file!r}")
    return engine


async def _ls(table: Any, wanted: str | None, kind: str | None, limit: int, as_json: bool) -> int:
    counts = await settled(table.counts())
    states = await settled(table.ls(status=wanted, kind=kind, limit=limit))
    if as_json:
        print(to_json({"counts": counts, "jobs": [state.as_dict() for state in states]}))
        return status.OK
    print(
        ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "no jobs", file=sys.stderr
    )
    if states:
        print_table(HEADER, [_row(state) for state in states])
    return status.OK


def _row(state: JobState) -> tuple[str, ...]:
    return (
        shown(str(state.id)),
        shown(state.kind),
        shown(state.status),
        str(state.attempts),
        _due(state),
        str(state.priority),
        shown(state.worker or "-"),
        shown(state.reason or ""),
    )


def _due(state: JobState) -> str:
    if state.status in {"pending", "running"}:
        return f"in {span(state.due_in)}" if state.due_in > 0 else "now"
    return f"{span(-state.due_in)} ago"


async def _show(table: Any, ids: Sequence[str], as_json: bool) -> int:
    states = [await _got(table, id_) for id_ in ids]
    if as_json:
        print(to_json([state.as_dict() for state in states]))
        return status.OK
    for number, state in enumerate(states):
        if number:
            print()
        for field, value in state.as_dict().items():
            print(f"{field:<9} {_cell(field, value)}".rstrip())
    return status.OK


def _cell(field: str, value: Any) -> str:
    if value is None:
        return "-"
    if field in {"age", "due_in"}:
        return f"-{span(-value)}" if value < 0 else span(value)
    return shown(value) if isinstance(value, str) and field != "payload" else shown_metadata(value)


async def _got(table: Any, id_: str) -> JobState:
    found: JobState | None = await settled(table.get(id_))
    if found is None:
        raise ConfigurationError(f"there is no job {shown(id_)!r} in {table.name!r}")
    return found


async def _change(table: Any, action: str, ids: Sequence[str], as_json: bool) -> int:
    change = {"retry": table.retry, "cancel": table.cancel}[action]
    states = []
    for id_ in ids:
        await settled(change(id_))
        states.append(await _got(table, id_))
        if not as_json:
            print(f"job {shown(id_)} is {states[-1].status}")
    if as_json:
        print(to_json([state.as_dict() for state in states]))
    return status.OK


async def _purge(table: Any, older_than: float, as_json: bool) -> int:
    count = 0
    while deleted := await settled(table.purge(older_than=older_than)):
        count += deleted
    print(to_json({"deleted": count}) if as_json else f"{count} deleted")
    return status.OK
