"""Text for people: escaped, aligned, with spans of time they can read.

Names, metadata, hosts and client names come from whoever takes a lock. Nothing of them reaches
a terminal raw: whatever is not printable (control characters, also those of Unicode that
reverse or hide text) is shown escaped, and so is the backslash, so that no two names look
alike. `--json` needs none of this: JSON in ASCII escapes by itself.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from fencelock.backends import hide_password

__all__ = ["complain", "plain_table", "shown", "shown_metadata", "span", "to_json", "utc", "width"]


def shown(text: str) -> str:
    r"""Return `text` as it may be shown on a terminal.

    Example:
        >>> print(shown("red \x1b[31m"))
        red \x1b[31m
    """
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(_escaped(char) for char in text)


def _escaped(char: str) -> str:
    if char == "\\":
        return "\\\\"
    return char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode("ascii")


def shown_metadata(metadata: Any) -> str:
    """Return metadata in one short line; nothing for none."""
    if metadata is None:
        return ""
    text = metadata if isinstance(metadata, str) else json.dumps(metadata, ensure_ascii=False)
    # JSON has doubled backslashes and escaped controls already, but not what hides in Unicode.
    safe = shown(text) if isinstance(metadata, str) else "".join(_printable(char) for char in text)
    return safe if len(safe) <= 80 else safe[:79] + "…"


def _printable(char: str) -> str:
    return char if char.isprintable() else _escaped(char)


def span(seconds: float) -> str:
    """Return a span of time as people say it.

    Example:
        >>> [span(0.25), span(12.3), span(75), span(7300), span(200_000)]
        ['250ms', '12.3s', '1m15s', '2h01m', '2d07h']
    """
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86_400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3600:02d}h"


def utc(seconds: float) -> str:
    """Return an instant, given in seconds since 1970, in UTC.

    Example:
        >>> utc(1_700_000_000)
        '2023-11-14 22:13:20Z'
    """
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def width(text: str) -> int:
    """Return how many columns `text` takes."""
    if text.isascii():
        return len(text)
    return sum(_columns(char) for char in text)


def _columns(char: str) -> int:
    if unicodedata.category(char).startswith("M"):  # drawn with the sign before
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def plain_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return aligned columns, two spaces apart, without colour."""
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(width(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(cell + " " * (size - width(cell)) for cell, size in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def to_json(value: Any, *, indent: int | None = 2) -> str:
    """Return `value` as JSON, in ASCII."""
    return json.dumps(value, indent=indent, default=str)


def complain(message: str) -> None:
    """Say one line on stderr, whatever it quotes without passwords.

    A stderr that is gone must not change how things end.
    """
    line = hide_password(" ".join(shown_lines(message).split("\n")))
    if sys.stderr is None:
        return
    try:
        print(f"fencelock: {line}", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass


def shown_lines(message: str) -> str:
    """Return a message of ours, escaped where it quotes others."""
    return "".join(char if char.isprintable() or char == "\n" else _escaped(char) for char in message)
