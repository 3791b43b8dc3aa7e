"""The uncontended pair on Redis under asyncio: one task, a hundred, a thousand, on different names.

The limit of one task is the raw blocking pair: asyncio cannot be faster than no asyncio. The limit of many
is a pipeline over one connection, which does all pairs of a round in two round trips.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tools.servers import start

from bench.children import Field
from bench.measure import Figure, Result, Suite
from bench.peers import Entry
from bench.placing import apart
from bench.suites.redis import entrants
from bench.suites.targets import named, times_faster, to_limit
from bench.verdict import Verdict

__all__ = ["BLOCKING", "REDIS_ASYNCIO", "SUITE"]

BLOCKING = Entry("raw socket, blocking", "raw", "limit", drill="pairs")
REDIS_ASYNCIO = Entry("redis.asyncio Lock", "redis_py", environment="redis-py")
OTHERS = [
    entrants.FENCELOCK,
    REDIS_ASYNCIO,
    entrants.REDLOCK_NG,
    entrants.POTTERY,
    entrants.AIOREDLOCK,
]


def measure(progress: Callable[[str], None]) -> Sequence[Result]:
    with start("redis") as group:
        apart(group)
        field = Field(group.url, progress, seated=True)
        return [
            one(field),
            many(field, 100, rounds=9, count=2000),
            many(field, 1000, rounds=5, count=4000),
        ]


def one(field: Field) -> Result:
    figures = field.take_turns([BLOCKING, *OTHERS], "tasks", rounds=11, count=1000, options={"tasks": 1})
    title = "Uncontended pair on redis://, asyncio, one task"
    return Result(title, figures, field.notes(), verdicts=to_limit(figures, 1.9), key="redis.task-1")


def many(field: Field, tasks: int, *, rounds: int, count: int) -> Result:
    options = {"tasks": tasks}
    limit = Entry("raw socket, pipelined", "raw", "limit", drill="pipeline", options=options)
    figures = field.take_turns([limit, *OTHERS], "tasks", rounds=rounds, count=count, options=options)
    verdicts = [*to_limit(figures, 6), *faster(figures, 9)] if tasks == 100 else to_limit(figures, None)
    title = f"Uncontended pair on redis:// by {tasks:,} tasks, each with its own name"
    return Result(title, figures, field.notes(), verdicts=verdicts, key=f"redis.tasks-{tasks}")


def faster(figures: Sequence[Figure], target: float) -> list[Verdict]:
    ours, theirs = named(figures, entrants.FENCELOCK.label), named(figures, REDIS_ASYNCIO.label)
    return times_faster("times faster than redis.asyncio's Lock", ours, theirs, target, "redis-asyncio")


SUITE = Suite(
    "redis-asyncio", "the pair by 1, 100 and 1,000 tasks, beside raw sockets and libraries", measure
)
