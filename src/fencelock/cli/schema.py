"""`fencelock schema`: what a database needs for locks, made or printed.

A backend that keeps tables has `schema()`, the SQL that makes them; it makes them itself before its first
step. This is for people who want it done at another time, or by another role.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from fencelock.backends import hide_password
from fencelock.cli import status
from fencelock.cli.options import one_url, open_client, statuses
from fencelock.cli.text import shown
from fencelock.client import Client
from fencelock.connect import default_url
from fencelock.errors import ConfigurationError
from fencelock.runtime.blocking import run

__all__ = ["schema"]

LIMIT = 10.0
"""Seconds that making it may take."""

HELP = """Make the tables that locks need, or print the SQL.

A database backend makes its tables and functions by itself when it is first used, if its role
may. Where it may not, or where every change is a migration, print the SQL and let the owner of
the database run it. It ends with the GRANTs that another role needs, as comments. It may be run
again: what is there stays as it is.

\b
Examples:
  fencelock schema postgresql://localhost/app
  fencelock schema --print postgresql://localhost/app | psql app
  fencelock schema --print 'postgresql://localhost/app?schema=locks' > migrations/0042_locks.sql

"""

STATUSES = statuses(
    ("0", "it is there now, or was printed"),
    ("69", "the backend is unavailable, or this role may not make it"),
    ("64", "wrong usage, or a backend that needs none"),
)


@click.command(
    "schema", help=HELP + STATUSES, short_help="Make the tables that locks need, or print the SQL."
)
@click.argument("target", metavar="[URL]", required=False)
@click.option(
    "--url", metavar="URL", help="The same as the argument. Default: $FENCELOCK_URL, else an embedded file."
)
@click.option("--print", "only_print", is_flag=True, help="Print the SQL; connect to nothing.")
def schema(target: str | None, url: str | None, only_print: bool) -> int:
    chosen = one_url(target, url)
    with open_client(chosen) as locks:
        backend = locks._session.backend
        script: Callable[[], str] | None = getattr(backend, "schema", None)
        if script is None:
            raise ConfigurationError(f"the {backend.name} backend needs no schema")
        if only_print:
            sys.stdout.write(f"{script().rstrip()}\n")
            return status.OK
        _make(locks)
    print(f"the schema is complete: {shown(hide_password(chosen or default_url()))}")
    return status.OK


def _make(locks: Client) -> None:
    backend: Any = locks._session.backend
    if hasattr(backend, "create_schema"):
        run(backend.create_schema(deadline=backend.runtime.now() + LIMIT))
    else:
        locks.inspect("fencelock-schema")  # the first step makes what is missing
