"""One lock on PostgreSQL, an empty section, 2, 8 and 32 processes: handoffs, fairness, work for the server.

The limit is the raw blocking advisory lock: the server itself queues those who wait and wakes the next, and
nothing is written. What a handoff and a share are is told in `bench.races`. Commits and disk syncs
are counted by the server, connecting included, for each handoff.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tools.servers import Group, start
from tools.servers.postgres import Postgres

from bench.children import Field
from bench.measure import Result, Suite
from bench.peers import Entry
from bench.races import SIZES, Race, figures_of, races, series
from bench.suites.postgres.advisory import SCHEME
from bench.suites.postgres.entrants import FENCELOCK, PALS
from bench.suites.targets import parts_of_limit

__all__ = ["LIMIT", "SUITE", "by_hand", "ours"]

SECONDS, HEAT = 1.5, 1.0
ROUNDS = 3
TARGET = 0.07
COUNTS = """
SELECT xact_commit, wal_sync FROM pg_stat_database, pg_stat_wal WHERE datname = current_database()
"""

LIMIT = Entry("raw pg_advisory_lock", "postgres_raw", "limit", options={"kind": "wait"})


def ours(group: Group) -> list[Entry]:
    """The lease table with pushes and without, and the advisory form."""
    polling = {"through": group.urls["transaction"]}
    return [
        FENCELOCK,
        Entry("fencelock, polling behind pgbouncer", "ours", "fencelock", options=polling),
        Entry("fencelock, advisory", "ours", "fencelock", options={"scheme": SCHEME}),
    ]


def by_hand() -> list[Entry]:
    """Rows that are waited for in the usual ways."""

    def polled(milliseconds: int) -> Entry:
        options = {"kind": "polled", "sleep": milliseconds / 1000}
        return Entry(f"row polled at {milliseconds} ms", "postgres_raw", options=options)

    everybody = Entry("row, NOTIFY to everybody", "postgres_raw", options={"kind": "notified"})
    return [everybody, polled(1), polled(50)]


def measure(progress: Callable[[str], None]) -> Sequence[Result]:
    with start("pgbouncer") as group:
        direct = group.members[0]
        assert isinstance(direct, Postgres)

        def count() -> Mapping[str, float]:
            commits, syncs = direct.query(COUNTS).split("|")
            return {"commits": float(commits), "syncs": float(syncs)}

        field = Field(group.urls["direct"], progress)
        entries = [LIMIT, *ours(group), *by_hand(), PALS]
        raced = races(
            field, entries, "processes", SIZES, rounds=ROUNDS, seconds=SECONDS, heat=HEAT, count=count
        )
        return [_result(field, size, seen) for size, seen in raced]


def _result(field: Field, size: int, seen: Mapping[Entry, Sequence[Race]]) -> Result:
    figures = figures_of(seen)
    notes = [
        f"{one.name}: smallest share {one.extra['share']:.2f}, {one.extra['commits']:.1f} commits and "
        f"{one.extra['syncs']:.2f} disk syncs a handoff, {one.extra['acquisitions']:,.0f} acquisitions/s"
        for one in figures
    ]
    return Result(
        f"Handoffs among {size} processes on postgresql://",
        figures,
        [*notes, *field.missing()],
        rate=True,
        verdicts=parts_of_limit(figures, TARGET if size == SIZES[-1] else None),
        key=f"postgres.processes-{size}",
        series=series("postgresql://", "processes", size),
    )


SUITE = Suite(
    "postgres-contended", "one lock on PostgreSQL, 2, 8 and 32 processes, beside raw advisory locks", measure
)
