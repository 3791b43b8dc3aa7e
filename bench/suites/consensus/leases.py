"""A thousand and ten thousand leases of one client on a consensus store: what a sweep of renewals takes.

The limit is one heartbeat of a session or lease, by hand: all leases of a client live in one. A hundred
thousand are left out: each is an entry of the server's log, and taking them would be most of an hour of
bench.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bench import effort
from bench.children import Field
from bench.measure import Figure, Result, Suite
from bench.suites.consensus.stores import FENCELOCK, TAGS, Store
from bench.verdict import Verdict

__all__ = ["suite"]

COUNTS = tuple(map(effort.count, (1_000, 10_000)))
ROUNDS = effort.rounds(7)
BEATS = 50


def suite(store: Store) -> Suite:
    def measure(progress: Callable[[str], None]) -> Sequence[Result]:
        with store.start() as group:
            field = Field(group.url, progress)
            figures = field.take_turns([store.heartbeat], "pairs", rounds=ROUNDS, count=BEATS)
            notes = []
            for count in COUNTS:
                figure, note = hold(field, count)
                figures.append(figure)
                notes.append(note)
        few, many = figures[1:]
        verdicts = [Verdict("ten times as many leases: times as long", many.median / few.median)]
        title = f"A sweep that renews the leases of one client on {store.name}://"
        return [Result(title, figures, notes, verdicts=verdicts, key=f"{store.name}.leases")]

    about = f"1,000 and 10,000 leases on {store.name}: a sweep of renewals, memory"
    return Suite(f"{store.name}-leases", about, measure, TAGS)


def label(count: int) -> str:
    return f"fencelock, sweep of {count:,}"


def hold(field: Field, count: int) -> tuple[Figure, str]:
    field.progress(f"taking {count:,} leases")
    child = field.start(FENCELOCK, "leases", {"count": count})
    assert child is not None  # it is no peer
    with child:
        told: list[dict[str, Any]] = []
        for number in range(ROUNDS + 1):
            field.progress(f"{count:,} leases, round {number} of {ROUNDS}")
            told.append(child.ask(1))
    first, *sweeps = [one["sweeps"][0] for one in told]
    grown, threads = told[-1]["grown"] / 2**20, told[-1]["threads"]
    note = f"{count:,} leases: the first sweep {first * 1e3:.1f} ms; RSS +{grown:.1f} MiB; threads +{threads}"
    return Figure(label(count), FENCELOCK.role, sweeps), note
