"""`fencelock ls` and `fencelock show`: who holds, who waits, for how long."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from fencelock import changes
from fencelock.cli import status
from fencelock.cli.options import as_json_option, backend_options, open_client, statuses
from fencelock.cli.table import print_table
from fencelock.cli.text import shown, shown_metadata, span, to_json
from fencelock.state import Entry, LockState

__all__ = ["LS_HEADER", "ls", "ls_rows", "mode", "show", "who"]

LS_HEADER = ("NAME", "MODE", "HOLDER", "TOKEN", "HELD", "EXPIRES", "WAITING")
SHOW_HEADER = ("", "HOLDER", "MODE", "TOKEN", "FOR", "EXPIRES", "OWNER", "METADATA")

LS_HELP = """List the locks that are held or waited for.

One line for each holder: the lock's name and mode, who holds it (program, host, process), the
fencing token, for how long, when it expires unless renewed, and how many wait. PREFIX
limits the list to names that begin with it.

\b
Examples:
  fencelock ls
  fencelock ls invoice:
  fencelock ls --json | jq -r '.[] | select(.waiters | length > 0) | .name'

"""

SHOW_HELP = """Show one lock: who holds it, who waits.

Holders first, then the waiters in the order in which they will be served, each with its
owner id (for `fencelock break --owner`) and metadata.

\b
Examples:
  fencelock show nightly-backup
  fencelock show --json nightly-backup | jq '.holders[0].token'

"""

STATUSES = statuses(
    ("0", "looked; also when there is nothing to see"),
    ("69", "the backend is unavailable"),
    ("64", "wrong usage"),
)


@click.command("ls", help=LS_HELP + STATUSES, short_help="List the locks that are held or waited for.")
@click.argument("prefix", default="")
@backend_options
@as_json_option
def ls(prefix: str, url: str | None, namespace: str | None, as_json: bool) -> int:
    with open_client(url, namespace) as locks:
        states = locks.list(prefix)
    if as_json:
        print(to_json([state.as_dict() for state in states]))
    elif states:
        print_table(LS_HEADER, ls_rows(states))
    else:
        beginning = f" whose name begins with {shown(prefix)!r}" if prefix else ""
        print(f"No lock{beginning} is held or waited for.", file=sys.stderr)
    return status.OK


@click.command("show", help=SHOW_HELP + STATUSES, short_help="Show one lock: who holds it, who waits.")
@click.argument("name")
@backend_options
@as_json_option
def show(name: str, url: str | None, namespace: str | None, as_json: bool) -> int:
    with open_client(url, namespace) as locks:
        state = locks.inspect(name)
    if as_json:
        print(to_json(state.as_dict()))
    elif state.is_free:
        print(f"'{shown(name)}' is free: nobody holds it, nobody waits.", file=sys.stderr)
    else:
        print_table(SHOW_HEADER, entry_rows(state.holders, state.waiters))
    return status.OK


def ls_rows(states: Sequence[LockState]) -> list[tuple[str, ...]]:
    """Return a line for each holder; one for a lock that is only waited for."""
    rows: list[tuple[str, ...]] = []
    for state in states:
        name, waiting = shown(state.name), str(len(state.waiters) or "-")
        rows += [
            (
                name,
                mode(entry),
                who(entry),
                str(entry.token),
                span(entry.age),
                span(entry.expires_in),
                waiting,
            )
            for entry in state.holders
        ]
        if not state.holders:
            rows.append((name, "-", "-", "-", "-", "-", waiting))
    return rows


def entry_rows(holders: Sequence[Entry], waiters: Sequence[Entry]) -> list[tuple[str, ...]]:
    """Return a line for each holder and each waiter."""
    marked = [("holds", entry) for entry in holders] + [("waits", entry) for entry in waiters]
    return [
        (
            does,
            who(entry),
            mode(entry),
            str(entry.token),
            span(entry.age),
            span(entry.expires_in),
            shown(entry.owner),
            shown_metadata(entry.metadata),
        )
        for does, entry in marked
    ]


def who(entry: Entry) -> str:
    """Return program, host and process of a holder or waiter, fit for a terminal."""
    return shown(changes.who(entry))


def mode(entry: Entry) -> str:
    """Return the mode, with the number of slots of a semaphore."""
    return f"{entry.limit} slots" if entry.mode == "permit" else entry.mode
