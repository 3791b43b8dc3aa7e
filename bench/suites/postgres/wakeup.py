"""From the release by one process to the grant in another that waits, on PostgreSQL: pushed, and polled.

The time counts from before the release is sent until the waiter may enter; the waiter has waited for a while
then, since polling slows down with time. The limit is the raw blocking advisory lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tools.servers import start

from bench.children import Field
from bench.measure import Figure, Result, Suite
from bench.peers import Entry
from bench.show import percentiles
from bench.suites.postgres.contended import LIMIT, by_hand, ours
from bench.suites.postgres.entrants import FENCELOCK, PALS
from bench.suites.targets import named
from bench.verdict import Verdict

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
    figures = field.collect(entries, "wakeups", rounds=ROUNDS, count=count, options={"held": held})
    title = f"Wake-up on postgresql://, after a wait of {held * 1e3:.0f} ms"
    notes = [*map(percentiles, figures), *field.notes()]
    return Result(title, figures, notes, distribution=True, verdicts=_compared(figures))


def _compared(figures: Sequence[Figure]) -> list[Verdict]:
    table = named(figures, FENCELOCK.label)
    if table is None:
        return []
    return [
        Verdict(f"fencelock to {other.name}", table.median / other.median)
        for other in figures
        if other is not table
    ]


SUITE = Suite(
    "postgres-wakeup", "from a release to the next grant on PostgreSQL: pushed, and polled", measure
)
