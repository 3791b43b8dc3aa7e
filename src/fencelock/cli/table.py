"""Tables: in colour on a terminal, plain aligned text when piped.

`rich` is imported only for the former. Cells are plain strings that were escaped already;
nothing in them is taken for markup.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fencelock.cli.text import plain_table

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["on_terminal", "print_table", "rich_table"]

STYLES: Mapping[str, str] = {
    "NAME": "bold",
    "HOLDER": "green",
    "HELD": "green",
    "WAITING": "yellow",
    "TOKEN": "cyan",
    "EXPIRES": "dim",
    "OWNER": "dim",
    "METADATA": "dim",
}
UNBROKEN = {
    "MODE",
    "TOKEN",
    "HELD",
    "FOR",
    "EXPIRES",
    "WAITING",
    "OWNER",
    "SEVERITY",
    "MIN",
    "MEDIAN",
    "P95",
    "P99",
    "COUNT",
    "SPREAD",
    "TRIPS",
    "A SECOND",
    "SHARE",
    "STEP",
}
CELL_STYLES: Mapping[str, str] = {
    "holds": "bold green",
    "waits": "yellow",
    "ok": "green",
    "notice": "cyan",
    "warning": "bold yellow",
    "critical": "bold red",
}


def on_terminal() -> bool:
    """Whether somebody looks at stdout."""
    return sys.stdout.isatty()


def rich_table(header: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> Table:
    """Return a table for a terminal."""
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=None if title is None else Text(title), box=None, pad_edge=False, header_style="bold dim"
    )
    for heading in header:
        name = heading.strip()
        table.add_column(heading, style=STYLES.get(name), overflow="fold", no_wrap=name in UNBROKEN)
    for row in rows:
        table.add_row(*(Text(cell, style=CELL_STYLES.get(cell, "")) for cell in row))
    return table


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a table to stdout."""
    if on_terminal():
        from rich.console import Console

        Console(highlight=False).print(rich_table(header, rows))
    else:
        print(plain_table(header, rows))
