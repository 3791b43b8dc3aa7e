"""1,000 to 100,000 leases held by one client, in memory and on SQLite: a sweep of renewals, and memory.

A sweep renews every lease once. The limit changes as many bare rows in as large transactions, or sets as many
deadlines in a dict. Each count has processes of its own, in which nothing else has left its memory. That the
cost grows linearly means that a lease costs no more when there are ten times as many.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import fencelock
from bench import effort
from bench.children import Child, Field
from bench.measure import Figure, Result, Series, Suite, named
from bench.peers import Entry
from bench.suites.pair import database
from bench.suites.targets import at_most
from bench.verdict import Verdict
from fencelock.core import renew
from fencelock.runtime.blocking import run

__all__ = ["COUNTS", "FENCELOCK", "SUITE", "figure", "grown", "growth", "held", "holder", "series", "sweep"]

TTL = 300.0
ROUNDS = 7
COUNTS = tuple(map(effort.count, (1_000, 10_000, 100_000)))
LINEAR = 1.5
"""Times the cost of a lease that it may have among ten times as many."""
FENCELOCK = Entry("fencelock", "ours", "fencelock")
MEMORY = Entry("deadlines in a dict", "mutex", "limit")
ROWS = Entry("bare rows, 500 in a transaction", "sqlite_rows", "limit")


@contextlib.contextmanager
def held(url: str, count: int, prefix: str = "lease") -> Iterator[fencelock.Client]:
    with fencelock.Client(url) as locks:
        leases = [locks.lock(f"{prefix}-{number}", ttl=TTL).acquire() for number in range(count)]
        yield locks
        del leases


def sweep(locks: fencelock.Client) -> float:
    """Renew everything once, as the renewer does; return the seconds that took."""
    session = locks._session
    holds = session.holds.all()
    size = session.backend.renew_batch
    started = time.perf_counter()
    for start in range(0, len(holds), size):
        run(renew._renew(session, holds[start : start + size]))
    return time.perf_counter() - started


def holder(field: Field, entry: Entry, count: int) -> Child | None:
    """Return a child that holds so many; taking them may need its time."""
    field.progress(f"{entry.label}: taking {count:,} leases")
    return field.start(entry, "leases", {"count": count}, seconds=90 + count / 200)


def figure(entry: Entry, sweeps: Sequence[float], told: dict[str, Any]) -> Figure:
    """Return the sweeps, and with them the memory and the threads that the leases took."""
    return Figure(entry.label, entry.role, sweeps, {"rss": told["grown"], "threads": told["threads"]})


def grown(figures: Sequence[Figure]) -> list[str]:
    return [
        f"{one.name}: RSS {one.extra['rss'] / 2**20:+.1f} MiB, threads +{one.extra['threads']:.0f}"
        for one in figures
    ]


def series(place: str, count: int) -> Series:
    return Series(f"leases on {place}", "leases held by one client", count, also=("rss",))


def growth(results: Sequence[Result]) -> list[Result]:
    """Say of the last result whether the cost is linear: by that of one lease, beside ten times fewer."""
    before, last = results[-2], results[-1]
    said = [*last.verdicts, *_per_lease(before, last)]
    return [*results[:-1], replace(last, verdicts=said)]


def _per_lease(before: Result, last: Result) -> Iterator[Verdict]:
    few, many = named(before.figures, FENCELOCK.label), named(last.figures, FENCELOCK.label)
    assert few is not None and many is not None and before.series is not None and last.series is not None
    times = last.series.x / before.series.x
    what = f"for each lease, {last.series.x:,} to {before.series.x:,}"
    yield at_most(f"time {what}", many.median / few.median / times, LINEAR, key="linear-time")
    if few.extra["rss"] > 0:
        memory = many.extra["rss"] / few.extra["rss"] / times
        yield at_most(f"memory {what}", memory, LINEAR, key="linear-memory")


def hold(field: Field, place: str, entries: Sequence[Entry], count: int) -> Result:
    with contextlib.ExitStack() as stack:
        children = {entry: child for entry in entries if (child := holder(field, entry, count))}
        for child in children.values():
            stack.enter_context(child)
        told: dict[Entry, list[dict[str, Any]]] = {entry: [] for entry in children}
        for number in range(effort.rounds(ROUNDS)):
            for entry, child in children.items():
                field.progress(f"{count:,} leases, round {number + 1}: {entry.label}")
                told[entry].append(child.ask(1))
    figures = [
        figure(entry, [second for one in said for second in one["sweeps"]], said[-1])
        for entry, said in told.items()
    ]
    return Result(
        f"A sweep that renews {count:,} leases on {place}",
        figures,
        [*grown(figures), *field.notes()],
        key=f"{place.partition(':')[0]}.leases-{count}",
        series=series(place, count),
    )


def measure(progress: Callable[[str], None]) -> Sequence[Result]:
    field = Field("memory://leases", progress)
    results = growth([hold(field, "memory://", [MEMORY, FENCELOCK], count) for count in COUNTS])
    on_disk = []
    for count in COUNTS:
        with database() as url:
            on_disk.append(hold(Field(url, progress), "sqlite://", [ROWS, FENCELOCK], count))
    return [*results, *growth(on_disk)]


SUITE = Suite("leases", "1,000 to 100,000 leases held by one client: a sweep of renewals, memory", measure)
