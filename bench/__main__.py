"""`python -m bench [SUITE…]`: measure, show tables, write JSON and plots to bench/results/.

`consensus` is short for several suites, which have that tag.
"""

from __future__ import annotations

import itertools
import json
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.measure import Figure, Result
from bench.suites import SUITES

RESULTS = Path(__file__).parent / "results"
COLOURS = {"holdfast": "#2a9d8f", "limit": "#264653"}


def main(arguments: Sequence[str]) -> int:
    tags = {tag: None for suite in SUITES.values() for tag in sorted(suite.tags)}
    unknown = [name for name in arguments if name not in SUITES and name not in tags]
    if unknown:
        known = ", ".join([*SUITES, *tags])
        print(f"bench: no suite {', '.join(unknown)}: known are {known}", file=sys.stderr)
        return 64
    console = Console()
    for name in [suite for wanted in arguments for suite in meant(wanted)] or SUITES:
        with console.status(SUITES[name].about) as status:
            results = SUITES[name].run(lambda text, name=name: status.update(f"{name}: {text}"))  # type: ignore[misc]
        for result in results:
            console.print(table(result))
        save(name, results)
    console.print(f"JSON and plots are in {RESULTS}")
    return 0


def meant(wanted: str) -> list[str]:
    """Return the suite of that name, or else all that have it as a tag."""
    return [wanted] if wanted in SUITES else [name for name, suite in SUITES.items() if wanted in suite.tags]


def table(result: Result) -> Table:
    notes = "\n".join(result.notes)
    shown = Table(title=result.title, caption=notes, title_justify="left", caption_justify="left")
    shown.add_column("")
    for heading in ("median", "spread", "ratio to limit"):
        shown.add_column(heading, justify="right")
    limit = result.limit()
    for figure in sorted(result.figures, key=lambda figure: figure.median):
        ratio = f"{figure.median / limit.median:.2f}" if limit is not None else ""
        style = {"holdfast": "bold green", "limit": "cyan"}.get(figure.role, "")
        shown.add_row(figure.name, amount(figure.median, result), spread(figure), ratio, style=style)
    return shown


def amount(seconds: float, result: Result) -> str:
    if result.rate:
        return f"{1 / seconds:,.0f} /s"
    return f"{seconds * 1e6:,.1f} µs" if seconds < 0.01 else f"{seconds * 1e3:,.1f} ms"


def spread(figure: Figure) -> str:
    return f"±{figure.spread / figure.median / 2:.0%}"


def save(name: str, results: Sequence[Result]) -> None:
    RESULTS.mkdir(exist_ok=True)
    data = {
        "suite": name,
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "results": [
            {
                "title": result.title,
                "notes": list(result.notes),
                "figures": [
                    {"name": one.name, "role": one.role, "median": one.median, "rounds": list(one.rounds)}
                    for one in result.figures
                ],
            }
            for result in results
        ],
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(data, indent=1))
    plot(name, results)


def plot(name: str, results: Sequence[Result]) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    heights = [3.6 if result.distribution else 2.2 for result in results]
    figure, axes = pyplot.subplots(
        len(results), 1, figsize=(8, 1 + sum(heights)), squeeze=False, height_ratios=heights
    )
    for result, axis in zip(results, axes[:, 0], strict=True):
        if result.distribution:
            curves(axis, result)
        else:
            bars(axis, result)
        axis.set_title(result.title, loc="left", fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    figure.tight_layout()
    figure.savefig(RESULTS / f"{name}.png", dpi=120)
    pyplot.close(figure)


def bars(axis: Any, result: Result) -> None:
    shown = sorted(result.figures, key=lambda one: -one.median)
    sizes = [1 / one.median if result.rate else one.median * 1e6 for one in shown]
    axis.barh([one.name for one in shown], sizes, color=[COLOURS.get(one.role, "#c9c9c9") for one in shown])
    for row, (one, size) in enumerate(zip(shown, sizes, strict=True)):
        axis.text(size, row, f" {amount(one.median, result)}", va="center", fontsize=8)
    axis.set_xlabel("a second (more is better)" if result.rate else "µs (less is better)", fontsize=8)
    axis.margins(x=0.18)


def curves(axis: Any, result: Result) -> None:
    """Which part of them took at most so long."""
    dashes = {role: itertools.cycle(["-", "--", ":", "-."]) for role in ("holdfast", "limit", "peer")}
    for one in sorted(result.figures, key=lambda one: one.median):
        taken = sorted(seconds * 1e3 for seconds in one.rounds)
        parts = [number / len(taken) for number in range(len(taken) + 1)]
        colour, dash = COLOURS.get(one.role, "#9a9a9a"), next(dashes[one.role])
        axis.step([taken[0], *taken], parts, where="post", label=one.name, color=colour, linestyle=dash)
    axis.set_xscale("log")
    axis.set_ylim(0, 1)
    axis.set_xlabel("ms (less is better)", fontsize=8)
    axis.set_ylabel("part of them", fontsize=8)
    axis.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
