"""Who takes part."""

from __future__ import annotations

from bench.peers import Entry

__all__ = ["ASYNCPG", "FENCELOCK", "PALS", "PSYCOPG", "PSYCOPG_ASYNCIO", "RAW", "ROW", "TOOZ", "alone"]

RAW = Entry("raw pg_try_advisory_lock", "postgres_raw", "limit", options={"kind": "try"})
ROW = Entry("bare row, two durable commits", "postgres_raw", "limit", options={"kind": "row"})
FENCELOCK = Entry("fencelock", "ours", "fencelock")
PSYCOPG = Entry("psycopg, by hand", "psycopg_hand")
PSYCOPG_ASYNCIO = Entry("psycopg asyncio, by hand", "psycopg_hand")
ASYNCPG = Entry("asyncpg, by hand", "asyncpg_hand", environment="asyncpg")
PALS = Entry("pals", "pals", environment="pals")
TOOZ = Entry("tooz", "tooz", environment="tooz")


def alone(limit: Entry) -> Entry:
    """A limit of one asyncio task: asyncio cannot be faster than no asyncio."""
    return Entry(limit.label, limit.adapter, "limit", options=limit.options, drill="pairs")
