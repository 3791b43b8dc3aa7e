"""One lock on MariaDB, an empty section, 2, 8 and 32 processes: handoffs, fairness, work for the server.

The limit is the raw blocking GET_LOCK: the server itself wakes one of those who wait, and nothing is
written. What a handoff and a share are is told in `bench.races`. Statements and disk syncs are counted
by the server, connecting included, for each handoff.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tools.servers import start
from tools.servers.mariadb import MariaDB

from bench.children import Field
from bench.measure import Result, Suite
from bench.peers import Entry
from bench.races import SIZES, Race, figures_of, races, series
from bench.suites.mysql.pair import FENCELOCK, GETLOCK
from bench.suites.targets import parts_of_limit

__all__ = ["SUITE"]

SECONDS, HEAT = 1.5, 1.0
ROUNDS = 3
COUNTS = """
SELECT variable_value FROM information_schema.global_status
WHERE variable_name IN ('INNODB_DATA_FSYNCS', 'QUESTIONS') ORDER BY variable_name
"""

ENTRIES = [
    Entry("raw GET_LOCK, waiting", "mysql_raw", "limit", options={"kind": "wait"}),
    FENCELOCK,
    GETLOCK,
    Entry("row polled at 1 ms", "mysql_raw", options={"kind": "polled", "sleep": 0.001}),
    Entry("row polled at 50 ms", "mysql_raw", options={"kind": "polled", "sleep": 0.05}),
]


def measure(progress: Callable[[str], None]) -> Sequence[Result]:
    with start("mariadb") as group:
        server = group.members[0]
        assert isinstance(server, MariaDB)

        def count() -> Mapping[str, float]:
            syncs, statements = server.query(COUNTS).split()
            return {"syncs": float(syncs), "statements": float(statements)}

        field = Field(group.url, progress)
        raced = races(
            field, ENTRIES, "processes", SIZES, rounds=ROUNDS, seconds=SECONDS, heat=HEAT, count=count
        )
        return [_result(field, size, seen) for size, seen in raced]


def _result(field: Field, size: int, seen: Mapping[Entry, Sequence[Race]]) -> Result:
    figures = figures_of(seen)
    notes = [
        f"{one.name}: smallest share {one.extra['share']:.2f}, {one.extra['statements']:.1f} statements and "
        f"{one.extra['syncs']:.2f} disk syncs a handoff, {one.extra['acquisitions']:,.0f} acquisitions/s"
        for one in figures
    ]
    return Result(
        f"Handoffs among {size} processes on mysql://",
        figures,
        [*notes, *field.missing()],
        rate=True,
        verdicts=parts_of_limit(figures),
        key=f"mysql.processes-{size}",
        series=series("mysql://", "processes", size),
    )


SUITE = Suite("mysql-contended", "one lock on MariaDB, 2, 8 and 32 processes, beside raw GET_LOCK", measure)
