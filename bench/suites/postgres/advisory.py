"""The uncontended pair of PostgreSQL's advisory locks, blocking and asyncio, beside the raw ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tools.servers import start

from bench.children import Field
from bench.measure import Figure, Result, Suite
from bench.peers import Entry
from bench.placing import apart
from bench.suites.postgres.entrants import ASYNCPG, PALS, PSYCOPG, PSYCOPG_ASYNCIO, RAW, TOOZ, alone
from bench.suites.targets import to_limit, to_peer

__all__ = ["SCHEME", "SUITE"]

ROUNDS, COUNT = 15, 1000
SCHEME = "postgresql+advisory"
FENCELOCK = Entry("fencelock", "ours", "fencelock", options={"scheme": SCHEME})


def measure(progress: Callable[[str], None]) -> Sequence[Result]:
    with start("postgres") as group:
        apart(group)
        field = Field(group.url, progress, seated=True)
        entries = [RAW, FENCELOCK, PSYCOPG, PALS, TOOZ]
        figures = field.take_turns(entries, "pairs", rounds=ROUNDS, count=COUNT)
        blocking = result(field, figures, "blocking", 3)

        entries = [alone(RAW), FENCELOCK, PSYCOPG_ASYNCIO, ASYNCPG]
        figures = field.take_turns(entries, "tasks", rounds=ROUNDS, count=COUNT, options={"tasks": 1})
        return [blocking, result(field, figures, "asyncio, one task", None)]


def result(field: Field, figures: Sequence[Figure], flavour: str, target: float | None) -> Result:
    return Result(
        f"Uncontended pair on {SCHEME}://, {flavour}",
        figures,
        field.notes(),
        verdicts=[*to_limit(figures, target), *to_peer(figures)],
        key=f"postgres-advisory.{flavour.partition(',')[0]}",
    )


SUITE = Suite("postgres-advisory", "acquire-release pair of advisory locks, beside the raw ones", measure)
