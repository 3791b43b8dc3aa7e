"""The statements of `postgresql+advisory://`, for the functions in `schema.sql`."""

from __future__ import annotations

from collections.abc import Sequence

from fencelock.backends.postgres.advisory.look import inspect_statement, list_statement
from fencelock.backends.postgres.link import Statement

__all__ = ["FALSE", "TRUE", "Statements"]

TRUE, FALSE = b"t", b"f"


class Statements:
    """The statements of a schema. Every reply begins with the session that gave it."""

    def __init__(self, schema: str) -> None:
        def call(name: str, count: int, binary: Sequence[int] = ()) -> Statement:
            marks = ", ".join(f"${place}" for place in range(1, count + 1))
            return Statement(
                name, f'SELECT pg_backend_pid(), "{schema}".advisory_{name}({marks})', binary=binary
            )

        self.take = call("take", 10, binary=[5])
        self.stand = call("stand", 8, binary=[5])
        self.queue = call("queue", 7)
        self.drop = call("drop", 2)
        self.leave = call("leave", 3)
        self.move = call("move", 4)
        self.renew = call("renew", 5)
        self.cancel = call("cancel", 2)
        self.give = Statement("give", "SELECT pg_backend_pid(), pg_advisory_unlock($1)")
        idle = "set_config('idle_session_timeout', $1, false)"
        self.idle = Statement("idle", f"SELECT pg_backend_pid(), {idle}")
        self.unnote = Statement(
            "unnote",
            f'WITH gone AS (UPDATE "{schema}".advisory_slots '
            "SET key = NULL, place = NULL, owner = NULL, details = NULL "
            "WHERE pid = $1 AND slot = $2 RETURNING 1) SELECT pg_backend_pid(), count(*) FROM gone",
        )
        # The lock is asked for once: only this session's one row with that number gets so far.
        self.quick = Statement(
            "quick",
            f'UPDATE "{schema}".advisory_slots SET key = $1, shared = false, waiting = 0, place = $3, '
            f"owner = $4, token = nextval('\"{schema}\".advisory_tokens'), since = clock_timestamp(), "
            "deadline = clock_timestamp() + $5 * interval '1 second', details = $6 "
            "WHERE pid = pg_backend_pid() AND slot = $2 AND pg_try_advisory_lock($1) RETURNING pid, token",
            binary=[3],
        )
        self.inspect = inspect_statement(schema)
        self.list = list_statement(schema)
