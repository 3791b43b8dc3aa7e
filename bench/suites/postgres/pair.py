"""The uncontended pair on PostgreSQL's lease table, blocking and asyncio.

The limit is a bare row, inserted and deleted, both commits durable. The raw advisory lock, which writes
nothing, shows what the wire and the server take without a disk; the peers hold such locks and write
nothing either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tools.servers import start

from bench.children import Field
from bench.measure import Figure, Result, Suite
from bench.suites.postgres.entrants import (
    ASYNCPG,
    FENCELOCK,
    PALS,
    PSYCOPG,
    PSYCOPG_ASYNCIO,
    RAW,
    ROW,
    TOOZ,
    alone,
)
from bench.suites.targets import named, ratio, to_limit
from bench.verdict import Verdict

__all__ = ["SUITE"]

ROUNDS, COUNT = 15, 300
THREADS = 8


def measure(progress: Callable[[str], None]) -> Sequence[Result]:
    with start("postgres") as group:
        field = Field(group.url, progress)
        entries = [ROW, RAW, FENCELOCK, PSYCOPG, PALS, TOOZ]
        figures = field.take_turns(entries, "pairs", rounds=ROUNDS, count=COUNT)
        verdicts = [*to_limit(figures, 1.5), *to_raw(figures), *to_pals(figures)]
        title = "Uncontended pair on postgresql://"
        blocking = Result(
            f"{title}, blocking", figures, field.notes(), verdicts=verdicts, key="postgres.blocking"
        )

        entries = [alone(ROW), alone(RAW), FENCELOCK, PSYCOPG_ASYNCIO, ASYNCPG]
        figures = field.take_turns(entries, "tasks", rounds=ROUNDS, count=COUNT, options={"tasks": 1})
        verdicts = [*to_limit(figures, 1.5), *to_raw(figures)]
        asynchronous = Result(
            f"{title}, asyncio, one task", figures, field.notes(), verdicts=verdicts, key="postgres.asyncio"
        )

        entries, options = [ROW, RAW, FENCELOCK], {"threads": THREADS}
        figures = field.take_turns(entries, "threads", rounds=7, count=4 * COUNT, options=options)
        title = f"{title} by {THREADS} threads, each with its own name"
        return [blocking, asynchronous, Result(title, figures, verdicts=to_limit(figures, None))]


def to_raw(figures: Sequence[Figure]) -> list[Verdict]:
    ours, raw = named(figures, FENCELOCK.label), named(figures, RAW.label)
    return ratio("fencelock to the raw advisory lock", ours, raw, None)


def to_pals(figures: Sequence[Figure]) -> list[Verdict]:
    ours, pals = named(figures, FENCELOCK.label), named(figures, PALS.label)
    return ratio("fencelock to pals", ours, pals, 0.9, key="pals")


SUITE = Suite("postgres", "acquire-release pair on PostgreSQL, beside bare rows and three libraries", measure)
