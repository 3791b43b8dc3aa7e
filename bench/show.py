"""A result as a table in the terminal: medians, spreads, and ratios to the limit and to the best peer."""

from __future__ import annotations

import statistics

from rich.table import Table

from bench.measure import Figure, Result

__all__ = ["amount", "headings", "percentiles", "spread", "table"]

STYLES = {"fencelock": "bold green", "limit": "cyan", "beside": "dim"}


def table(result: Result) -> Table:
    """Return the table, the best first, and below it what was wanted."""
    notes = "\n".join(result.said())
    shown = Table(title=result.title, caption=notes, title_justify="left", caption_justify="left")
    shown.add_column("")
    beside = [pair for pair in zip(headings(result), others(result), strict=True) if pair[1] is not None]
    for heading in ("median", "spread", *(heading for heading, _ in beside)):
        shown.add_column(heading, justify="right")
    for figure in sorted(result.figures, key=lambda figure: figure.median):
        ratios = [times(result.ratio(figure, other)) for _, other in beside]
        cells = [figure.name, amount(figure.median, result.unit, result.rate), spread(figure), *ratios]
        shown.add_row(*cells, style=STYLES.get(figure.role, ""))
    return shown


def others(result: Result) -> tuple[Figure | None, Figure | None]:
    """Return what a figure is compared with, if it is there."""
    return result.limit(), result.best_peer()


def headings(result: Result) -> tuple[str, str]:
    """Return what the two ratios are, and which way is better."""
    better = "more" if result.rate else "less"
    return f"to limit\n({better} is better)", f"to best peer\n({better} is better)"


def times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def amount(value: float, unit: str, rate: bool) -> str:
    """Return a figure with its unit; of seconds, how many in one if it is a rate."""
    if unit == "instructions":
        return f"{value:,.0f}"
    if unit == "B":
        return f"{value / 2**20:,.1f} MiB"
    if rate:
        return f"{1 / value:,.0f} /s"
    return f"{value * 1e6:,.1f} µs" if value < 0.01 else f"{value * 1e3:,.1f} ms"


def spread(figure: Figure) -> str:
    """Return half the distance of the quartiles, as a part of the median."""
    return f"±{figure.spread / figure.median / 2:.0%}" if figure.median else ""


def percentiles(figure: Figure) -> str:
    """Say how single times are distributed."""
    parts = statistics.quantiles(figure.rounds, n=100, method="inclusive")
    shown = ", ".join(f"p{place} {parts[place - 1] * 1e3:.3f} ms" for place in (50, 95, 99))
    return f"{figure.name}: {shown}, longest {max(figure.rounds) * 1e3:.2f} ms"
