"""One lock on Redis, an empty section, 2, 8 and 32 processes, threads or tasks: handoffs, and fairness.

What a handoff and a share are is told in `bench.races`. Script calls are counted by the server, for each
handoff. Threads and tasks of one process share one client; so do those of the peers. The limit of the tasks
is the same token, passed by asyncio over a connection for each task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tools.servers import start

from bench.children import Field
from bench.measure import Figure, Result, Suite, best_peer, named
from bench.peers import Entry
from bench.races import SIZES, Race, figures_of, races, series
from bench.suites.redis import entrants
from bench.suites.redis.tasks import REDIS_ASYNCIO
from bench.suites.targets import at_least, at_most, parts_of_limit
from bench.verdict import Verdict

__all__ = ["SUITE"]

SECONDS = 1.0
ROUNDS = 3
STRETCH = 2.6
"""Times the limit among threads of one process, if a lease is passed on without asking the server."""

TOKEN = Entry("token passed by RPUSH and BLPOP", "token", "limit")
BY_DEFAULT = Entry("redis-py Lock, sleep 0.1", "redis_py", environment="redis-py", options={"sleep": 0.1})
PROCESSES = [
    TOKEN,
    entrants.FENCELOCK,
    entrants.SCRIPTS,
    BY_DEFAULT,
    Entry("redis-py Lock, sleep 0.001", "redis_py", environment="redis-py", options={"sleep": 0.001}),
    entrants.PYTHON_REDIS_LOCK,
    entrants.POTTERY,
]
THREADS = [TOKEN, entrants.FENCELOCK, BY_DEFAULT, entrants.PYTHON_REDIS_LOCK]
TASKS = [TOKEN, entrants.FENCELOCK, REDIS_ASYNCIO]
KINDS = (
    ("processes", "processes", PROCESSES),
    ("threads", "contenders", THREADS),
    ("tasks", "rivals", TASKS),
)


def measure(progress: Callable[[str], None]) -> Sequence[Result]:
    with start("redis") as group:
        field = Field(group.url, progress)
        results = []
        for kind, drill, entries in KINDS:
            raced = races(field, entries, drill, SIZES, rounds=ROUNDS, seconds=SECONDS)
            results += [result(field, kind, size, seen) for size, seen in raced]
            field.absent.clear()
        return results


def result(field: Field, kind: str, size: int, seen: dict[Entry, list[Race]]) -> Result:
    figures = figures_of(seen)
    notes = [
        f"{one.name}: smallest share {one.extra['share']:.2f}, {one.extra['calls']:.1f} script calls "
        f"a handoff, {one.extra['acquisitions']:,.0f} acquisitions/s"
        for one in figures
    ]
    where = kind if kind == "processes" else f"{kind} of one process"
    return Result(
        f"Handoffs among {size} {where} on redis://",
        figures,
        [*notes, *field.missing()],
        rate=True,
        verdicts=verdicts(figures, kind, size),
        key=f"redis.{kind}-{size}",
        series=series("redis://", kind, size),
    )


def verdicts(figures: Sequence[Figure], kind: str, size: int) -> list[Verdict]:
    """Judge what there are targets for: the most processes; and for as many threads, a stretch goal."""
    if size != SIZES[-1] or kind == "tasks":
        return parts_of_limit(figures)
    if kind == "threads":
        return parts_of_limit(figures, STRETCH)
    limit, ours, peer = named(figures, TOKEN.label), named(figures, "fencelock"), best_peer(figures)
    if limit is None or ours is None:
        return []
    said = [at_least("fencelock's part of the limit", limit.median / ours.median, 0.65, key="limit")]
    if peer is not None:
        what = f"times the best peer ({peer.name})"
        said.append(at_least(what, peer.median / ours.median, 3, key="peer"))
    return [
        *said,
        at_least("smallest share", ours.extra["share"], 0.9, key="share"),
        at_most("script calls a handoff", ours.extra["calls"], 3, key="calls"),
    ]


SUITE = Suite(
    "redis-contended",
    "one lock on Redis, 2, 8 and 32 processes, threads and tasks, beside a bare token",
    measure,
)
