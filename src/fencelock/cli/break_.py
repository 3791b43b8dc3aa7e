"""`fencelock break`: take a lock away from its holder.

Exactly those are broken who were shown: whoever has taken the lock while the operator was
thinking keeps it.
"""

from __future__ import annotations

import sys

import click

from fencelock.cli import status
from fencelock.cli.look import SHOW_HEADER, entry_rows
from fencelock.cli.options import backend_options, open_client, statuses
from fencelock.cli.text import complain, plain_table, shown
from fencelock.state import Entry, LockState

__all__ = ["break_"]

NOTHING = 1

HELP = """Take a lock away from its holder.

Shows who would be broken and asks first. The holder learns of it as a loss, at its next renewal
at the latest, and may be at work until then: only a resource that checks the fencing token is
safe from it. With --owner, one holder or waiter; otherwise all holders.

\b
Examples:
  fencelock break nightly-backup
  fencelock break --yes nightly-backup    # in a script
  fencelock break --owner 3b76f6934fadc65b28147cd10c844e8b transcode

"""

STATUSES = statuses(
    ("0", "broken"),
    ("1", "nothing to break, or you said no"),
    ("69", "the backend is unavailable"),
    ("64", "wrong usage; not a terminal, and no --yes"),
)


@click.command("break", help=HELP + STATUSES, short_help="Take a lock away from its holder.")
@click.argument("name")
@backend_options
@click.option(
    "--owner", metavar="ID", help="Only this holder or waiter, by its owner id (see fencelock show)."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
def break_(name: str, url: str | None, namespace: str | None, owner: str | None, yes: bool) -> int:
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("stdin is not a terminal, so I cannot ask: add --yes if you are sure")
    with open_client(url, namespace) as locks:
        victims = _victims(locks.inspect(name), owner)
        if not victims:
            whom = f"holds '{shown(name)}'" if owner is None else f"of '{shown(name)}' is {shown(owner)}"
            complain(f"nobody {whom}: nothing to break")
            return NOTHING
        if not yes and not _agreed(name, victims):
            complain("nothing was broken")
            return NOTHING
        broken = [gone for _, entry in victims for gone in locks.force_release(name, owner=entry.owner)]
    if not broken:
        complain(f"'{shown(name)}' was released meanwhile: nothing to break")
        return NOTHING
    for entry in broken:
        print(f"broken: '{shown(name)}', {_phrase(entry)}")
    return status.OK


def _victims(state: LockState, owner: str | None) -> list[tuple[str, Entry]]:
    if owner is None:
        return [("holds", entry) for entry in state.holders]
    everyone = [("holds", entry) for entry in state.holders] + [("waits", entry) for entry in state.waiters]
    return [(does, entry) for does, entry in everyone if entry.owner == owner]


def _agreed(name: str, victims: list[tuple[str, Entry]]) -> bool:
    holders = [entry for does, entry in victims if does == "holds"]
    waiters = [entry for does, entry in victims if does == "waits"]
    click.echo(plain_table(SHOW_HEADER, entry_rows(holders, waiters)), err=True)
    click.echo("It may still be at work. Only a resource that checks tokens is safe from it.", err=True)
    return click.confirm(f"Break '{shown(name)}'?", default=False, err=True)


def _phrase(entry: Entry) -> str:
    return f"{shown(entry.client)} {entry.summary()}, token {entry.token}, owner {shown(entry.owner)}"
