"""The uncontended pair on MariaDB, blocking and asyncio: the lease table, and the GET_LOCK form.

The limit is a bare row, inserted and deleted by PyMySQL, both commits durable. The raw GET_LOCK, which
writes nothing, shows what the wire, the driver and the server take without a disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tools.servers import start

from bench.children import Field
from bench.measure import Figure, Result, Suite
from bench.peers import Entry
from bench.suites.targets import named, ratio, to_limit

__all__ = ["FENCELOCK", "GETLOCK", "SUITE", "TOOZ"]

ROUNDS, COUNT = 15, 300
RAW = Entry("raw GET_LOCK", "mysql_raw", "limit", options={"kind": "try"}, drill="pairs")
ROW = Entry("bare row, two durable commits", "mysql_raw", "limit", options={"kind": "row"}, drill="pairs")
FENCELOCK = Entry("fencelock", "ours", "fencelock")
GETLOCK = Entry("fencelock, GET_LOCK", "ours", "fencelock", options={"scheme": "mysql+getlock"})
TOOZ = Entry("tooz", "tooz", environment="tooz")
ASYNCMY = Entry("asyncmy GET_LOCK, by hand", "asyncmy_hand")


def measure(progress: Callable[[str], None]) -> Sequence[Result]:
    with start("mariadb") as group:
        field = Field(group.url, progress)
        entries = [ROW, RAW, FENCELOCK, GETLOCK, TOOZ]
        figures = field.take_turns(entries, "pairs", rounds=ROUNDS, count=COUNT)
        blocking = result(field, figures, "blocking")

        entries = [ROW, RAW, FENCELOCK, GETLOCK, ASYNCMY]
        figures = field.take_turns(entries, "tasks", rounds=ROUNDS, count=COUNT, options={"tasks": 1})
        return [blocking, result(field, figures, "asyncio, one task")]


def result(field: Field, figures: Sequence[Figure], flavour: str) -> Result:
    raw = named(figures, RAW.label)
    verdicts = [
        *to_limit(figures, 1.6),
        *ratio("fencelock to the raw GET_LOCK", named(figures, FENCELOCK.label), raw, None),
        *ratio("the GET_LOCK form to the raw one", named(figures, GETLOCK.label), raw, None),
    ]
    title = f"Uncontended pair on mysql://, {flavour}"
    key = f"mysql.{flavour.partition(',')[0]}"
    return Result(title, figures, field.notes(), verdicts=verdicts, key=key)


SUITE = Suite("mysql", "acquire-release pair on MariaDB, beside bare rows and raw GET_LOCK", measure)
