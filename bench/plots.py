"""A suite's results as one picture in bench/results: bars, distributions, and lines for what grows.

Results of one series (the same thing for more and more contenders, or leases) are drawn as lines against that
number, all others on their own. The pictures of the docs are drawn by `bench.speed`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.measure import Figure, Result
from bench.show import amount

__all__ = ["panels", "plot"]

COLOURS = {"fencelock": "#2a9d8f", "limit": "#264653"}
UNITS = {"s": ("µs", 1e6), "B": ("MiB", 1 / 2**20), "instructions": ("instructions", 1.0)}
ALSO = {"rss": ("MiB of memory that they add", 1 / 2**20)}
HEIGHTS = {"bars": 2.2, "curves": 3.6, "lines": 3.6}

Panel = tuple[str, Callable[[Any], None]]


def panels(results: Sequence[Result]) -> list[Panel]:
    """Return what to draw, and how: those of a series together, in the place of the first."""
    found: list[Panel] = []
    seen: set[str] = set()
    for result in results:
        if result.distribution:
            found.append(("curves", lambda axis, result=result: curves(axis, result)))  # type: ignore[misc]
        elif result.series is None:
            found.append(("bars", lambda axis, result=result: bars(axis, result)))  # type: ignore[misc]
        elif result.series.name not in seen:
            name = result.series.name
            seen.add(name)
            group = [one for one in results if one.series is not None and one.series.name == name]
            found += [
                ("lines", lambda axis, group=group, also=also: lines(axis, group, also))  # type: ignore[misc]
                for also in ("", *result.series.also)
            ]
    return found


def plot(path: Path, results: Sequence[Result]) -> None:
    """Draw all results into one file."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    shown = panels(results)
    heights = [HEIGHTS[kind] for kind, _ in shown]
    figure, axes = pyplot.subplots(
        len(shown), 1, figsize=(8, 1 + sum(heights)), squeeze=False, height_ratios=heights
    )
    for (_, draw), axis in zip(shown, axes[:, 0], strict=True):
        draw(axis)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def bars(axis: Any, result: Result) -> None:
    shown = sorted(result.figures, key=lambda one: -one.median)
    unit, scale = UNITS[result.unit]
    sizes = [1 / one.median if result.rate else one.median * scale for one in shown]
    axis.barh([one.name for one in shown], sizes, color=[COLOURS.get(one.role, "#c9c9c9") for one in shown])
    for row, (one, size) in enumerate(zip(shown, sizes, strict=True)):
        axis.text(size, row, f" {amount(one.median, result.unit, result.rate)}", va="center", fontsize=8)
    axis.set_xlabel("a second (more is better)" if result.rate else f"{unit} (less is better)", fontsize=8)
    axis.margins(x=0.18)
    axis.set_title(result.title, loc="left", fontsize=10)


def curves(axis: Any, result: Result) -> None:
    """Which part of them took at most so long."""
    dashes = _dashes()
    for one in sorted(result.figures, key=lambda one: one.median):
        taken = sorted(seconds * 1e3 for seconds in one.rounds)
        parts = [number / len(taken) for number in range(len(taken) + 1)]
        style = _style(one, dashes)
        axis.step([taken[0], *taken], parts, where="post", label=one.name, **style)
    axis.set_xscale("log")
    axis.set_ylim(0, 1)
    axis.set_xlabel("ms (less is better)", fontsize=8)
    axis.set_ylabel("part of them", fontsize=8)
    axis.set_title(result.title, loc="left", fontsize=10)
    _legend(axis)


def lines(axis: Any, group: Sequence[Result], also: str) -> None:
    """Against the number that grows: what was measured, or what else was counted."""
    first, dashes = group[0], _dashes()
    assert first.series is not None
    names = list(dict.fromkeys(one.name for result in group for one in result.figures))
    for name in names:
        points = [
            (result.series.x, _height(result, one, also))
            for result in group
            for one in result.figures
            if result.series is not None and one.name == name and (not also or one.extra.get(also, 0) > 0)
        ]
        if points:
            one = next(one for result in group for one in result.figures if one.name == name)
            xs, ys = zip(*points, strict=True)
            axis.plot(xs, ys, marker="o", markersize=3, label=name, **_style(one, dashes))
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xticks([result.series.x for result in group if result.series is not None])
    axis.set_xticklabels([f"{result.series.x:,}" for result in group if result.series is not None])
    axis.minorticks_off()
    axis.set_xlabel(first.series.axis, fontsize=8)
    label, _ = ALSO.get(also, ("a second" if first.rate else UNITS[first.unit][0], 1.0))
    axis.set_ylabel(label, fontsize=8)
    axis.set_title(first.series.name, loc="left", fontsize=10)
    _legend(axis)


def _height(result: Result, figure: Figure, also: str) -> float:
    if also:
        return figure.extra[also] * ALSO[also][1]
    return 1 / figure.median if result.rate else figure.median * UNITS[result.unit][1]


def _dashes() -> dict[str, Any]:
    return {
        role: itertools.cycle(["-", "--", ":", "-."]) for role in ("fencelock", "limit", "peer", "beside")
    }


def _style(one: Figure, dashes: dict[str, Any]) -> dict[str, Any]:
    return {"color": COLOURS.get(one.role, "#9a9a9a"), "linestyle": next(dashes[one.role])}


def _legend(axis: Any) -> None:
    axis.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
