"""The picture and the sentences of `docs/howto/update-without-a-lock.md`, from what was measured.

    python -m bench.crossover            write both anew from docs/pictures/optimistic-or-lock.json
    python -m bench.crossover --take     first take what `python -m bench optimistic` has measured here
    python -m bench.crossover --check    change nothing; exit 1 if one of them is stale

No number in either is typed by hand. The picture is drawn line by line: the same figures give the same file,
it is small, and it has its own colours for a dark page.

Two ways *cross* at the first number of writers from which the one is ahead of the other for good. Rates that
were taken one after the other in the same round are compared: on a busy machine their ratio says more than
either. Where the quartiles of the ratio are on both sides of 1, the two are said to be level.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.drawing import colours
from bench.pages import renew, with_part

__all__ = ["MEASURED", "OPTIMISTIC", "REDIS", "ROW", "SAME", "page_with", "picture", "sentences"]

ROOT = Path(__file__).resolve().parents[1]
MEASURED = ROOT / "bench" / "results" / "crossover.json"
KEPT = ROOT / "docs" / "pictures" / "optimistic-or-lock.json"
PICTURE = ROOT / "docs" / "pictures" / "optimistic-or-lock.svg"
PAGE = ROOT / "docs" / "howto" / "update-without-a-lock.md"

OPTIMISTIC = "optimistic"
REDIS = "lock on Redis"
SAME = "lock on PostgreSQL"
ROW = "SELECT … FOR UPDATE"


class Way(NamedTuple):
    """How one way of doing it is drawn and spoken of."""

    light: str
    dark: str
    dash: str
    said: str


WAYS = {
    OPTIMISTIC: Way("#00796b", "#4fd1b8", "", "optimistic updates"),
    REDIS: Way("#c2410c", "#fb923c", "", "fencelock's lock on Redis"),
    SAME: Way("#7c3aed", "#c4a7ff", "7 3", "fencelock's lock on the same PostgreSQL"),
    ROW: Way("#8a6d00", "#facc15", "2 3", "`SELECT … FOR UPDATE`"),
}


Rounds = Sequence[Sequence[float]]
"""For each number of writers, what was seen in each round."""


class Points(NamedTuple):
    """What one way showed at each number of writers: the median, and the quartiles."""

    middle: list[float]
    low: list[float]
    high: list[float]


def points(rounds: Rounds) -> Points:
    """Return the median and the quartiles of each list of rounds."""
    quartiles = [statistics.quantiles(each, n=4) for each in rounds]
    return Points(
        [statistics.median(each) for each in rounds], [q[0] for q in quartiles], [q[2] for q in quartiles]
    )


# The sentences --------------------------------------------------------------------------------


def crossing(writers: Sequence[int], ours: Rounds, theirs: Rounds) -> str:
    """Say where the other way is slower or faster than ours, and where they cross."""
    signs = [_sign(*pair) for pair in zip(ours, theirs, strict=True)]
    runs: list[tuple[int, list[int]]] = []
    for sign, count in zip(signs, writers, strict=True):
        if not runs or runs[-1][0] != sign:
            runs.append((sign, []))
        runs[-1][1].append(count)
    said = ", ".join(f"{WORDS[sign]} with {_span(counts)}" for sign, counts in runs)
    ahead = next((n for n in range(len(signs)) if all(sign == 1 for sign in signs[n:])), None)
    if ahead is None:
        return f"is {said}: it is not ahead for good up to {writers[-1]} writers"
    if ahead == 0:
        return f"is {said}: it is ahead all the way"
    if -1 not in signs:
        return f"is {said}: it is never behind, and ahead for good from {writers[ahead]} writers on"
    return f"is {said}: they cross between {writers[ahead - 1]} and {writers[ahead]} writers"


WORDS = {-1: "slower", 0: "level", 1: "faster"}


def _span(counts: Sequence[int]) -> str:
    return f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _sign(ours: Sequence[float], theirs: Sequence[float]) -> int:
    """Return 1 if theirs is ahead, -1 if it is behind, and 0 if the rounds do not agree."""
    low, _, high = statistics.quantiles(_ratios(ours, theirs), n=4)
    return 1 if low > 1 else -1 if high < 1 else 0


def _ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    return [theirs / max(ours, 1e-9) for ours, theirs in zip(ours, theirs, strict=True)]


def sentences(data: Mapping[str, Any]) -> str:
    """Return what the page says of the measurement, with its picture."""
    writers, machine = data["writers"], data["machine"]
    rates = {way: points(data["ways"][way]["rates"]) for way in WAYS}
    tries = points(data["ways"][OPTIMISTIC]["tries"]).middle
    rounds = len(data["ways"][OPTIMISTIC]["rates"][0])
    few, many = writers[0], writers[-1]
    lines = [
        f"![Updates a second and tries for each update, over 1 to {many} writers on one row]"
        f"(../pictures/{PICTURE.name})",
        "",
        f"Writers on one row, each a process that reads, thinks for {data['think'] * 1000:g} ms and writes, "
        f"on a machine with {machine['processors']} processors that was busy with other things too (load "
        f"{machine['load']:g} before it began); PostgreSQL {machine['postgresql']}, "
        f"Redis {machine['redis']}. Medians of {rounds} rounds that took turns, with their quartiles as "
        "bars. Beside optimistic updates,",
        "",
        *(f"- {WAYS[way].said} {_compared(data, way)};" for way in (REDIS, SAME, ROW)),
        f"- one update takes {tries[0]:.1f} tries with {few} writer, {tries[len(tries) // 2]:.1f} with "
        f"{writers[len(tries) // 2]} and {tries[-1]:.1f} with {many}: what is above one is work for nothing.",
        "",
        f"| writers | {' | '.join(WAYS)} | tries |",
        f"|---|{'---|' * len(WAYS)}---|",
        *(
            f"| {count} | {' | '.join(f'{rates[way].middle[n]:.0f}/s' for way in WAYS)} | {tries[n]:.1f} |"
            for n, count in enumerate(writers)
        ),
    ]
    return "\n".join(lines)


def _compared(data: Mapping[str, Any], way: str) -> str:
    ours, theirs = data["ways"][OPTIMISTIC]["rates"], data["ways"][way]["rates"]
    first, last = (statistics.median(_ratios(ours[n], theirs[n])) for n in (0, -1))
    writers = data["writers"]
    said = crossing(writers, ours, theirs)
    return f"{said} ({first:.2f} times as fast with {writers[0]}, {last:.2f} times with {writers[-1]})"


def page_with(text: str, said: str) -> str:
    """Return a page with its measured part anew."""
    return with_part(text, "bench/crossover.py", said)


# The picture ----------------------------------------------------------------------------------

WIDTH, HEIGHT = 760, 368
TOP, BOTTOM = 64, 318


class Panel:
    """One pair of axes: writers to the right, something upwards from 0."""

    def __init__(self, left: int, right: int, writers: Sequence[int], most: float, title: str) -> None:
        self.step = _step(most)
        self.most = self.step * -(-most // self.step)
        gap = (right - left - 24) / (len(writers) - 1)
        self.x = [left + 12 + gap * n for n in range(len(writers))]
        self.lines = [f'<text class="t" x="{left}" y="{TOP - 16}">{title}</text>']
        value = 0.0
        while value <= self.most:
            y = self.y(value)
            self.lines.append(f'<path class="g" d="M{left} {y}H{right}"/>')
            self.lines.append(f'<text class="a e" x="{left - 6}" y="{y + 4:g}">{value:g}</text>')
            value += self.step
        for x, count in zip(self.x, writers, strict=True):
            self.lines.append(f'<text class="a m" x="{x:.1f}" y="{BOTTOM + 18}">{count}</text>')
        middle = (left + right) // 2
        self.lines.append(f'<text class="a m" x="{middle}" y="{BOTTOM + 36}">writers on one row</text>')

    def y(self, value: float) -> float:
        return round(BOTTOM - (BOTTOM - TOP) * value / self.most, 1)

    def draw(self, number: int, seen: Points, *, aside: float = 0.0) -> None:
        """Draw a line through the medians, and beside it a bar from quartile to quartile for each."""
        spots = [(f"{x:.1f}", f"{self.y(value)}") for x, value in zip(self.x, seen.middle, strict=True)]
        bars = "".join(
            f"M{x + aside:.1f} {self.y(low)}V{self.y(high)}"
            for x, low, high in zip(self.x, seen.low, seen.high, strict=True)
        )
        path = "L".join(" ".join(spot) for spot in spots)
        self.lines.append(f'<path class="b w{number}" d="{bars}"/>')
        self.lines.append(f'<path class="l w{number}" d="M{path}"/>')
        self.lines.extend(f'<circle class="d{number}" cx="{x}" cy="{y}" r="3"/>' for x, y in spots)


def _step(most: float) -> float:
    """Return a round distance between lines, so that there are four to eight."""
    size = 1.0
    while most / size > 8:
        size = size * 2 if str(size)[0] in "15" else size * 2.5
    return size


def picture(data: Mapping[str, Any]) -> str:
    """Return the picture, as SVG."""
    writers = data["writers"]
    rates = {way: points(data["ways"][way]["rates"]) for way in WAYS}
    tries = points(data["ways"][OPTIMISTIC]["tries"])
    left = Panel(48, 440, writers, max(max(each.high) for each in rates.values()), "updates a second")
    right = Panel(500, 744, writers, max(tries.high), "tries for each update, optimistic")
    for number, seen in enumerate(rates.values()):
        left.draw(number, seen, aside=5 * (number - (len(rates) - 1) / 2))
    right.draw(0, tries)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
            "<title>Optimistic updates and locks, as contention rises</title>",
            f"<style>{_style()}</style>",
            f'<rect class="p" width="{WIDTH}" height="{HEIGHT}" rx="8"/>',
            *_legend(),
            *left.lines,
            *right.lines,
            "</svg>\n",
        ]
    )


def _legend() -> list[str]:
    lines, x = [], 48
    for number, way in enumerate(WAYS):
        lines.append(f'<path class="l w{number}" d="M{x} 20H{x + 28}"/>')
        lines.append(f'<circle class="d{number}" cx="{x + 14}" cy="20" r="3"/>')
        lines.append(f'<text class="k" x="{x + 34}" y="24">{way}</text>')
        x += 62 + round(len(way) * 6.9)
    return lines


def _style() -> str:
    plain = "text{font:12px system-ui,sans-serif}.t{font-weight:600}.e{text-anchor:end}.m{text-anchor:middle}"
    shapes = (
        ".l{fill:none;stroke-width:2}.b{fill:none;stroke-width:5;opacity:.35}.g{fill:none;stroke-width:1}"
    )
    dashes = "".join(
        f".l.w{number}{{stroke-dasharray:{way.dash}}}" for number, way in enumerate(WAYS.values()) if way.dash
    )
    light = colours("#ffffff", "#1f2937", "#4b5563", "#e5e7eb", [way.light for way in WAYS.values()])
    dark = colours("#0d1117", "#e6edf3", "#aab4c0", "#2b333d", [way.dark for way in WAYS.values()])
    return f"{plain}{shapes}{dashes}{light}@media (prefers-color-scheme:dark){{{dark}}}"


def main(arguments: Sequence[str]) -> int:
    if "--take" in arguments:
        KEPT.parent.mkdir(exist_ok=True)
        KEPT.write_text(MEASURED.read_text(encoding="utf-8"), encoding="utf-8")
    data = json.loads(KEPT.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    wanted = {PICTURE: picture(data), PAGE: page_with(page, sentences(data))}
    return renew(wanted, "python -m bench.crossover", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
