"""`fencelock break`: take a lock away from its holder.

Exactly those are broken who were shown: whoever has taken the lock while the operator was
thinking keeps it. Each break goes into the audit log, as one of the dashboard does. A default log that cannot
be written must not keep anyone from breaking a lock: that is said, and the break is made.
"""

from __future__ import annotations

import os
import pwd
import socket
import sys
from pathlib import Path

import click

from fencelock.cli import status
from fencelock.cli.look import SHOW_HEADER, entry_rows
from fencelock.cli.options import backend_options, open_client, statuses
from fencelock.cli.text import complain, plain_table, shown
from fencelock.connect import default_url
from fencelock.dashboard.audit import Audit, checked_reason, default_path, told_of
from fencelock.dashboard.labels import label_of
from fencelock.errors import ConfigurationError
from fencelock.state import Entry, LockState

__all__ = ["break_"]

NOTHING = 1

HELP = """Take a lock away from its holder.

Shows who would be broken and asks first. The holder learns of it as a loss, at its next renewal
at the latest, and may be at work until then: only a resource that checks the fencing token is
safe from it. With --owner, one holder or waiter; otherwise all holders.

Who broke what, when and why is written to the audit log, in which the dashboard shows it too.

\b
Examples:
  fencelock break --reason "host-a lost its disk" nightly-backup
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
@click.option("--reason", metavar="TEXT", help="Why, for the audit log: at most 500 characters.")
@click.option("--audit-log", type=Path, metavar="FILE", help="Default: a file in the user's state folder.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def break_(
    name: str,
    url: str | None,
    namespace: str | None,
    owner: str | None,
    reason: str | None,
    audit_log: Path | None,
    yes: bool,
) -> int:
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("stdin is not a terminal, so I cannot ask: add --yes if you are sure")
    why = "" if reason is None else checked_reason(reason)
    with open_client(url, namespace) as locks, _audit(audit_log) as audit:
        victims = _victims(locks.inspect(name), owner)
        if not victims:
            whom = f"holds '{shown(name)}'" if owner is None else f"of '{shown(name)}' is {shown(owner)}"
            complain(f"nobody {whom}: nothing to break")
            return NOTHING
        if not yes and not _agreed(name, victims):
            complain("nothing was broken")
            return NOTHING
        broken: list[Entry] = []
        try:
            for _, entry in victims:
                broken += locks.force_release(name, owner=entry.owner)
        finally:  # what was broken before the backend went away is told and written down all the same
            _tell(audit, label_of("", url or default_url(), namespace)["label"], name, why, broken)
    if not broken:
        complain(f"'{shown(name)}' was released meanwhile: nothing to break")
        return NOTHING
    return status.OK


def _audit(path: Path | None) -> Audit:
    try:
        return Audit(path or default_path())
    except ConfigurationError as error:
        if path is not None:
            raise
        complain(f"{error} with --audit-log; the break is not recorded")
        return Audit()


def _tell(audit: Audit, backend: str, name: str, reason: str, broken: list[Entry]) -> None:
    if not broken:
        return
    because = f": {shown(reason)}" if reason else ""
    for entry in broken:
        print(f"broken: '{shown(name)}', {_phrase(entry)}{because}")
    entries = [told_of(entry) for entry in broken]
    audit.add(
        user=_user(), address=socket.gethostname(), backend=backend, name=name, reason=reason, broken=entries
    )
    if audit.path is not None:
        complain(f"recorded in {audit.path}")


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may have users without a name
        return str(os.getuid())


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
