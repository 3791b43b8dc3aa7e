"""One lock on SQLite, an empty section, 2, 8 and 32 processes, threads or tasks: handoffs, and fairness.

What a handoff and a share are is told in `bench.races`. The limit is what one process takes that has nobody
to hand over to: a bare row inserted and deleted in two transactions, as a handoff needs two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bench.children import Field
from bench.measure import Figure, Result, Suite, named
from bench.peers import Entry
from bench.races import SIZES, Race, figures_of, races, series
from bench.suites.pair import ROWS, database
from bench.suites.targets import at_least, parts_of_limit
from bench.verdict import Verdict

__all__ = ["SQLITE"]

SECONDS = 1.5
ROUNDS = 3
LEAST, AT = 3000, 8
"""Handoffs in a second that are wanted among so many processes."""

ALONE = Entry(
    "two bare transactions, nobody waiting", "sqlite_rows", "limit", options=ROWS.options, drill="alone"
)
TASKS = [ALONE, Entry("fencelock", "ours", "fencelock"), Entry("filelock, default poll", "file_lock")]
ENTRIES = [*TASKS, Entry("SQLite row polled at 1 ms", "sqlite_rows", options={"kind": "polled"})]
KINDS = (("processes", "processes", ENTRIES), ("threads", "contenders", ENTRIES), ("tasks", "rivals", TASKS))


def sqlite(progress: Callable[[str], None]) -> Sequence[Result]:
    results = []
    for kind, drill, entries in KINDS:
        with database() as url:
            field = Field(url, progress)
            raced = races(field, entries, drill, SIZES, rounds=ROUNDS, seconds=SECONDS)
            results += [result(field, kind, size, seen) for size, seen in raced]
    return results


def result(field: Field, kind: str, size: int, seen: Mapping[Entry, Sequence[Race]]) -> Result:
    figures = figures_of(seen)
    notes = [
        f"{one.name}: smallest share {one.extra['share']:.2f}, "
        f"{one.extra['acquisitions']:,.0f} acquisitions/s"
        for one in figures
    ]
    where = "processes on one host" if kind == "processes" else f"{kind} of one process"
    return Result(
        f"Handoffs among {size} {where}, on sqlite://",
        figures,
        [*notes, *field.missing()],
        rate=True,
        verdicts=[*parts_of_limit(figures), *judged(figures, kind, size)],
        key=f"sqlite.{kind}-{size}",
        series=series("sqlite://", kind, size),
    )


def judged(figures: Sequence[Figure], kind: str, size: int) -> list[Verdict]:
    ours = named(figures, "fencelock")
    if kind != "processes" or size != AT or ours is None:
        return []
    return [at_least("handoffs in a second, first come first served", 1 / ours.median, LEAST, key="rate")]


SQLITE = Suite(
    "contended",
    "one lock on SQLite, 2, 8 and 32 processes, threads and tasks, beside filelock and polling",
    sqlite,
)
