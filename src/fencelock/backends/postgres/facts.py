"""What a PostgreSQL server tells of itself: the facts that `doctor` judges, and its time.

Two questions are asked: one that every role may ask, and one about fencelock's tables, if they are there.
Nothing is changed. What a role may not see is left out, or said to be unknown.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from fencelock.backends.checkup import timed
from fencelock.backends.postgres.failures import Refused, said
from fencelock.backends.postgres.failures import unreachable as not_reached
from fencelock.backends.postgres.link import Broken
from fencelock.backends.postgres.pooler import keeps_sessions
from fencelock.backends.postgres.wire import Wire
from fencelock.findings import Pulse

__all__ = ["Facts", "gather", "pulse"]

SETTINGS = (
    *("fsync", "full_page_writes", "synchronous_commit", "synchronous_standby_names", "autovacuum"),
    *("statement_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout"),
    *("default_transaction_isolation", "transaction_read_only", "max_connections"),
    *("superuser_reserved_connections", "server_version", "server_version_num"),
)
TABLES = {
    "version": ["SELECT"],
    "buckets": ["SELECT", "UPDATE"],
    "queue": ["SELECT", "INSERT", "UPDATE", "DELETE"],
}
"""What a role must be allowed to do. The functions run with its rights."""

SERVER = """
SELECT json_build_object(
    'settings', (SELECT json_object_agg(name, setting) FROM pg_settings WHERE name IN ({settings})),
    'role', current_user, 'database', current_database(), 'standby', pg_is_in_recovery(),
    'may_create', has_database_privilege(current_database(), 'CREATE'),
    'schema', to_regnamespace('"{schema}"') IS NOT NULL,
    'replicas', (SELECT coalesce(json_agg(json_build_object('sync', sync_state)), '[]')
        FROM pg_stat_replication),
    'connections', (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
    'notifying', (SELECT count(*) FROM pg_locks WHERE locktype = 'object' AND database = 0 AND objid = 0
        AND classid = 'pg_database'::regclass AND NOT granted),
    'oldest', (SELECT json_build_object('pid', pid, 'age', age(backend_xmin),
            'seconds', extract(epoch FROM clock_timestamp() - xact_start))
        FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()
        ORDER BY age(backend_xmin) DESC, xact_start LIMIT 1))
"""
TIME = "SELECT to_json(extract(epoch FROM clock_timestamp()))"
OURS = """
SELECT json_build_object(
    'usage', true,
    'missing', (SELECT coalesce(json_agg(word || ' on ' || name), '[]')
        FROM (VALUES {wanted}) AS wanted (name, word)
        WHERE to_regclass('"{schema}".' || name) IS NULL
            OR NOT has_table_privilege(to_regclass('"{schema}".' || name), word)),
    'dead', (SELECT json_object_agg(relname, n_dead_tup) FROM pg_stat_all_tables
        WHERE schemaname = '{schema}'),
    'bytes', (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c
        WHERE relnamespace = to_regnamespace('"{schema}"') AND relkind = 'r'))
"""


@dataclass
class Facts:
    """What was found out. `ours` is empty where there is no schema, `version` where it cannot be read."""

    schema: str
    server: dict[str, Any]
    ours: dict[str, Any]
    version: int | None
    is_pooled: bool
    keeps_sessions: bool

    def setting(self, name: str) -> str:
        return str(self.server["settings"].get(name, ""))

    def number(self, name: str) -> int:
        text = self.setting(name)
        return int(text) if text.lstrip("-").isdigit() else 0


async def pulse(wire: Wire, deadline: float) -> list[Pulse]:
    """Ask the server for its time."""

    async def told() -> float:
        return float(await _ask(wire, TIME, deadline))

    return [await timed(wire.source.label, told)]


async def gather(wire: Wire, schema: str, deadline: float) -> Facts:
    """Ask the server everything. Changes nothing there."""
    settings = ", ".join(f"'{name}'" for name in SETTINGS)
    server = await _ask(wire, SERVER.format(settings=settings, schema=schema), deadline)
    ours, version = {}, None
    if server["schema"]:
        wanted = ", ".join(f"('{table}', '{right}')" for table, rights in TABLES.items() for right in rights)
        usage = await _ask(wire, f"SELECT to_json(has_schema_privilege('{schema}', 'USAGE'))", deadline)
        ours = {"usage": usage}
        if usage:
            ours = await _ask(wire, OURS.format(schema=schema, wanted=wanted), deadline)
            version = await _version(wire, schema, deadline)
    pooled, kept = await _between(wire, deadline)
    return Facts(schema, server, ours, version, pooled, kept)


async def _ask(wire: Wire, question: str, deadline: float) -> Any:
    try:
        result = await wire.run(question, deadline)
    except Refused as error:
        raise said(wire.source.label, error) from error
    return json.loads(result.get_value(0, 0))


async def _version(wire: Wire, schema: str, deadline: float) -> int | None:
    try:
        result = await wire.run(f'SELECT max(version) FROM "{schema}".version', deadline)
    except Refused:
        return None
    return int(result.get_value(0, 0) or 0)


async def _between(wire: Wire, deadline: float) -> tuple[bool, bool]:
    """Whether a pooler is in between, and whether it keeps sessions apart."""
    source = wire.source
    link = await source.dial(deadline)
    try:
        return link.is_pooled, await keeps_sessions(source, link, deadline)
    except Refused as error:
        raise said(source.label, error) from error
    except (Broken, TimeoutError) as error:
        raise not_reached(source.label, str(error)) from error
    finally:
        link.close()
