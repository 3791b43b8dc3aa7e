"""The limits on PostgreSQL, and what people write by hand: libpq's own calls (`psycopg.pq`), all prepared.

    try       pg_try_advisory_lock and pg_advisory_unlock: what the wire and the server take, nothing written
    wait      the same with pg_advisory_lock, which waits in the server, in the order of coming
    row       a row is inserted, unless one is there that has not expired, and deleted: two durable commits
    polled    the same, tried again after `sleep` seconds
    notified  the same, tried again when somebody who leaves has notified everybody

None of them has a queue of its own, a token or renewal.
"""

from __future__ import annotations

import hashlib
import os
import select
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from psycopg import pq

from bench.peers import TTL, Make

__all__ = ["Connection", "blocking", "key_of"]

TABLE = """
CREATE TABLE IF NOT EXISTS public.bench_lock
(name text PRIMARY KEY, owner text NOT NULL, deadline timestamptz NOT NULL)
"""
INSERT = f"""
INSERT INTO public.bench_lock AS old VALUES ($1, $2, clock_timestamp() + interval '{TTL} s')
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, deadline = excluded.deadline
WHERE old.deadline < clock_timestamp()
"""
DELETE = "DELETE FROM public.bench_lock WHERE name = $1 AND owner = $2"
DELETE_AND_NOTIFY = f"WITH gone AS ({DELETE} RETURNING 1) SELECT pg_notify('bench', '') FROM gone"
GOOD = {pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK}
LISTEN_LIMIT = 0.05
"""Seconds after which it is tried again, notified or not."""


def key_of(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)


class Connection:
    """One connection, and statements that it has prepared."""

    def __init__(self, url: str) -> None:
        self.pg = pq.PGconn.connect(url.encode())
        if self.pg.status != pq.ConnStatus.OK:
            raise ConnectionError(self.pg.error_message.decode())

    def prepare(self, name: bytes, text: str) -> None:
        self._checked(self.pg.prepare(name, text.encode()))

    def ask(self, name: bytes, values: list[bytes]) -> Any:
        return self._checked(self.pg.exec_prepared(name, values))

    def run(self, text: str) -> None:
        self._checked(self.pg.exec_(text.encode()))

    def _checked(self, result: Any) -> Any:
        if result.status not in GOOD:
            raise RuntimeError(result.error_message.decode())
        return result

    def close(self) -> None:
        self.pg.finish()


class Advisory:
    """The bare advisory lock."""

    take = "SELECT pg_try_advisory_lock($1)"
    taken = b"t"

    def __init__(self, url: str, name: str) -> None:
        self.connection = Connection(url)
        self.connection.prepare(b"take", self.take)
        self.connection.prepare(b"give", "SELECT pg_advisory_unlock($1)")
        self.values = [b"%d" % key_of(name)]

    def __enter__(self) -> None:
        if self.connection.ask(b"take", self.values).get_value(0, 0) != self.taken:
            raise RuntimeError("it was held already")

    def __exit__(self, *_: object) -> None:
        if self.connection.ask(b"give", self.values).get_value(0, 0) != b"t":
            raise RuntimeError("it was not held")


class WaitingAdvisory(Advisory):
    take = "SELECT pg_advisory_lock($1)"
    taken = b""


class Row:
    """The bare row."""

    give = DELETE

    def __init__(self, url: str, name: str) -> None:
        self.connection = Connection(url)
        self.connection.prepare(b"take", INSERT)
        self.connection.prepare(b"give", self.give)
        self.values = [name.encode(), os.urandom(8).hex().encode()]

    def __enter__(self) -> None:
        if not self.try_it():
            raise RuntimeError("the row was there already")

    def try_it(self) -> bool:
        return bool(self.connection.ask(b"take", self.values).command_tuples)

    def __exit__(self, *_: object) -> None:
        if not self.connection.ask(b"give", self.values).command_tuples:
            raise RuntimeError("the row was gone")


class PolledRow(Row):
    def __init__(self, url: str, name: str, sleep: float) -> None:
        super().__init__(url, name)
        self.sleep = sleep

    def __enter__(self) -> None:
        while not self.try_it():
            time.sleep(self.sleep)


class NotifiedRow(Row):
    give = DELETE_AND_NOTIFY

    def __init__(self, url: str, name: str) -> None:
        super().__init__(url, name)
        self.connection.run("LISTEN bench")
        self.poll = select.poll()
        self.poll.register(self.connection.pg.socket, select.POLLIN)

    def __enter__(self) -> None:
        pg = self.connection.pg
        while pg.notifies():
            pass
        while not self.try_it():
            while not pg.notifies() and self.poll.poll(LISTEN_LIMIT * 1000):
                pg.consume_input()


KINDS: dict[str, Callable[..., Any]] = {
    "try": Advisory,
    "wait": WaitingAdvisory,
    "row": Row,
    "polled": PolledRow,
    "notified": NotifiedRow,
}


@contextmanager
def blocking(url: str, kind: str = "try", **options: Any) -> Iterator[Make]:
    setup = Connection(url)
    setup.run("SET client_min_messages = error")
    setup.run(TABLE)
    setup.close()
    section = partial(KINDS[kind], url, **options)
    made: list[Any] = []

    def make(name: str) -> Any:
        made.append(section(name))
        return made[-1]

    yield make
    for one in made:
        one.connection.close()
