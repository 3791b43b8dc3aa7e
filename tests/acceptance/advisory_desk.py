"""What the tests on PostgreSQL's advisory locks share: URLs, and what the server itself says of locks."""

from __future__ import annotations

from typing import Any

from crew import wait_until
from postgres_desk import OPEN_TRANSACTIONS, ask

from fencelock.backends.postgres.keys import advisory_key

__all__ = ["HELD", "WAITED", "advisory", "backend_of", "clean", "keys", "waits"]

KEY = "(classid::bigint << 32) | objid::bigint"
HELD = f"SELECT pid, {KEY} FROM pg_locks WHERE locktype = 'advisory' AND granted"
WAITED = f"SELECT pid, {KEY} FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


def advisory(url: str, **options: Any) -> str:
    """Return the URL of the advisory form of the same server."""
    words = "&".join(f"{key}={value}" for key, value in options.items())
    return url.replace("postgresql://", "postgresql+advisory://") + (f"?{words}" if words else "")


def keys(server: Any, statement: str = HELD) -> set[int]:
    """Return the keys that are held, or waited for."""
    return {key for _, key in ask(server, statement)}


def backend_of(server: Any, name: str, namespace: str = "") -> int:
    """Return the server's process that holds a lock."""
    ((pid, _),) = [row for row in ask(server, HELD) if row[1] == advisory_key(namespace, name)]
    return int(pid)


def waits(server: Any, count: int) -> None:
    """Return when so many stand in the server's queues."""
    wait_until(lambda: len(ask(server, WAITED)) == count, f"{count} wait")


def clean(server: Any) -> None:
    """Check that nothing is held, waited for or left open."""
    wait_until(lambda: not ask(server, HELD), "no advisory lock is held", 20)
    wait_until(lambda: not ask(server, WAITED), "nobody waits for an advisory lock", 20)
    wait_until(lambda: not ask(server, OPEN_TRANSACTIONS), "no transaction is open", 20)
