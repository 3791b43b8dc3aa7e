"""`fencelock ls` and `fencelock show`: who holds, who waits, for how long.

A holder or waiter with this host's name whose process does not exist is marked. The mark says no more than
that: containers may share a host name and have process ids of their own, and a process id may be used again.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from typing import Any

import click

from fencelock import changes
from fencelock.cli import status
from fencelock.cli.options import as_json_option, backend_options, open_client, statuses
from fencelock.cli.table import print_table
from fencelock.cli.text import shown, shown_metadata, span, to_json
from fencelock.state import Entry, LockState

__all__ = ["LS_HEADER", "entry_json", "ls", "ls_rows", "mark", "mode", "process_found", "show", "who"]

LS_HEADER = ("NAME", "MODE", "HOLDER", "TOKEN", "HELD", "EXPIRES", "WAITING")
SHOW_HEADER = ("", "HOLDER", "MODE", "TOKEN", "FOR", "EXPIRES", "OWNER", "METADATA")
NOTE = (
    "EXPIRES: a holder loses the lock then unless it renews its lease, "
    "a waiter its place unless it gives a sign of life."
)

MARK_HELP = """A holder or waiter that has this host's name, and whose process does not exist, is marked
"process not found on this host". It may be alive all the same, in a container that shares the host name. In
--json process_found is true, false, or null for other hosts."""

LS_HELP = f"""List the locks that are held or waited for.

One line for each holder: the lock's name and mode, who holds it (program, host, process), the
fencing token, for how long, when it expires unless renewed, and how many wait. PREFIX
limits the list to names that begin with it.

{MARK_HELP}

\b
Examples:
  fencelock ls
  fencelock ls invoice:
  fencelock ls --json | jq -r '.[] | select(.waiters | length > 0) | .name'
  fencelock ls --json | jq '.[].holders[] | select(.process_found == false)'

"""

SHOW_HELP = f"""Show one lock: who holds it, who waits.

Holders first, then the waiters in the order in which they will be served, each with its
owner id (for `fencelock break --owner`) and metadata. EXPIRES says when a holder loses the lock unless it
renews its lease, and when a waiter loses its place unless it gives a sign of life. A live one does so in good
time, by itself. In --json it is expires_in, in seconds.

{MARK_HELP}

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
        print(to_json([_state_json(state) for state in states]))
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
        print(to_json(_state_json(state)))
    elif state.is_free:
        print(f"'{shown(name)}' is free: nobody holds it, nobody waits.", file=sys.stderr)
    else:
        print_table(SHOW_HEADER, entry_rows(state.holders, state.waiters))
        if state.waiters:
            sys.stdout.flush()
            print(NOTE, file=sys.stderr)
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
                who(entry) + mark(entry),
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
            who(entry) + mark(entry),
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


def mark(entry: Entry) -> str:
    """Return what follows the name of a holder or waiter whose process is not there."""
    return " (process not found on this host)" if process_found(entry) is False else ""


def process_found(entry: Entry) -> bool | None:
    """Whether a process with this id exists here; `None` for another host, or if that cannot be said."""
    if entry.host != socket.gethostname() or entry.pid <= 0:
        return None
    try:
        os.kill(entry.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    except OverflowError:  # what a client says of itself may be any number
        return None
    return True


def entry_json(entry: Entry) -> dict[str, Any]:
    """Return a holder or waiter for programs."""
    return {**entry.as_dict(), "process_found": process_found(entry)}


def _state_json(state: LockState) -> dict[str, Any]:
    return {
        "name": state.name,
        "holders": [entry_json(entry) for entry in state.holders],
        "waiters": [entry_json(entry) for entry in state.waiters],
    }


def mode(entry: Entry) -> str:
    """Return the mode, with the number of slots of a semaphore."""
    return f"{entry.limit} slots" if entry.mode == "permit" else entry.mode
