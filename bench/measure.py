"""How a figure is taken: contestants take turns, round after round, and ratios are reported.

A timing on a shared machine is noise; a ratio of two timings taken in the same second is much
less so. Each round lets every contestant run once, in a new order each time; the figure is the
median of the rounds, and its spread is the distance between the quartiles.

Not promised: that absolute numbers mean anything on another machine.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

__all__ = ["Contestant", "Figure", "Result", "Suite", "interleave"]

Run = Callable[[int], float]
"""Do the thing so many times; return the seconds that took."""


@dataclass(frozen=True)
class Contestant:
    """Something to measure: `prepare` yields its run, and cleans up after the last round."""

    name: str
    prepare: Callable[[], AbstractContextManager[Run]]
    role: str = "peer"
    """`limit`: what cannot be beaten; `holdfast`; or `peer`."""


@dataclass(frozen=True)
class Figure:
    """What one contestant showed: seconds for one operation, round by round."""

    name: str
    role: str
    rounds: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def spread(self) -> float:
        first, _, third = statistics.quantiles(self.rounds, n=4)
        return third - first


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

    def limit(self) -> Figure | None:
        return next((figure for figure in self.figures if figure.role == "limit"), None)


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
