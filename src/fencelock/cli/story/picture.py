"""What there is to see at one moment: who does what, how the jobs stand, what was told so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

__all__ = ["Cell", "Line", "Picture", "Row", "short"]


class Line(NamedTuple):
    """A sentence of the story. `mood` is plain, bad, good or note."""

    at: float
    text: str
    mood: str


class Row(NamedTuple):
    """A worker. `left` is how many seconds its lease has, by the lock file; `None` for no lease."""

    name: str
    state: str
    job: int | None
    progress: float | None
    token: int | None
    left: float | None


class Cell(NamedTuple):
    """A job: how many effects it has, and whether somebody is at it."""

    effects: int
    busy: bool


class Picture(NamedTuple):
    """All of it."""

    act: int
    elapsed: float
    ttl: float
    rows: Sequence[Row]
    jobs: Mapping[int, Cell]
    lines: Sequence[Line]


def short(token: int) -> str:
    """Return the end of a token: its beginning is the same for all tokens of a demo."""
    return f"…{token % 10_000_000:07d}"
