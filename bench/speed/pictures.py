"""The plots of the page on speed: latencies, handoffs against contenders, costs against leases.

fencelock is the first colour and the limit the second, dotted; the others follow in the order in which they
come. A picture of which nothing was measured is not drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from bench.drawing import WIDTH, Axes, decades, document, legend, log, percentile
from bench.races import SIZES
from bench.speed.kept import PLACES

__all__ = ["PICTURES", "Picture", "drawn", "shown"]

Data = Mapping[str, Any]
MOST = 8
"""Lines that can be told apart."""
PARTS = {"0": 0.0, "50%": 0.5, "90%": 0.9, "99%": 0.99, "99.9%": 0.999}
MEMORY = 2**20


class Picture(NamedTuple):
    """A file, what it shows, below which heading, and how it is drawn."""

    file: str
    alt: str
    section: str
    draw: Callable[[Data], str | None]


def results(data: Data, *names: str) -> list[Data]:
    return [result for name in names for result in data["suites"].get(name, {"results": []})["results"]]


def series(data: Data, name: str) -> list[Data]:
    """Return the results of a series, wherever they were measured."""
    everything = results(data, *data["suites"])
    return [one for one in everything if one["series"] and one["series"]["name"] == name]


def numbered(figures: Sequence[Data]) -> dict[str, int]:
    """Return a colour for each name."""
    found: dict[str, int] = {}
    for one in figures:
        taken = max([*found.values(), 1]) + 1
        found.setdefault(one["name"], {"fencelock": 0, "limit": 1}.get(one["role"], taken))
    return {name: number for name, number in sorted(found.items(), key=lambda item: item[1]) if number < MOST}


def boxes(columns: int, top: int, height: int) -> list[tuple[int, int, int, int]]:
    """Return the boxes of a row of panels."""
    each = (WIDTH - 16) // columns
    return [(8 + each * n + 48, top, 8 + each * (n + 1) - 24, top + height) for n in range(columns)]


# Latencies ------------------------------------------------------------------------------------


def latencies(data: Data) -> str | None:
    """How long single pairs take: to the right the part of them that took at most so long."""
    found = results(data, "redis-latency")
    if not found:
        return None
    figures = [one for result in found for one in result["figures"]]
    names = numbered(figures)
    heights = decades([value * 1e3 for one in figures for value in one["points"]])
    lines, top = legend(names, 20)
    for result, box in zip(found, boxes(len(found), top + 30, 220), strict=True):
        axes = Axes(
            box,
            title=f"{result['title'].rpartition(', ')[2]}, ms",
            below="part of the pairs that took at most so long",
            x=(percentile, PARTS),
            y=(log, heights),
        )
        for one in result["figures"]:
            if one["name"] in names:
                points = [(place, value * 1e3) for place, value in zip(PLACES, one["points"], strict=True)]
                axes.draw(names[one["name"]], points, dots=False)
        lines += axes.lines
    return document("Latencies of single pairs on Redis", top + 310, lines)


# Handoffs against contenders -------------------------------------------------------------------


def contenders(place: str, kinds: Sequence[str]) -> Callable[[Data], str | None]:
    """Handoffs in a second among more and more processes, threads, tasks."""

    def draw(data: Data) -> str | None:
        groups = {kind: series(data, f"handoffs on {place} among {kind}") for kind in kinds}
        groups = {kind: group for kind, group in groups.items() if group}
        if not groups:
            return None
        figures = [one for group in groups.values() for result in group for one in result["figures"]]
        names, up = numbered(figures), decades([1 / one["median"] for one in figures if one["median"] < 1])
        lines, top = legend(names, 20)
        for (kind, group), box in zip(groups.items(), boxes(len(groups), top + 30, 200), strict=True):
            axes = _against(box, "handoffs a second", kind, SIZES, up)
            for name, number in names.items():
                points = [
                    (result["series"]["x"], max(1 / one["median"], min(up.values())))
                    for result in group
                    for one in result["figures"]
                    if one["name"] == name
                ]
                if points:
                    axes.draw(number, points)
            lines += axes.lines
        return document(f"Handoffs on {place} against contenders", top + 290, lines)

    return draw


def _against(
    box: tuple[int, int, int, int], title: str, axis: str, sizes: Sequence[int], up: Mapping[str, float]
) -> Axes:
    across = {f"{size:,}": float(size) for size in sizes}
    return Axes(box, title=title, below=axis, x=(log, across), y=(log, up))


BACKENDS = ("redis", "sqlite", "postgresql", "mysql", "zookeeper", "etcd", "consul")


def backends(data: Data) -> str | None:
    """Handoffs of fencelock among processes, on each backend."""
    found: dict[str, list[tuple[float, float]]] = {}
    for place in BACKENDS:
        for result in series(data, f"handoffs on {place}:// among processes"):
            ours = next(one for one in result["figures"] if one["role"] == "fencelock")
            found.setdefault(f"{place}://", []).append((result["series"]["x"], 1 / ours["median"]))
    if not found:
        return None
    # The dotted colour is the limit's, which is not here.
    names = {name: number for number, name in zip((0, *range(2, MOST)), found, strict=False)}
    lines, top = legend(names, 20)
    up = decades([rate for points in found.values() for _, rate in points])
    axes = _against(
        (56, top + 30, WIDTH - 20, top + 250), "fencelock: handoffs a second", "processes", SIZES, up
    )
    for name, number in names.items():
        axes.draw(number, found[name])
    return document("Handoffs among processes on each backend", top + 300, [*lines, *axes.lines])


# Leases ---------------------------------------------------------------------------------------


def leases(data: Data) -> str | None:
    """What a sweep takes, and what memory, against the number of leases that one client holds."""
    sweeps: dict[str, list[tuple[float, float]]] = {}
    memory: dict[str, list[tuple[float, float]]] = {}
    for place in ("redis", "sqlite", "memory"):
        for result in series(data, f"leases on {place}://"):
            for one in sorted(result["figures"], key=lambda one: str(one["role"])):  # fencelock first
                name = f"{one['role']} on {place}://"
                x = float(result["series"]["x"])
                if one["role"] in {"fencelock", "limit"}:
                    sweeps.setdefault(name, []).append((x, one["median"] * 1e3))
                if one["role"] == "fencelock" and one["rss"] > 0:
                    memory.setdefault(name, []).append((x, one["rss"] / MEMORY))
    if not sweeps:
        return None
    names = {name: number for number, name in enumerate(sweeps)}
    lines, top = legend(names, 20)
    sizes = sorted({int(x) for points in sweeps.values() for x, _ in points})
    for (title, found), box in zip(
        (("a sweep of renewals, ms", sweeps), ("memory that they add, MiB", memory)),
        boxes(2, top + 30, 220),
        strict=True,
    ):
        up = decades([y for points in found.values() for _, y in points] or [1.0])
        axes = _against(box, title, "leases held by one client", sizes, up)
        for name, points in found.items():
            axes.draw(names[name], points)
        lines += axes.lines
    return document("The cost of leases against their number", top + 310, lines)


PICTURES = (
    Picture(
        "speed-latency.svg",
        "Latencies of single pairs on Redis, up to one in a thousand",
        "Redis: the uncontended pair",
        latencies,
    ),
    Picture(
        "speed-contenders-redis.svg",
        "Handoffs a second on Redis among 2, 8 and 32 processes, threads and tasks",
        "Redis: one lock, many contenders",
        contenders("redis://", ("processes", "threads", "tasks")),
    ),
    Picture(
        "speed-contenders-sqlite.svg",
        "Handoffs a second on SQLite among 2, 8 and 32 processes, threads and tasks",
        "SQLite and memory",
        contenders("sqlite://", ("processes", "threads", "tasks")),
    ),
    Picture(
        "speed-contenders.svg",
        "Handoffs a second of fencelock among 2, 8 and 32 processes, on each backend",
        "etcd, ZooKeeper, Consul",
        backends,
    ),
    Picture(
        "speed-leases.svg",
        "Time of a sweep, and memory, against the number of leases that one client holds",
        "Held leases",
        leases,
    ),
)


def drawn(data: Data) -> dict[str, str]:
    """Return all pictures that there are figures for, by their files."""
    found = {picture.file: picture.draw(data) for picture in PICTURES}
    return {file: text for file, text in found.items() if text is not None}


def shown(files: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the pictures as the page has them, by the heading of their section."""
    lines: dict[str, list[str]] = {}
    for picture in PICTURES:
        if picture.file in files:
            lines.setdefault(picture.section, []).append(f"![{picture.alt}](../pictures/{picture.file})")
    return lines
