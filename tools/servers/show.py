"""Tables for people: by rich on a terminal, if it is there, else in plain columns."""

from __future__ import annotations

import sys
from collections.abc import Iterable


def table(headings: list[str], rows: Iterable[list[str]]) -> None:
    """Prints the rows below their headings."""
    body = list(rows)
    if not (sys.stdout.isatty() and _rich(headings, body)):
        _plain(headings, body)


def _rich(headings: list[str], rows: list[list[str]]) -> bool:
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return False
    shown = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for heading in headings:
        shown.add_column(heading, overflow="fold")
    for row in rows:
        shown.add_row(*(Text(cell, style=_STYLES.get(cell.split(" ")[0], "")) for cell in row))
    Console(highlight=False).print(shown)
    return True


_STYLES = {"installed": "green", "unpacked": "green", "missing:": "yellow"}


def _plain(headings: list[str], rows: list[list[str]]) -> None:
    lines = [[heading.upper() for heading in headings], *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    for line in lines:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(padded).rstrip())


def line(text: str) -> None:
    """Prints at once, whoever reads."""
    print(text, flush=True)
