"""How the figures are shown: tables, a distribution for each measurement, JSON.

Distributions share one axis, a logarithmic one, so that they can be compared by looking: the further right,
the slower. A column is as high as the part of the steps that it stands for, beside the highest of its row.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Sequence
from typing import Any, NamedTuple

from fencelock.backends import hide_password
from fencelock.backends.checkup import quantile
from fencelock.cli.measuring.course import Course
from fencelock.cli.measuring.row import Row, latency
from fencelock.cli.table import on_terminal, print_table
from fencelock.cli.text import shown

__all__ = ["Axis", "Machine", "as_data", "axis_of", "distribution", "machine", "show"]

NONE = "-"
WORDS = {"STEP", "NOTE", "FAST TO SLOW"}
"""Columns of anything but figures."""
BLOCKS = " ▁▂▃▄▅▆▇█"
NARROWEST, WIDEST = 12, 48
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


class Machine(NamedTuple):
    """Where it was measured."""

    processors: int
    load: float | None
    """What else there was to do before it began, in processors; none where the system does not tell."""
    python: str


def machine() -> Machine:
    """Look at this machine."""
    try:
        load: float | None = os.getloadavg()[0]
    except OSError:
        load = None
    return Machine(os.cpu_count() or 1, load, platform.python_version())


# For programs -------------------------------------------------------------------------------


def as_data(course: Course, where: Machine, backend: str, rows: Sequence[Row]) -> dict[str, Any]:
    """Return everything as plain data."""
    return {
        "url": hide_password(course.url),
        "backend": backend,
        "seconds": course.seconds,
        "tasks": course.tasks,
        "contenders": course.contenders,
        "leases": course.leases,
        "machine": where._asdict(),
        "measurements": {row.key: _measurement(row, rows[0].median) for row in rows},
    }


def _measurement(row: Row, trip: float | None) -> dict[str, Any]:
    return {
        "title": row.title,
        "count": len(row.times),
        "latency_seconds": latency(row.times) if row.times else None,
        "round_trips": _multiple(row, trip),
        "per_second": row.rate,
        "smallest_share": row.share,
        "note": row.note,
    }


def _multiple(row: Row, trip: float | None) -> float | None:
    return row.median / trip if row.median is not None and trip else None


# For people ---------------------------------------------------------------------------------


def show(course: Course, where: Machine, rows: Sequence[Row]) -> None:
    """Write the tables."""
    print(f"\n{shown(hide_password(course.url))}\n")
    steps = ("STEP", "COUNT", "MEDIAN", "P95", "P99", "SPREAD", "TRIPS")
    rates = ("A SECOND", "SHARE", "NOTE")
    times = [_times(row, rows[0].median) for row in rows]
    if not on_terminal():
        _print((*steps, *rates), [(*left, *_rates(row)) for left, row in zip(times, rows, strict=True)])
    else:
        _print(steps, times)
        _show_distributions(rows)
    print(f"\n{_footnote(where)}")


def _times(row: Row, trip: float | None) -> tuple[str, ...]:
    if not row.times:
        return (row.title, *[NONE] * 6)
    figures = latency(row.times)
    multiple = _multiple(row, trip)
    return (
        row.title,
        f"{len(row.times):,}",
        *(_ms(figures[key]) for key in ("median", "p95", "p99", "spread")),
        NONE if multiple is None else f"{multiple:,.1f}" if multiple < 100 else f"{multiple:,.0f}",
    )


def _rates(row: Row) -> tuple[str, str, str]:
    rate = NONE if row.rate is None else f"{row.rate:,.0f}"
    return rate, NONE if row.share is None else f"{row.share:.2f}", shown(row.note)


def _ms(seconds: float) -> str:
    ms = seconds * 1000
    return f"{ms:.3f} ms" if ms < 9.9995 else f"{ms:.1f} ms" if ms < 99.95 else f"{ms:,.0f} ms"


def _print(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table whose figures stand below each other."""
    figures = [n for n, name in enumerate(header) if name not in WORDS]
    widths = [max(len(line[column]) for line in (header, *rows)) for column in range(len(header))]
    padded = [
        [cell.rjust(widths[n]) if n in figures else cell for n, cell in enumerate(line)]
        for line in (header, *rows)
    ]
    print_table(padded[0], padded[1:])


def _footnote(where: Machine) -> str:
    busy = where.load is not None and where.load > where.processors
    load = "" if where.load is None else f", load {where.load:.1f} before it began"
    noisy = "\nThe machine was busy: rates are too low." if busy else ""
    return f"Python {where.python} on {where.processors} processors{load}.{noisy}"


def _show_distributions(rows: Sequence[Row]) -> None:
    from rich.console import Console

    cells = [_rates(row) for row in rows]
    used = max(len(row.title) for row in rows) + max(len(rate) for rate, _, _ in cells) + len("SHARE") + 8
    axis = axis_of(rows, max(NARROWEST, min(WIDEST, Console().width - used)))
    header = ("STEP", "A SECOND", "SHARE", "FAST TO SLOW")
    lines = [
        (row.title, rate, share, distribution(row.times, axis) if row.times else note)
        for row, (rate, share, note) in zip(rows, cells, strict=True)
    ]
    print()
    _print(header, [*lines, ("", "", "", axis.labels())])
    for row in rows:
        if row.times and row.note:
            print(f"{row.title}: {shown(row.note)}")


class Axis(NamedTuple):
    """A logarithmic axis of so many columns."""

    low: float
    high: float
    columns: int

    def column(self, seconds: float) -> int:
        """Return where a time belongs; what is beyond an end belongs to the last column there."""
        place = (_log(seconds) - self.low) / (self.high - self.low) * self.columns
        return min(self.columns - 1, max(0, int(place)))

    def labels(self) -> str:
        """Return the powers of ten, each where it belongs, as far as there is room."""
        line = ""
        for power in range(math.ceil(self.low), math.floor(self.high) + 1):
            unit, name = next((unit, name) for unit, name in UNITS if 10.0**power >= unit * 0.999)
            label = f"{round(10.0**power / unit)} {name}"
            place = self.column(10.0**power)
            if place >= len(line) + (1 if line else 0) and place + len(label) <= self.columns:
                line = line.ljust(place) + label
        return line


def axis_of(rows: Sequence[Row], columns: int) -> Axis:
    """Return an axis with room for all but the slowest hundredth of each row, and for a power of ten."""
    measured = [row.times for row in rows if row.times]
    low = min((_log(min(times)) for times in measured), default=-4.0)
    high = max((_log(quantile(times, 0.99)) for times in measured), default=-3.0)
    return Axis(low, max(high, low + 0.5), columns)


def _log(seconds: float) -> float:
    return math.log10(max(seconds, 1e-9))


def distribution(times: Sequence[float], axis: Axis) -> str:
    """Return a histogram in one line of blocks."""
    counts = [0] * axis.columns
    for seconds in times:
        counts[axis.column(seconds)] += 1
    highest = max(counts)
    return "".join(BLOCKS[math.ceil(count / highest * (len(BLOCKS) - 1))] for count in counts)
