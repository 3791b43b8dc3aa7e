"""How a figure is taken: contestants take turns, round after round, and ratios are reported.

A timing on a shared machine is noise; a ratio of two timings taken in the same second is much
less so. Each round lets every contestant run once, in a new order each time; the figure is the
median of the rounds, and its spread is the distance between the quartiles.

A result is told in a direction that is said: of times less is better, and a ratio is how many times as long
it takes; of rates more is better, and a ratio is how many times as many there are.

Not promised: that absolute numbers mean anything on another machine.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from bench import effort
from bench.verdict import Verdict

__all__ = [
    "Contestant",
    "Figure",
    "Result",
    "Run",
    "Series",
    "Suite",
    "best_peer",
    "interleave",
    "limit_of",
    "named",
    "timed",
]

Run = Callable[[int], float]
"""Do the thing so many times; return the seconds that took."""


@dataclass(frozen=True)
class Contestant:
    """Something to measure: `prepare` yields its run, and cleans up after the last round."""

    name: str
    prepare: Callable[[], AbstractContextManager[Run]]
    role: str = "peer"
    """`limit`: what cannot be beaten; `fencelock`; `peer`: what one would use instead; or `beside`: what
    helps to read the rest, such as a driver's own cost."""


@dataclass(frozen=True)
class Figure:
    """What one contestant showed: seconds for one operation (or another unit), round by round."""

    name: str
    role: str
    rounds: Sequence[float]
    extra: Mapping[str, float] = field(default_factory=dict)
    """What else was counted: `share` of the least served, bytes of memory that were added, `threads`."""

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def quartiles(self) -> tuple[float, float]:
        if len(self.rounds) < 2:
            return self.median, self.median
        first, _, third = statistics.quantiles(self.rounds, n=4)
        return first, third

    @property
    def spread(self) -> float:
        first, third = self.quartiles
        return third - first


def named(figures: Sequence[Figure], name: str) -> Figure | None:
    return next((figure for figure in figures if figure.name == name), None)


def limit_of(figures: Sequence[Figure]) -> Figure | None:
    """Return the first limit: there may be a second one, to compare with."""
    return next((figure for figure in figures if figure.role == "limit"), None)


def best_peer(figures: Sequence[Figure]) -> Figure | None:
    peers = [figure for figure in figures if figure.role == "peer"]
    return min(peers, key=lambda figure: figure.median, default=None)


@dataclass(frozen=True)
class Series:
    """Results that belong together: the same thing, for more and more of something."""

    name: str
    axis: str
    """Of what there are more and more: processes, leases."""
    x: int
    also: Sequence[str] = ()
    """What else is plotted against it, of what the figures have as `extra`."""


@dataclass(frozen=True)
class Result:
    """The figures of one suite, and what they ought to be."""

    title: str
    figures: Sequence[Figure]
    notes: Sequence[str] = ()
    rate: bool = False
    """Show operations in a second instead of time for one."""
    distribution: bool = False
    """A round is one operation: plot how they are distributed."""
    verdicts: Sequence[Verdict] = ()
    key: str = ""
    """By which the docs know it."""
    unit: str = "s"
    """Of the figures: `s`, `B` or `instructions`."""
    series: Series | None = None

    def limit(self) -> Figure | None:
        return limit_of(self.figures)

    def best_peer(self) -> Figure | None:
        return best_peer(self.figures)

    def ratio(self, figure: Figure, other: Figure | None) -> float | None:
        """Return the figure in times of the other, in the direction of the result."""
        if other is None:
            return None
        return other.median / figure.median if self.rate else figure.median / other.median

    def said(self) -> list[str]:
        """Return what stands below the table."""
        return [*map(str, self.verdicts), *self.notes]


@dataclass(frozen=True)
class Suite:
    """A named set of measurements."""

    name: str
    about: str
    run: Callable[[Callable[[str], None]], Sequence[Result]]
    tags: frozenset[str] = field(default_factory=frozenset)


def interleave(
    contestants: Sequence[Contestant],
    *,
    rounds: int,
    count: int,
    progress: Callable[[str], None],
) -> list[Figure]:
    """Run every contestant `rounds` times, `count` operations each, taking turns."""
    rounds, count = effort.rounds(rounds), effort.count(count)
    order = random.Random(1)
    taken: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    opened = [(contestant, contestant.prepare()) for contestant in contestants]
    runs: list[tuple[str, Run]] = []
    try:
        runs.extend((contestant.name, manager.__enter__()) for contestant, manager in opened)
        for _, run in runs:
            run(max(1, count // 10))  # warm up
        for number in range(rounds):
            for name, run in order.sample(runs, len(runs)):
                progress(f"round {number + 1} of {rounds}: {name}")
                gc.collect()
                taken[name].append(run(count) / count)
    finally:
        for _, manager in opened[: len(runs)]:
            manager.__exit__(None, None, None)
    return [Figure(contestant.name, contestant.role, taken[contestant.name]) for contestant in contestants]


def timed(function: Callable[[], object]) -> Run:
    """Return a run that calls `function` again and again."""

    def run(count: int) -> float:
        started = time.perf_counter()
        for _ in range(count):
            function()
        return time.perf_counter() - started

    return run
