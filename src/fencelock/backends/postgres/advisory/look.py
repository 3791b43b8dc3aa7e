"""Who holds an advisory lock and who waits: rows of the slots, checked against the server's locks.

A row counts only while its session has the lock, or waits for it. A holder without a row is somebody else's
session that uses the same key; it is shown with what the server knows of it.
"""

from __future__ import annotations

from typing import Any

from fencelock.backends.postgres.advisory.keys import Keys
from fencelock.backends.postgres.link import Statement
from fencelock.backends.postgres.records import entry
from fencelock.state import Entry, LockState

__all__ = ["inspect_statement", "list_statement", "states"]

COLUMNS = """place, owner, token, shared, waiting, extract(epoch FROM since),
    extract(epoch FROM clock_timestamp() - since), extract(epoch FROM deadline - clock_timestamp()),
    details"""

# A slot that was left is not cleared where its lock was exclusive: the newest row of a session counts.
LIVE = """SELECT one.* FROM (
        SELECT *, max(token) OVER (PARTITION BY pid, key, waiting) AS newest
        FROM {schema}.advisory_slots WHERE key IS NOT NULL) AS one
    JOIN {schema}.advisory_locks AS lock
        ON lock.pid = one.pid AND lock.key = one.key AND lock.shared = one.shared
        AND lock.granted = (one.waiting = 0)
    WHERE one.waiting < 2 AND (one.shared OR one.token = one.newest)
UNION ALL
SELECT one.*, 0 FROM {schema}.advisory_slots AS one JOIN pg_stat_activity AS live ON live.pid = one.pid
    WHERE one.waiting = 2 AND one.key IS NOT NULL AND one.deadline > clock_timestamp()"""

FOREIGN = """SELECT $2::bytea, 'session ' || lock.pid, 0::bigint, lock.shared, 0::smallint,
        extract(epoch FROM coalesce(live.state_change, clock_timestamp())),
        extract(epoch FROM clock_timestamp() - coalesce(live.state_change, clock_timestamp())), 0::numeric,
        json_build_object('client', coalesce(live.application_name, ''),
                          'host', coalesce(host(live.client_addr), ''), 'pid', lock.pid)::text
    FROM {schema}.advisory_locks AS lock JOIN pg_stat_activity AS live ON live.pid = lock.pid
    WHERE lock.key = $1 AND lock.granted AND NOT EXISTS (
        SELECT 1 FROM {schema}.advisory_slots AS one
        WHERE one.pid = lock.pid AND one.key = lock.key AND one.waiting = 0)"""


def inspect_statement(schema: str) -> Statement:
    """Return the statement that shows one key and place."""
    where = f'"{schema}"'
    live = LIVE.replace("{schema}", where)
    foreign = FOREIGN.replace("{schema}", where)
    return Statement(
        "inspect",
        f"SELECT * FROM (SELECT {COLUMNS} FROM ({live}) AS live WHERE key = $1 AND place = $2 "
        f"UNION ALL {foreign}) AS found ORDER BY 1, 5, 6",
        binary=[2],
    )


def list_statement(schema: str) -> Statement:
    """Return the statement that shows all places in a range."""
    live = LIVE.replace("{schema}", f'"{schema}"')
    return Statement(
        "list",
        f"SELECT {COLUMNS} FROM ({live}) AS live WHERE place >= $1 AND place < $2 ORDER BY 1, 5, 6",
        binary=[1, 2],
    )


def states(result: Any, keys: Keys) -> list[LockState]:
    """Return the locks in a result, ordered by name."""
    found: dict[bytes, tuple[list[Entry], list[Entry]]] = {}
    for row in range(result.ntuples):
        place, *words = (result.get_value(row, column) for column in range(9))
        holders, waiters = found.setdefault(bytes.fromhex(place[2:].decode()), ([], []))
        (holders if words[3] == b"0" else waiters).append(_entry(words))
    return [
        LockState(name=keys.name_of(place), holders=tuple(holders), waiters=tuple(waiters))
        for place, (holders, waiters) in found.items()
    ]


def _entry(words: list[bytes]) -> Entry:
    owner, token, shared, _, *rest = words
    return entry([owner, token, *(("shared", "0") if shared == b"t" else ("exclusive", "1")), *rest])
