"""What `fencelock doctor` has to say about a MySQL or MariaDB server.

Each finding says what a setting means for a lock, and what to do about it. Everything is read, by
statements that any user may say; what this user may not see is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from fencelock.backends.checkup import timed
from fencelock.backends.mysql import schema
from fencelock.backends.mysql.blocking import BlockingPool
from fencelock.backends.mysql.failures import PRINT, Unusable
from fencelock.backends.mysql.pool import Rows, Wire
from fencelock.backends.mysql.server import Server
from fencelock.errors import BackendError, BackendUnavailable
from fencelock.findings import FORGETFUL, FORGETS_AT_RESTART, Finding, Pulse, Severity
from fencelock.runtime.blocking import BlockingRuntime, run

__all__ = ["Facts", "examine", "examine_sessions", "findings", "pulse", "pulse_sessions"]

SETTINGS = (
    *("version", "version_comment", "innodb_flush_log_at_trx_commit", "log_bin", "sync_binlog"),
    *("binlog_format", "read_only", "super_read_only", "innodb_read_only", "wsrep_on", "wsrep_provider"),
    *("max_statement_time", "max_execution_time"),
)
OLDEST = {"MariaDB": (10, 6), "MySQL": (8, 0)}
TIME = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
WORK = ("SELECT", "INSERT", "UPDATE")
MAKE = ("CREATE",)
FENCE = "check tokens at the resource"


class Facts(NamedTuple):
    """What was read."""

    settings: Mapping[str, str]
    tables: Mapping[str, str]
    """The storage engine of each table of ours that is there."""
    version: int | None
    """The version of the tables; `None` if they are not there."""
    grants: Sequence[str]
    is_replica: bool
    sessions: bool
    """Whether the locks are those of GET_LOCK."""


async def examine(wire: Wire, prefix: str, deadline: float, *, sessions: bool = False) -> Sequence[Finding]:
    """Look at the server. Changes nothing."""
    return findings(await _gather(wire, prefix, deadline, sessions))


async def pulse(wire: Wire, label: str, deadline: float) -> list[Pulse]:
    """Ask the server for its time."""

    async def told() -> float:
        rows, _ = await wire.persist(TIME, deadline)
        return int(rows[0][0]) / 1e6

    return [await timed(label, told)]


def examine_sessions(server: Server, prefix: str, deadline: float) -> Sequence[Finding]:
    """The same for GET_LOCK, on a connection of its own."""
    with _aside(server, prefix) as wire:
        return run(examine(wire, prefix, deadline, sessions=True))


def pulse_sessions(server: Server, prefix: str, deadline: float) -> Sequence[Pulse]:
    """The same for GET_LOCK, on a connection of its own. Connecting is not what is measured."""
    with _aside(server, prefix) as wire:
        run(pulse(wire, server.label, deadline))
        return run(pulse(wire, server.label, deadline))


@contextmanager
def _aside(server: Server, prefix: str) -> Iterator[Wire]:
    pool = BlockingPool(server)
    try:
        yield Wire(pool, BlockingRuntime(), server.database, prefix, "getlock")
    finally:
        run(pool.close())


async def _gather(wire: Wire, prefix: str, deadline: float, sessions: bool) -> Facts:
    async def ask(statement: str) -> Rows:
        return (await wire.persist(statement, deadline))[0]

    async def may_ask(statement: str) -> Rows | None:
        try:
            return await ask(statement)
        except BackendUnavailable as error:
            if error.transient:
                raise
            return None  # it is forbidden
        except (BackendError, Unusable):
            return None

    names = ", ".join(f"'{name}'" for name in SETTINGS)
    settings = await ask(f"SHOW VARIABLES WHERE Variable_name IN ({names})")
    tables = await ask(
        "SELECT TABLE_NAME, ENGINE FROM information_schema.TABLES "
        f"WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME LIKE '{prefix.replace('_', '=_')}%' ESCAPE '='"
    )
    version = await may_ask(f"SELECT MAX(version) FROM {prefix}{'getlock' if sessions else 'schema'}")
    replica = await may_ask("SHOW REPLICA STATUS")
    if replica is None:
        replica = await may_ask("SHOW SLAVE STATUS")  # as it was called before MySQL 8.0.22
    grants = await may_ask("SHOW GRANTS")
    ours = {"getlock", "tokens"} if sessions else {"schema", "buckets", "queue", "gone"}
    return Facts(
        settings={str(key): str(value) for key, value in settings},
        tables={str(name): str(engine) for name, engine in tables if str(name).removeprefix(prefix) in ours},
        version=version[0][0] if version else None,
        grants=[str(row[0]) for row in grants or ()],
        is_replica=bool(replica),
        sessions=sessions,
    )


def findings(facts: Facts) -> list[Finding]:
    """Turn what was read into findings."""
    made: Iterable[Finding | None] = (
        _version(facts),
        _tables(facts),
        _durability(facts),
        _binlog(facts),
        _format(facts),
        _role(facts),
        _galera(facts),
        _rights(facts),
        _limits(facts),
    )
    return [finding for finding in made if finding is not None]


def _version(facts: Facts) -> Finding:
    told = facts.settings.get("version", "")
    kind = "MariaDB" if "maria" in told.lower() else "MySQL"
    numbers = tuple(int(number) for number in re.findall(r"\d+", told)[:2])
    shown = f"{kind} {told.partition('-')[0]}"
    if numbers < OLDEST[kind]:
        oldest = ".".join(map(str, OLDEST[kind]))
        detail = f"{shown}: fencelock is made for {oldest} and newer"
        return Finding("warning", "version", detail, f"use {kind} {oldest} or newer")
    return Finding("ok", "version", shown)


def _tables(facts: Facts) -> Finding:
    wrong = sorted(name for name, engine in facts.tables.items() if engine.lower() != "innodb")
    if wrong:
        detail = f"{', '.join(wrong)}: not InnoDB, so neither transactions nor row locks"
        return Finding("critical", "tables", detail, f"ALTER TABLE {wrong[0]} ENGINE = InnoDB")
    if facts.version is None:
        return Finding(
            "notice", "tables", "not there yet: the first use makes them", "fencelock schema --print URL"
        )
    if facts.version > schema.VERSION:
        detail = f"of version {facts.version}, this fencelock knows {schema.VERSION}"
        return Finding("critical", "tables", detail, "install a newer fencelock")
    return Finding("ok", "tables", f"InnoDB, version {facts.version}")


def _durability(facts: Facts) -> Finding | None:
    value = facts.settings.get("innodb_flush_log_at_trx_commit")
    if value is None:
        return None
    told = f"innodb_flush_log_at_trx_commit = {value}"
    if value == "1":
        detail = "innodb_flush_log_at_trx_commit is 1: a grant is on disk before it counts"
        return Finding("ok", "durability", detail, setting=told)
    when = "a crash of the server, or a power loss," if value == "0" else "a power loss"
    detail = f"innodb_flush_log_at_trx_commit is {value}: {when} loses about a second of grants and tokens"
    if facts.sessions:
        detail = f"innodb_flush_log_at_trx_commit is {value}: after {when} tokens rise only as the clock does"
    severity: Severity = "critical" if value == "0" and not facts.sessions else "warning"
    return Finding(severity, "durability", detail, f"set it to 1, or {FENCE}", told, FORGETS_AT_RESTART)


def _binlog(facts: Facts) -> Finding | None:
    if not _on(facts, "log_bin"):
        return None
    value = facts.settings.get("sync_binlog", "1")
    if value == "1":
        return Finding("ok", "binary log", "sync_binlog is 1")
    detail = (
        f"sync_binlog is {value}: a power loss may take back what was committed last, and replicas miss it"
    )
    advice = f"set it to 1, or {FENCE}"
    return Finding("warning", "binary log", detail, advice, f"sync_binlog = {value}", FORGETS_AT_RESTART)


def _format(facts: Facts) -> Finding | None:
    if not _on(facts, "log_bin") or facts.settings.get("binlog_format") != "STATEMENT" or facts.sessions:
        return None
    detail = "binlog_format is STATEMENT, which does not go with READ COMMITTED: no lock can be acquired"
    return Finding("critical", "binlog format", detail, "set it to ROW or MIXED", "binlog_format = STATEMENT")


def _role(facts: Facts) -> Finding:
    read_only = [key for key in ("read_only", "super_read_only", "innodb_read_only") if _on(facts, key)]
    if read_only:
        advice = "give the address of the primary"
        told = ", ".join(f"{key} = ON" for key in read_only)
        return Finding("critical", "role", f"{', '.join(read_only)}: it takes no writes", advice, told)
    if facts.is_replica:
        detail = "a replica that takes writes: what is locked here is not locked on its primary"
        return Finding("critical", "role", detail, "give the address of the primary")
    return Finding("ok", "role", "takes writes")


def _galera(facts: Facts) -> Finding | None:
    if not _on(facts, "wsrep_on") or facts.settings.get("wsrep_provider", "none") == "none":
        return None
    if facts.sessions:
        detail = "a Galera node: GET_LOCK excludes nobody on the other nodes"
        return Finding("critical", "Galera", detail, "use mysql://", "wsrep_on = ON", FORGETFUL)
    detail = (
        "a Galera node: steps on two nodes are certified at commit, but leases expire by each node's clock"
    )
    return Finding("warning", "Galera", detail, "let all clients use one node", "wsrep_on = ON", FORGETFUL)


def _rights(facts: Facts) -> Finding | None:
    if not facts.grants:
        return None
    told = " ".join(facts.grants).upper()
    if "ALL PRIVILEGES" in told:
        return Finding("ok", "rights", "all that is needed")
    needed = WORK if facts.sessions else (*WORK, "DELETE", "EXECUTE")
    if facts.version is None:
        needed = (*needed, *MAKE) if facts.sessions else (*needed, *MAKE, "CREATE ROUTINE")
    missing = [right for right in needed if not re.search(rf"\b{right}\b", told)]
    if missing:
        detail = f"no {', '.join(missing)} among the grants of this user"
        return Finding("warning", "rights", detail, f"run the GRANTs that `{PRINT}` ends with")
    return Finding("ok", "rights", "all that is needed, as far as the grants tell")


def _limits(facts: Facts) -> Finding | None:
    try:
        seconds = float(facts.settings.get("max_statement_time", 0))
    except ValueError:
        return None
    if not 0 < seconds < 1:
        return None
    detail = f"max_statement_time is {seconds:g}s: steps that wait for the disk are cut off"
    told = f"max_statement_time = {seconds:g}"
    return Finding("warning", "limits", detail, "give this user a second at least", told)


def _on(facts: Facts, key: str) -> bool:
    return facts.settings.get(key, "OFF").upper() in {"ON", "1", "YES"}
