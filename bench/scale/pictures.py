"""The plots of the page on scale: simulated against measured, and what many clients meet.

Valkey is left out of the plots: it is where Redis is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.drawing import Axes, decades, document, legend, log
from bench.scale import figures
from bench.scale.places import NAMES

__all__ = ["drawn", "shown"]

Data = Mapping[str, Any]
LEFT_OUT = {"valkey"}


def colours() -> dict[str, int]:
    """Return a colour for each kind."""
    return {kind: number for number, kind in enumerate(kind for kind in NAMES if kind not in LEFT_OUT)}


def _legend() -> tuple[list[str], int]:
    return legend({NAMES[kind]: number for kind, number in colours().items()}, 20)


def check(data: Data) -> str:
    """Each rate that was not used for the simulation: to the right measured, upwards simulated."""
    lines, top = _legend()
    panels = (
        ("loads", "pairs a second", (56, 368)),
        ("hot", "acquisitions of one lock a second", (432, 744)),
    )
    for key, title, (left, right) in panels:
        seen = {
            one["kind"]: list(figures.points(one, data["simulated"]["backends"][one["kind"]], key))
            for one in data["backends"]
        }
        rates = [rate for points in seen.values() for point in points for rate in point[1:3]]
        ticks = decades(rates)
        axes = Axes(
            (left, top + 30, right, top + 250),
            title=f"{title}, simulated",
            below="measured",
            x=(log, ticks),
            y=(log, ticks),
        )
        ends = (min(ticks.values()), max(ticks.values()))
        start, stop = ((axes.at(end, 0), axes.at(end, 1)) for end in ends)
        axes.lines.append(f'<path class="g" d="M{start[0]:g} {start[1]:g}L{stop[0]:g} {stop[1]:g}"/>')
        for kind, number in colours().items():
            for point in seen[kind]:
                spot = axes.at(point.measured, 0), axes.at(point.simulated, 1)
                axes.lines.append(f'<circle class="d{number}" cx="{spot[0]:g}" cy="{spot[1]:g}" r="4"/>')
        lines += axes.lines
    return document("Rates, simulated against measured", top + 300, lines)


def far(data: Data) -> str:
    """More and more clients, each with a pair a second: how many pairs there are, and how long they take."""
    lines, top = _legend()
    backends = data["simulated"]["backends"]
    everything = [one for kind in colours() for one in backends[kind]["far"]]
    across = decades([one["clients"] for one in everything])
    panels = (("rate", "pairs a second", (56, 368), 1.0), ("p99", "p99 of a pair, ms", (432, 744), 1e3))
    for key, title, (left, right), times in panels:
        axes = Axes(
            (left, top + 30, right, top + 250),
            title=f"{title}, simulated",
            below="clients",
            x=(log, across),
            y=(log, decades([one[key] * times for one in everything])),
        )
        for kind, number in colours().items():
            axes.draw(number, [(one["clients"], one[key] * times) for one in backends[kind]["far"]])
        lines += axes.lines
    return document("Many clients in front of one server, simulated", top + 300, lines)


def drawn(data: Data) -> dict[str, str]:
    """Return all pictures by their files."""
    return {"scale-check.svg": check(data), "scale-far.svg": far(data)}


def shown() -> list[str]:
    """Return how the page shows them."""
    return [
        "![Rates of pairs and handoffs, simulated against measured](../pictures/scale-check.svg)",
        "![Pairs a second and their times with more and more clients, simulated](../pictures/scale-far.svg)",
    ]
