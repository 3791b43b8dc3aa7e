"""What people write by hand: SELECT … FOR UPDATE SKIP LOCKED, do it, UPDATE, COMMIT. Nothing else.

Settings: psycopg, one connection, prepared by the driver. The row is locked, and the transaction open, while
the job is done: no lease, no token, no attempts, no reason, and what crashes its worker is tried for ever.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from bench.peers.drills import Run

__all__ = ["drained"]

TAKE = "SELECT id, payload FROM hand WHERE status = 'pending' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"
FILL = "INSERT INTO hand (payload, status) SELECT '{}', 'pending' FROM generate_series(1, %s)"
DONE = "UPDATE hand SET status = 'done' WHERE id = %s"


@contextmanager
def drained(url: str) -> Iterator[Run]:
    with psycopg.connect(url) as conn:
        conn.execute(
            "CREATE TABLE IF NOT EXISTS hand (id BIGSERIAL PRIMARY KEY, payload TEXT, status VARCHAR(16))"
        )
        conn.execute("CREATE INDEX IF NOT EXISTS hand_pending ON hand (id) WHERE status = 'pending'")
        conn.commit()

        def run(count: int) -> float:
            conn.execute("TRUNCATE hand")
            conn.execute(
                "INSERT INTO hand (payload, status) SELECT '{}', 'pending' FROM generate_series(1, %s)",
                (count,),
            )
            conn.commit()
            started, done = time.perf_counter(), 0
            while (row := conn.execute(TAKE).fetchone()) is not None:
                conn.execute(DONE, (row[0],))
                conn.commit()
                done += 1
            conn.rollback()
            if done != count:
                raise RuntimeError(f"{done} of {count} jobs were done")
            return time.perf_counter() - started

        yield run
