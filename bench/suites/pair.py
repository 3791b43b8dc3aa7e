"""The uncontended pair in memory and on SQLite: one acquire and one release, everything on.

The limit in memory is a mutex of the standard library. On disk it is a row that is inserted and deleted
with the same durability, in two transactions, and nothing else; in single statements, which a lock with a
queue cannot do with, it is beside that.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence

from bench.children import Field
from bench.measure import Figure, Result, Suite, named
from bench.peers import Entry
from bench.suites.targets import at_most, ratio, to_limit
from bench.verdict import Verdict

__all__ = ["MEMORY", "ROWS", "SQLITE", "database"]

BLOCKING, ASYNCIO, NEW = "fencelock, blocking", "fencelock, asyncio", "filelock, new object"
ONE = {"tasks": 1}
ROWS = Entry("bare rows, BEGIN IMMEDIATE", "sqlite_rows", "limit", options={"kind": "explicit"})


@contextlib.contextmanager
def database() -> Iterator[str]:
    """Give the URL of an SQLite file that does not exist yet; it goes with the block."""
    with tempfile.TemporaryDirectory(prefix="fencelock-bench-") as folder:
        yield f"sqlite://{folder}/locks.db"


def memory(progress: Callable[[str], None]) -> Sequence[Result]:
    entries = [
        Entry("threading.Lock", "mutex", "limit"),
        Entry("asyncio.Lock", "mutex", "beside", options=ONE, drill="tasks"),
        Entry(BLOCKING, "ours", "fencelock"),
        Entry(ASYNCIO, "ours", "fencelock", options=ONE, drill="tasks"),
    ]
    figures = Field("memory://bench", progress).take_turns(entries, "pairs", rounds=9, count=5000)
    ours = named(figures, BLOCKING)
    assert ours is not None  # it is no peer
    verdict = at_most("the blocking pair, all of it Python", ours.median * 1e6, 15, " µs", key="python")
    return [Result("Uncontended pair on memory://", figures, verdicts=[verdict], key="memory")]


def sqlite(progress: Callable[[str], None]) -> Sequence[Result]:
    with database() as url:
        own = url.replace("locks.db", "asyncio.db")
        entries = [
            ROWS,
            Entry("bare rows, one statement each", "sqlite_rows", "beside", options={"kind": "single"}),
            Entry(BLOCKING, "ours", "fencelock"),
            Entry(ASYNCIO, "ours", "fencelock", options={**ONE, "through": own}, drill="tasks"),
            Entry("filelock, object kept", "file_lock"),
            Entry(NEW, "file_lock", options={"new": True}),
        ]
        field = Field(url, progress)
        figures = field.take_turns(entries, "pairs", rounds=15, count=1000)
    return [
        Result(
            "Uncontended pair on sqlite://",
            figures,
            field.notes(),
            verdicts=judged(figures),
            key="sqlite.pair",
        )
    ]


def judged(figures: Sequence[Figure]) -> list[Verdict]:
    new = named(figures, NEW)
    return [
        *to_limit(figures, 3.5, BLOCKING, key="limit"),
        *to_limit(figures, None, ASYNCIO),
        *ratio(f"{BLOCKING} to {NEW}", named(figures, BLOCKING), new, 1, key="filelock"),
    ]


MEMORY = Suite("memory", "acquire-release pair in memory", memory)
SQLITE = Suite("sqlite", "acquire-release pair on SQLite, beside bare rows and filelock", sqlite)
