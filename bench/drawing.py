"""Small pictures for the docs, drawn line by line as SVG: the same figures give the same file.

Axes may be linear, logarithmic, or of percentiles, where each nine has as much room as the one before. A
picture has its own colours for a dark page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

__all__ = ["WIDTH", "Axes", "Scale", "colours", "decades", "document", "legend", "log", "percentile", "short"]

WIDTH = 760
LIGHT = ["#00796b", "#1f2937", "#c2410c", "#7c3aed", "#8a6d00", "#0369a1", "#be185d", "#64748b"]
DARK = ["#4fd1b8", "#e6edf3", "#fb923c", "#c4a7ff", "#facc15", "#7dd3fc", "#f9a8d4", "#94a3b8"]
DASHES = ["", "1 3", "7 3", "2 3", "9 3 2 3", "5 2", "3 2", "12 4"]

Scale = Callable[[float], float]


def log(value: float) -> float:
    return math.log10(max(value, 1e-12))


def percentile(part: float) -> float:
    """Return where a part of all stands: 0, 0.9 and 0.99 are as far apart."""
    return -math.log10(max(1 - part, 1e-6))


def short(value: float) -> str:
    """Return a number in few signs.

    Example:
        >>> [short(20_000), short(0.05), short(3), short(2_000_000)]
        ['20k', '0.05', '3', '2M']
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


class Axes:
    """One pair of axes with its lines; `ticks` map what is written to where it stands."""

    def __init__(
        self,
        box: tuple[int, int, int, int],
        *,
        title: str,
        below: str,
        x: tuple[Scale, Mapping[str, float]],
        y: tuple[Scale, Mapping[str, float]],
    ) -> None:
        self.left, self.top, self.right, self.bottom = box
        (self._x, across), (self._y, up) = x, y
        self._ends = _ends(self._x, across), _ends(self._y, up)
        middle = (self.left + self.right) / 2
        self.lines = [f'<text class="t" x="{self.left}" y="{self.top - 10}">{escape(title)}</text>']
        for said, value in up.items():
            height = self.at(value, 1)
            self.lines.append(f'<path class="g" d="M{self.left} {height}H{self.right}"/>')
            self.lines.append(f'<text class="a e" x="{self.left - 6}" y="{height + 4:g}">{said}</text>')
        for said, value in across.items():
            self.lines.append(
                f'<text class="a m" x="{self.at(value, 0):g}" y="{self.bottom + 18}">{said}</text>'
            )
        self.lines.append(f'<text class="a m" x="{middle:g}" y="{self.bottom + 36}">{escape(below)}</text>')

    def at(self, value: float, axis: int) -> float:
        """Return where a value stands, to the right or upwards."""
        low, high = self._ends[axis]
        part = ((self._y if axis else self._x)(value) - low) / (high - low)
        if axis:
            return round(self.bottom - (self.bottom - self.top) * part, 1)
        return round(self.left + (self.right - self.left) * part, 1)

    def draw(self, number: int, points: Sequence[tuple[float, float]], *, dots: bool = True) -> None:
        """Draw a line through the points, in the colour of that number."""
        spots = [(f"{self.at(x, 0):g}", f"{self.at(y, 1):g}") for x, y in points]
        path = "L".join(" ".join(spot) for spot in spots)
        self.lines.append(f'<path class="l w{number}" d="M{path}"/>')
        if dots:
            self.lines.extend(f'<circle class="d{number}" cx="{x}" cy="{y}" r="3"/>' for x, y in spots)


def _ends(scale: Scale, ticks: Mapping[str, float]) -> tuple[float, float]:
    places = [scale(value) for value in ticks.values()]
    return min(places), max(places)


def decades(values: Sequence[float]) -> dict[str, float]:
    """Return powers of ten that all values are between, at least two of them."""
    low, high = math.floor(log(min(values))), math.ceil(log(max(values)))
    return {short(float(f"1e{power}")): 10.0**power for power in range(low, max(high, low + 1) + 1)}


def legend(names: Mapping[str, int], top: int, left: int = 48) -> tuple[list[str], int]:
    """Return the lines of a legend that wraps, and where it ends."""
    lines, x, y = [], left, top
    for name, number in names.items():
        width = 50 + round(len(name) * 6.6)
        if x + width > WIDTH and x > left:
            x, y = left, y + 20
        lines.append(f'<path class="l w{number}" d="M{x} {y}H{x + 28}"/>')
        lines.append(f'<text class="k" x="{x + 34}" y="{y + 4}">{escape(name)}</text>')
        x += width
    return lines, y + 20


def document(title: str, height: int, lines: Sequence[str]) -> str:
    """Return the picture as SVG."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{_style()}</style>",
            f'<rect class="p" width="{WIDTH}" height="{height}" rx="8"/>',
            *lines,
            "</svg>\n",
        ]
    )


def _style() -> str:
    plain = "text{font:12px system-ui,sans-serif}.t{font-weight:600}.e{text-anchor:end}.m{text-anchor:middle}"
    shapes = ".l{fill:none;stroke-width:2}.g{fill:none;stroke-width:1}"
    dashes = "".join(f".l.w{n}{{stroke-dasharray:{dash}}}" for n, dash in enumerate(DASHES) if dash)
    light = colours("#ffffff", "#1f2937", "#4b5563", "#e5e7eb", LIGHT)
    dark = colours("#0d1117", "#e6edf3", "#aab4c0", "#2b333d", DARK)
    return f"{plain}{shapes}{dashes}{light}@media (prefers-color-scheme:dark){{{dark}}}"


def colours(paper: str, ink: str, faint: str, grid: str, ways: Sequence[str]) -> str:
    """Return the style of paper, text and lines."""
    lines = "".join(f".w{n}{{stroke:{colour}}}.d{n}{{fill:{colour}}}" for n, colour in enumerate(ways))
    return f".p{{fill:{paper}}}.t,.k{{fill:{ink}}}.a{{fill:{faint}}}.g{{stroke:{grid}}}{lines}"
