"""Races: one lock, an empty section, many contenders; how often it changes hands, and how fairly.

A *handoff* is an acquisition by another contender than the one before: whoever takes the lock back at once
has handed it to nobody. The share is the least-served contender's part of the best-served one's.
"""

from __future__ import annotations

import contextlib
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from bench import effort
from bench.children import Child, ChildFailed, Field
from bench.measure import Figure, Series
from bench.peers import Entry

__all__ = ["SIZES", "Count", "Race", "figures_of", "races", "series", "typical"]

SIZES = (2, 8, 32)
"""How many contend."""
LEAST = 0.1
"""Handoffs in a second: no race is long enough to see fewer."""

Race = Mapping[str, float]
Count = Callable[[], Mapping[str, float]]
"""Something that the server counts. What a race adds to it is told for each handoff."""


def races(
    field: Field,
    entries: Sequence[Entry],
    drill: str,
    sizes: Sequence[int],
    *,
    rounds: int,
    seconds: float,
    heat: float | None = None,
    count: Count = dict,
) -> Iterator[tuple[int, dict[Entry, list[Race]]]]:
    """Let every entry race in turn, round after round, at each size; leave out those who failed."""
    rounds, seconds = effort.rounds(rounds), effort.seconds(seconds)
    options = {"seconds": seconds} if heat is None else {"seconds": seconds, "heat": effort.seconds(heat)}
    with contextlib.ExitStack() as stack:
        children: dict[Entry, Child] = {}
        for entry in entries:
            field.progress(f"starting {entry.label}")
            child = field.start(entry, drill, options)
            if child is not None:
                children[entry] = stack.enter_context(child)
        for size in sizes:
            yield size, _rounds(field, children, size, rounds, count)


def _rounds(
    field: Field, children: Mapping[Entry, Child], size: int, rounds: int, count: Count
) -> dict[Entry, list[Race]]:
    order = random.Random(size)
    seen: dict[Entry, list[Race]] = {entry: [] for entry in children}
    for number in range(rounds):
        for entry, child in order.sample(list(children.items()), len(children)):
            if entry.label in field.absent:
                continue
            field.progress(f"{size} contenders, round {number + 1} of {rounds}: {entry.label}")
            before = count()
            try:
                race = child.ask(size)
            except ChildFailed as error:
                field.fail(entry, error)
                continue
            handoffs = max(race["handoffs"], 1)
            added = {key: (value - before[key]) / handoffs for key, value in count().items()}
            seen[entry].append({**race, **added})
    return {entry: raced for entry, raced in seen.items() if len(raced) == rounds}


def figures_of(seen: Mapping[Entry, Sequence[Race]]) -> list[Figure]:
    """Seconds for one handoff; with them, the medians of all that was counted."""
    medians = typical(seen)
    return [
        Figure(entry.label, entry.role, [1 / max(one["rate"], LEAST) for one in raced], medians[entry.label])
        for entry, raced in seen.items()
    ]


def series(place: str, kind: str, size: int) -> Series:
    """Return where the result belongs: handoffs against the number of contenders."""
    return Series(f"handoffs on {place} among {kind}", kind, size)


def typical(seen: Mapping[Entry, Sequence[Race]]) -> dict[str, Race]:
    """The medians of everything, by label."""
    return {
        entry.label: {key: statistics.median(one[key] for one in raced) for key in raced[0]}
        for entry, raced in seen.items()
    }
