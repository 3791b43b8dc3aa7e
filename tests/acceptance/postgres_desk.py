"""What the tests on PostgreSQL share: questions to the server, past fencelock, and roles to come as.

A client of either flavour is a `Desk` (see `redis_desk.py`); `server` is a member of a group of
tools/servers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import psycopg
from crew import wait_until
from redis_desk import FLAVOURS, AsyncDesk, Desk, desk_for, proxied

__all__ = [
    "FLAVOURS",
    "AsyncDesk",
    "Desk",
    "activity",
    "ask",
    "desk_for",
    "listeners",
    "nothing_left",
    "proxied",
    "residue",
    "role",
    "session",
    "sizes",
    "until_ready",
]


OPEN_TRANSACTIONS = "SELECT pid FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
ADVISORY_LOCKS = "SELECT pid FROM pg_locks WHERE locktype = 'advisory'"


def session(server: Any) -> psycopg.Connection[Any]:
    """Return a connection of the test's own. Every statement is a transaction."""
    return psycopg.connect(server.url, autocommit=True, application_name="test", connect_timeout=10)


def ask(server: Any, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """Return the rows of one statement."""
    with contextlib.closing(session(server)) as connection:
        cursor = connection.execute(statement, values or None)
        return cursor.fetchall() if cursor.description else []


def until_ready(server: Any) -> None:
    """Wait until the server takes connections again."""

    def answers() -> bool:
        try:
            return ask(server, "SELECT 1") == [(1,)]
        except psycopg.OperationalError:
            return False

    wait_until(answers, "the server answers")


def residue(server: Any, schema: str = "fencelock") -> list[tuple[Any, ...]]:
    """Return who stands in a queue, expired or not."""
    return ask(server, f"SELECT place, token, owner, held FROM {schema}.queue ORDER BY place, token")


def activity(server: Any, name: str = "fencelock") -> list[dict[str, Any]]:
    """Return the sessions that clients have at the server."""
    columns = ["pid", "state", "query", "wait_event"]
    rows = ask(
        server,
        f"SELECT {', '.join(columns)} FROM pg_stat_activity "
        "WHERE application_name = %s AND backend_type = 'client backend' ORDER BY backend_start",
        name,
    )
    return [dict(zip(columns, row, strict=True)) for row in rows]


def listeners(server: Any) -> list[int]:
    """Return the server's processes that clients listen on."""
    return [one["pid"] for one in activity(server) if one["query"].startswith("LISTEN")]


def nothing_left(server: Any, schema: str = "fencelock") -> None:
    """Check that nobody is in a queue, in a transaction, or has an advisory lock."""
    assert residue(server, schema) == []
    # The server takes a moment to notice that a connection was closed.
    wait_until(lambda: not ask(server, OPEN_TRANSACTIONS), "no transaction is open", 20)
    wait_until(lambda: not ask(server, ADVISORY_LOCKS), "no advisory lock is held", 20)


def sizes(server: Any, schema: str = "fencelock") -> dict[str, int]:
    """Return how many bytes each table has on disk, with its indexes."""
    rows = ask(
        server,
        "SELECT relname, pg_total_relation_size(c.oid) FROM pg_class c JOIN pg_namespace n "
        "ON n.oid = relnamespace WHERE nspname = %s AND relkind = 'r'",
        schema,
    )
    return {name: int(size) for name, size in rows}


@contextlib.contextmanager
def role(server: Any, name: str, *rules: str, password: str = "") -> Iterator[str]:
    """A role without any rights of its own; yield the URL to come as this role. `rules` are run after it."""
    ask(server, f"CREATE ROLE {name} LOGIN" + (f" PASSWORD '{password}'" if password else ""))
    for rule in rules:
        ask(server, rule)
    user = f"{name}:{quote(password)}" if password else name
    try:
        yield f"postgresql://{user}@{server.address}/fencelock"
    finally:
        ask(server, f"DROP OWNED BY {name} CASCADE")
        ask(server, f"DROP ROLE {name}")
