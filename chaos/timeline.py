"""A picture of a run: clients as lanes, holds in the colour of their name, faults shaded, losses marked.

Shown is a window of a few seconds: where the first violation was, or else where the first faults were. It is
SVG without anything from outside. All holds of one colour are one path, and where there are many the window
is smaller, so a picture stays small.
"""

from __future__ import annotations

import html
from collections import defaultdict
from collections.abc import Iterable, Sequence

from chaos.stage import Mark
from fencelock.testing import History, Hold, definite_holds

__all__ = ["picture"]

WIDTH, LEFT, ROW, LINE = 1100.0, 60.0, 34.0, 4.0
SECONDS = 6.0
MOST = 800
"""Holds in one picture."""
COLOURS = ("#4878d0", "#ee854a", "#6acc64", "#956cb4", "#8c613c", "#dc7ec0", "#797979", "#82c6e2")
SHADE = "fill:#d65f5f;opacity:.16"
LOSS = "stroke:#c00;stroke-width:2"
BAD = "fill:none;stroke:#c00;stroke-width:1.5"
AXIS = "font:11px sans-serif;fill:#777"


class Canvas:
    """Turns times and lanes into coordinates."""

    def __init__(self, begin: float, end: float, places: Sequence[str]) -> None:
        self.begin, self.end, self.places = begin, end, list(places)
        self.height = ROW * len(places) + 26

    def x(self, at: float) -> float:
        at = min(max(at, self.begin), self.end)
        return round(LEFT + (WIDTH - LEFT) * (at - self.begin) / (self.end - self.begin), 1)

    def y(self, client: str) -> float:
        return ROW * self.places.index(place(client)) + 6


def place(client: str) -> str:
    """The player that a client is, whichever of its processes."""
    return client.partition(".")[0]


def picture(history: History, marks: Sequence[Mark], title: str, around: float | None = None) -> str:
    """Return the picture as SVG."""
    holds = definite_holds(history)
    first = min((mark.start for mark in marks), default=holds[0].start.at if holds else 0.0)
    begin = (first if around is None else around - SECONDS / 2) - 0.2
    shown = [hold for hold in holds if hold.end.at > begin and hold.start.at < begin + SECONDS]
    shown.sort(key=lambda hold: hold.start)
    seconds = SECONDS if len(shown) <= MOST else max(1.0, shown[MOST].start.at - begin)
    shown = shown[:MOST]
    clients = {place(hold.operation.client) for hold in shown}
    canvas = Canvas(begin, begin + seconds, sorted(clients, key=lambda word: (len(word), word)))
    parts = [*_shades(canvas, marks), *_axis(canvas), *_holds(canvas, shown), *_losses(canvas, history)]
    if around is not None:
        x = canvas.x(around)
        parts.append(f'<path d="M{x} 0V{canvas.height - 20}" style="{BAD}"/>')
    size = f'viewBox="0 0 {WIDTH:g} {canvas.height:g}" width="100%"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"><title>{html.escape(title)}</title>'
    return "".join([head, *parts, "</svg>"])


def _shades(canvas: Canvas, marks: Iterable[Mark]) -> Iterable[str]:
    for mark in marks:
        if mark.end < canvas.begin or mark.start > canvas.end:
            continue
        if mark.client and place(mark.client) not in canvas.places:
            continue
        y, tall = (canvas.y(mark.client) - 4, ROW - 4) if mark.client else (0.0, canvas.height - 20)
        x = canvas.x(mark.start)
        wide = max(1.0, round(canvas.x(mark.end) - x, 1))
        yield f'<rect x="{x}" y="{y:g}" width="{wide}" height="{tall:g}" style="{SHADE}"/>'


def _axis(canvas: Canvas) -> Iterable[str]:
    for client in canvas.places:
        yield f'<text x="4" y="{canvas.y(client) + 14:g}" style="{AXIS}">{html.escape(client)}</text>'
    for second in range(int(canvas.end - canvas.begin) + 1):
        x = canvas.x(canvas.begin + second)
        yield f'<text x="{x}" y="{canvas.height - 6:g}" style="{AXIS}">{second} s</text>'


def _holds(canvas: Canvas, holds: Sequence[Hold]) -> Iterable[str]:
    paths: dict[str, list[str]] = defaultdict(list)
    ends: dict[str, list[float]] = defaultdict(list)
    for hold in holds:
        client = hold.operation.client
        lane = _lane(ends[place(client)], hold)
        y = canvas.y(client) + LINE * (lane % 6)
        x = canvas.x(hold.start.at)
        wide = max(0.8, round(canvas.x(hold.end.at) - x, 1))
        paths[_colour(hold.operation.name)].append(f"M{x} {y:g}h{wide}")
    for colour, steps in paths.items():
        yield f'<path d="{"".join(steps)}" stroke="{colour}" stroke-width="3"/>'


def _lane(ends: list[float], hold: Hold) -> int:
    """The first lane of this client that is free when the hold begins."""
    for number, end in enumerate(ends):
        if end <= hold.start.at:
            ends[number] = hold.end.at
            return number
    ends.append(hold.end.at)
    return len(ends) - 1


def _losses(canvas: Canvas, history: History) -> Iterable[str]:
    for event in history:
        inside = canvas.begin <= event.at <= canvas.end and place(event.client) in canvas.places
        if event.kind == "lost" and inside:
            x, y = canvas.x(event.at), canvas.y(event.client)
            yield f'<path d="M{x} {y - 4:g}v{ROW - 6:g}" style="{LOSS}"/>'


def _colour(name: str) -> str:
    return COLOURS[sum(name.encode()) % len(COLOURS)]
