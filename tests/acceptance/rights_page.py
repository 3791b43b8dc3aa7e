"""What docs/reference/permissions.md says: the tests take their users, grants and tables from there."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "permissions.md"


def section(heading: str) -> str:
    """Return what stands below a heading, up to the next one."""
    found = re.search(
        rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    assert found, f"the page has no heading {heading!r}"
    return found[1]


def block(heading: str) -> str:
    """Return the first code block below a heading."""
    found = re.search(r"^```\w+[^\n]*\n(.*?)^```$", section(heading), re.MULTILINE | re.DOTALL)
    assert found, f"there is no block below {heading!r}"
    return found[1]


def rows(heading: str, column: str) -> dict[str, str]:
    """Return a column of the table below a heading that has it, by the first column."""
    lines = [line for line in section(heading).splitlines() if line.startswith("|")]
    cells = [
        [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines
    ]
    (header,) = [row for row in cells if column in row]
    start = cells.index(header) + 2
    found: dict[str, str] = {}
    for row in cells[start:]:
        if len(row) != len(header):
            break
        found[row[0]] = row[header.index(column)]
    return found


def names(cell: str) -> list[str]:
    """Return what is set as code in a cell."""
    return re.findall(r"`([^`]+)`", cell)
