"""From the release by one process to the grant in another that waits, on PostgreSQL: pushed, and polled.

The time counts from before the release is sent until the waiter may enter; the waiter has waited for a while
then, since polling slows down with time. The limit is the raw blocking advisory lock.
"""

from __future__ import annotations

import contextlib
import random
import statistics
from collections.abc import Callable, Sequence

from tools.servers import start

from bench.children import ChildFailed, Field
from bench.measure import Figure, Result, Suite
from bench.peers import Entry
from bench.suites.postgres.contended import LIMIT, by_hand, ours
from bench.suites.postgres.entrants import HOLDFAST, PALS
from bench.suites.targets import named

__all__ = ["SUITE"]

ROUNDS = 5
TIMES = ((0.02, 20), (0.5, 4))
"""For how long it was held, and how often in a round."""


def measure(progress: Callable[[str], None]) -> Sequence[Result]:
    with start("pgbouncer") as group:
        field = Field(group.urls["direct"], progress)
        entries = [LIMIT, *ours(group), *by_hand(), PALS]
        return [_waits(field, entries, held, count) for held, count in TIMES]


def _waits(field: Field, entries: Sequence[Entry], held: float, count: int) -> Result:
    order = random.Random(1)
    with contextlib.ExitStack() as stack:
        children, taken = {}, {}
        for entry in entries:
            field.progress(f"starting {entry.label}")
            child = field.start(entry, "wakeups", {"held": held})
            if child is not None:
                children[entry] = stack.enter_context(child)
                taken[entry] = list[float]()
        for number in range(ROUNDS):
            for entry, child in order.sample(list(children.items()), len(children)):
                field.progress(f"held for {held * 1e3:.0f} ms, round {number + 1} of {ROUNDS}: {entry.label}")
                if entry.label in field.absent:
                    continue
                try:
                    taken[entry] += child.ask(count)
                except ChildFailed as error:
                    field.fail(entry, error)
    figures = [
        Figure(entry.label, entry.role, rounds)
        for entry, rounds in taken.items()
        if entry.label not in field.absent
    ]
    title = f"Wake-up on postgresql://, after a wait of {held * 1e3:.0f} ms"
    notes = [*map(_quantiles, figures), *_compared(figures), *field.notes()]
    return Result(title, figures, notes, distribution=True)


def _quantiles(figure: Figure) -> str:
    parts = statistics.quantiles(figure.rounds, n=20, method="inclusive")
    shown = ", ".join(f"{name} {parts[place] * 1e3:.2f} ms" for name, place in (("p50", 9), ("p95", 18)))
    return f"{figure.name}: {shown}, longest {max(figure.rounds) * 1e3:.2f} ms"


def _compared(figures: Sequence[Figure]) -> list[str]:
    limit, table = named(figures, LIMIT.label), named(figures, HOLDFAST.label)
    if limit is None or table is None:
        return []
    return [
        f"holdfast to {other.name}: {table.median / other.median:.2f}"
        for other in figures
        if other is not table
    ]


SUITE = Suite(
    "postgres-wakeup", "from a release to the next grant on PostgreSQL: pushed, and polled", measure
)
