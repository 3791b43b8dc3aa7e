"""Jobs that do nothing, as many in a second as there can be: what a worker costs beside what it does.

Everybody works off the same number of jobs on the same PostgreSQL, in turns, each in a process of its own.
The hand-written loop is one worker that commits once for each job: it has no lease and no token.

NOT promised: that jobs which do something see any of it. At ten milliseconds a job all of them are alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tools.servers import start

from bench.children import Field
from bench.measure import Figure, Result, Suite
from bench.peers import Entry

__all__ = ["SUITE"]

ROUNDS, COUNT = 9, 300
AT_A_TIME = 10

HAND = Entry("SKIP LOCKED by hand", "jobs_hand", role="limit")
PROCRASTINATE = Entry("procrastinate", "jobs_procrastinate", environment="procrastinate")
MANY_PROCRASTINATE = Entry(
    f"procrastinate, {AT_A_TIME} at a time",
    "jobs_procrastinate",
    environment="procrastinate",
    options={"concurrency": AT_A_TIME},
)


def ours(label: str, **options: object) -> Entry:
    table = "".join(letter if letter.isalnum() else "_" for letter in label.lower())
    return Entry(f"fencelock, {label}", "jobs_ours", role="fencelock", options={"table": table, **options})


def measure(progress: Callable[[str], None]) -> Sequence[Result]:
    with start("postgres") as postgres, start("redis") as redis:
        field = Field(str(postgres.url), progress)
        unlocked, locked = ours("without locks"), ours("locks on Redis", locks=str(redis.url))
        entries = [HAND, unlocked, locked, PROCRASTINATE]
        figures = field.take_turns(entries, "drained", rounds=ROUNDS, count=COUNT)
        one = Result(
            "Jobs in a second, one at a time", figures, [*to_others(figures), *field.notes()], rate=True
        )

        many = {"concurrency": AT_A_TIME, "flavour": "asyncio"}
        entries = [
            HAND,
            ours("asyncio without locks", **many),
            ours("asyncio, locks on Redis", locks=str(redis.url), **many),
            ours("threads without locks", concurrency=AT_A_TIME),
            MANY_PROCRASTINATE,
        ]
        figures = field.take_turns(entries, "drained", rounds=ROUNDS, count=3 * COUNT)
        title = f"Jobs in a second, {AT_A_TIME} at a time (by hand: one)"
        return [one, Result(title, figures, [*to_others(figures), *field.notes()], rate=True)]


def to_others(figures: Sequence[Figure]) -> list[str]:
    """Return how many times as fast ours are as the others."""
    lines = []
    for own in (figure for figure in figures if figure.role == "fencelock"):
        for other in (figure for figure in figures if figure.role != "fencelock"):
            times = other.median / own.median
            lines.append(f"{own.name}: {times:.2f} times {other.name}")
    return lines


SUITE = Suite("jobs", "jobs in a second, beside SKIP LOCKED by hand and procrastinate", measure)
