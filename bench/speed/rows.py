"""Which targets the page tells of: for each section its suites, and the keys of what is judged in them.

A key is that of the result and that of the verdict, with a slash between. What is listed here and was not
measured is shown as missing; what was judged and is not listed here is an error of a test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

__all__ = ["PICTURED", "SECTIONS", "Section", "suites"]


class Section(NamedTuple):
    """A heading, what is measured under it, and what is wanted of it."""

    title: str
    about: str
    suites: Sequence[str]
    rows: Sequence[str]


def under(key: str, *verdicts: str) -> list[str]:
    return [f"{key}/{verdict}" for verdict in verdicts]


def flavours(store: str) -> list[str]:
    return [*under(f"{store}.blocking", "limit"), *under(f"{store}.asyncio", "limit")]


LINEAR = ("linear-time", "linear-memory")
SECTIONS = (
    Section(
        "Redis: the uncontended pair",
        "One acquire and one release. The limit is a raw socket with packed commands; of many tasks a "
        "pipeline.",
        ["redis", "redis-asyncio"],
        [
            *under("redis.pair", "limit", "redis-py"),
            *under("redis.threads-8", "limit"),
            *under("redis.task-1", "limit"),
            *under("redis.tasks-100", "limit", "redis-asyncio"),
        ],
    ),
    Section(
        "Redis: one lock, many contenders",
        "An empty section. The limit is a token that is passed round by `RPUSH` and `BLPOP`. The share "
        "is that of the least served contender, of the best served one's. That threads of one process "
        "beat the limit is a stretch goal: it needs a lease that is passed on without asking the server.",
        ["redis-contended"],
        [
            *under("redis.processes-32", "limit", "peer", "share", "calls"),
            *under("redis.threads-32", "limit"),
        ],
    ),
    Section(
        "Held leases",
        "One client holds them all; a sweep renews each once. Growth is linear if a lease costs no more "
        "among ten times as many; half as much again is allowed for.",
        ["redis-leases", "leases"],
        [
            *under("redis.leases-10000", "sweep", "memory", "threads", "bystander"),
            *under("redis.leases-100000", *LINEAR),
            *under("memory.leases-100000", *LINEAR),
            *under("sqlite.leases-100000", *LINEAR),
        ],
    ),
    Section(
        "Redlock of five",
        "The limit sends to five sockets and then reads five, twice.",
        ["redlock"],
        under("redlock", "blocking", "asyncio", "blocking-hung", "asyncio-hung"),
    ),
    Section(
        "PostgreSQL and MariaDB",
        "The limit of a lease table is a bare row, inserted and deleted, both commits durable; that of "
        "advisory locks, and of a handoff, is the raw lock of the server, which writes nothing.",
        ["postgres", "postgres-advisory", "postgres-contended", "mysql", "mysql-contended"],
        [
            *under("postgres.blocking", "limit", "pals"),
            *under("postgres.asyncio", "limit"),
            *under("postgres-advisory.blocking", "limit"),
            *under("postgres.processes-32", "limit"),
            *flavours("mysql"),
        ],
    ),
    Section(
        "etcd, ZooKeeper, Consul",
        "One server each, which writes its log. The limit is the two cheapest calls that take a lock and"
        " give it back, by hand on a socket.",
        [
            *("etcd", "zookeeper", "consul"),
            *("etcd-contended", "zookeeper-contended", "consul-contended"),
        ],
        [
            *flavours("etcd"),
            *flavours("zookeeper"),
            *flavours("consul"),
            *under("zookeeper.processes-32", "rival"),
        ],
    ),
    Section(
        "SQLite and memory",
        "The limit is a bare row of the same durability, inserted and deleted in two transactions; in "
        "memory, a mutex of the standard library.",
        ["sqlite", "contended", "memory"],
        [
            *under("sqlite.pair", "limit", "filelock"),
            *under("sqlite.processes-8", "rate"),
            *under("memory", "python"),
        ],
    ),
    Section(
        "Starting up",
        "Whole programs, from before they are started. The limit is bare Python.",
        ["start"],
        [*under("start.import", "import", "drivers"), *under("start.run", "run")],
    ),
    Section(
        "Around the locks",
        "Events that nobody listens to, and that Prometheus does; and a merge of two sets of 100,000 "
        "elements, beside the union of two Python sets.",
        ["events", "crdt"],
        [
            *(
                row
                for kind in ("memory", "sqlite", "redis")
                for row in under(f"events.{kind}", "silent", "prometheus")
            ),
            *under("crdt.apart", "limit"),
            *under("crdt.met", "limit"),
        ],
    ),
    Section(
        "Instructions for one pair",
        "Of the client, counted by callgrind: what no noise touches. There is no target; a change is "
        "compared with the commit before (`make bench SUITE=instructions`).",
        ["instructions"],
        [],
    ),
)
PICTURED = ("redis-latency",)
"""Suites of which there is only a picture."""


def suites(sections: Sequence[Section] = SECTIONS) -> Mapping[str, None]:
    """Return all suites that the page needs, each once."""
    return dict.fromkeys([*(name for section in sections for name in section.suites), *PICTURED])
