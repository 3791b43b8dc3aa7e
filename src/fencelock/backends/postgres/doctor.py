"""What `fencelock doctor` has to say about a PostgreSQL server: its settings, its role, what is in between.

Each finding says what a fact (see `facts.py`) means for a lock, and what to do about it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from fencelock.backends.postgres.facts import Facts, gather
from fencelock.backends.postgres.schema import VERSION
from fencelock.backends.postgres.wire import Wire
from fencelock.findings import FORGETFUL, FORGETS_AT_RESTART, NO_FAILOVER, Finding

__all__ = ["Facts", "examine", "findings"]

OLDEST = 130000
NEARLY_FULL = 0.9
SHORT = 1000
"""Milliseconds: a step may have to wait for its turn, and for the disk, for that long."""
LONG_OPEN = 600.0
OLD_SNAPSHOT = 1_000_000
MANY_DEAD = 100_000
NOTIFYING = 500
"""Commits in a second that may NOTIFY before they wait for each other, as measured: see postgresql.md."""
FENCE = "check tokens at the resource"


async def examine(wire: Wire, schema: str, deadline: float) -> list[Finding]:
    """Look at the server, and at what is between it and here."""
    return findings(await gather(wire, schema, deadline))


def findings(facts: Facts) -> list[Finding]:
    """Say what the facts mean for a lock."""
    made: Iterable[Finding | None] = (
        _server_version(facts),
        _role(facts),
        _schema(facts),
        _rights(facts),
        _durability(facts),
        _commit(facts),
        _replicas(facts),
        _pooler(facts),
        _notify(facts),
        _timeouts(facts),
        _isolation(facts),
        _connections(facts),
        _open_transactions(facts),
        _dead_rows(facts),
    )
    return [finding for finding in made if finding is not None]


def _server_version(facts: Facts) -> Finding:
    told = facts.setting("server_version")
    if facts.number("server_version_num") < OLDEST:
        detail = f"PostgreSQL {told}: fencelock is made for 13 and newer"
        return Finding("warning", "version", detail, "upgrade the server")
    return Finding("ok", "version", f"PostgreSQL {told}")


def _role(facts: Facts) -> Finding:
    if facts.server["standby"]:
        detail = "a standby: it grants nothing, and what it shows may be old"
        advice = "give the address of its primary, or target_session_attrs=read-write"
        return Finding("critical", "role", detail, advice, "pg_is_in_recovery() = true")
    if facts.setting("transaction_read_only") == "on":
        detail = f"a primary, but role {facts.server['role']} may only read: no lock can be acquired"
        advice = f"ALTER ROLE {facts.server['role']} RESET default_transaction_read_only"
        return Finding("critical", "role", detail, advice, "default_transaction_read_only = on")
    return Finding("ok", "role", "a primary")


def _schema(facts: Facts) -> Finding | None:
    schema = facts.schema
    if not facts.server["schema"]:
        if facts.server["may_create"] and not facts.server["standby"]:
            return Finding("ok", "schema", f"{schema!r} is not there yet: whoever comes first makes it")
        detail = f"{schema!r} is missing, and role {facts.server['role']} may not create it"
        return Finding(
            "critical",
            "schema",
            detail,
            "let the database's owner run what `fencelock schema --print URL` prints",
        )
    if facts.version is None:
        return None
    if facts.version > VERSION:
        detail = (
            f"{schema!r} is of version {facts.version}, and this fencelock knows versions up to {VERSION}"
        )
        return Finding(
            "critical", "schema", detail, "upgrade fencelock, or give another schema with ?schema=NAME"
        )
    return Finding("ok", "schema", f"{schema!r}, version {facts.version}")


def _rights(facts: Facts) -> Finding | None:
    role = facts.server["role"]
    if not facts.server["schema"]:
        return None
    advice = "run the GRANTs that `fencelock schema --print URL` ends with"
    if not facts.ours["usage"]:
        return Finding("critical", "rights", f"role {role} may not use schema {facts.schema!r}", advice)
    if facts.ours["missing"]:
        return Finding("critical", "rights", f"role {role} lacks {', '.join(facts.ours['missing'])}", advice)
    return Finding("ok", "rights", f"role {role} may do all that locks need")


def _durability(facts: Facts) -> Finding:
    off = [name for name in ("fsync", "full_page_writes") if facts.setting(name) == "off"]
    if not off:
        return Finding("ok", "durability", "fsync and full_page_writes are on")
    detail = (
        f"{' and '.join(off)} off: a power cut may lose or destroy grants and tokens, or the whole database"
    )
    told = ", ".join(f"{name} = off" for name in off)
    return Finding("critical", "durability", detail, told.replace("off", "on"), told, FORGETS_AT_RESTART)


def _commit(facts: Facts) -> Finding:
    mode = facts.setting("synchronous_commit")
    told = f"synchronous_commit = {mode}"
    if mode == "off":
        detail = "off for this role: fencelock makes its grants and renewals durable all the same"
        advice = "on, if other programs of this role count on what they have committed"
        return Finding("notice", "synchronous_commit", detail, advice, told)
    detail = f"{mode}: grants and renewals are on disk before they are answered"
    return Finding("ok", "synchronous_commit", detail, setting=told)


def _replicas(facts: Facts) -> Finding | None:
    replicas, names = facts.server["replicas"], facts.setting("synchronous_standby_names")
    if facts.server["standby"]:
        return None
    if not replicas and not names:
        detail = "none is connected: nothing can be lost in a failover, as there is none"
        return Finding("ok", "replicas", detail, refines=NO_FAILOVER)
    kinds = [replica["sync"] for replica in replicas]
    if kinds and None in kinds:
        detail = f"{len(kinds)} connected, of a kind that role {facts.server['role']} may not see"
        return Finding("notice", "replicas", detail, "ask as a member of pg_monitor")
    waits = [kind for kind in kinds if kind in {"sync", "quorum"}]
    told = f"synchronous_standby_names = '{names}'"
    if names and not waits:
        detail = (
            "synchronous_standby_names is set and no such standby is connected: every grant waits for one"
        )
        advice = "bring the standby back, or take it out of the setting"
        return Finding("critical", "replicas", detail, advice, told)
    mode = facts.setting("synchronous_commit")
    if names and mode in {"off", "local"}:
        detail = f"synchronous_commit is {mode}: no grant waits for the standbys, a failover loses the latest"
        told = f"{told}, synchronous_commit = {mode}"
        return Finding("warning", "replicas", detail, f"set it to on; {FENCE}", told, FORGETFUL)
    if waits:
        return _confirming(names, kinds, waits)
    detail = (
        f"{len(kinds)} connected, none synchronous: a failover loses the latest grants, so there may be two "
    )
    advice = f"set synchronous_standby_names, or {FENCE}"
    detail += "holders, and tokens given twice"
    return Finding("warning", "replicas", detail, advice, told, FORGETFUL)


def _confirming(names: str, kinds: list[str], waits: list[str]) -> Finding:
    """Of the standbys connected, `waits` are those that a commit may wait for."""
    found = re.match(r"\s*any\s+(\d+)", names, re.IGNORECASE)
    confirm = int(found[1]) if found else len(waits)
    if confirm < len(waits):
        detail = (
            f"each grant waits for any {confirm} of {len(waits)}: one that is promoted may lack the latest"
        )
        enough = len(waits) - confirm + 1
        advice = f"promote the one with the latest position among at least {enough} of them, or {FENCE}"
        return Finding("notice", "replicas", detail, advice, f"synchronous_standby_names = '{names}'")
    others = f"; {len(kinds) - len(waits)} more must not be promoted" if len(kinds) > len(waits) else ""
    return Finding("ok", "replicas", f"{len(waits)} of {len(kinds)} confirm each grant{others}")


def _pooler(facts: Facts) -> Finding:
    if not facts.is_pooled:
        return Finding("ok", "pooler", "none in between: waiters are woken by NOTIFY")
    if facts.keeps_sessions:
        return Finding("ok", "pooler", "one in session mode: waiters are woken by NOTIFY")
    detail = "one in transaction mode: LISTEN does not work, so waiters poll, up to four times a second each"
    advice = "give the server's own address, or a pool in session mode"
    return Finding("warning", "pooler", detail, advice, "pool_mode = transaction", (("wakeup", "poll"),))


def _notify(facts: Facts) -> Finding:
    """A commit that notifies keeps one lock of the whole server until it is on disk."""
    rule = (
        f"commits with a NOTIFY take turns in the whole server, which matters from about {NOTIFYING} in a "
        "second on"
    )
    waiting = facts.server["notifying"]
    if not waiting:
        return Finding("ok", "notify", f"no commit waits for another one's NOTIFY; {rule}")
    detail = f"commits that wait for another one's NOTIFY: {waiting}; {rule}"
    advice = "let programs on this server NOTIFY less often, or give the locks a server of their own"
    return Finding("notice", "notify", detail, advice)


def _timeouts(facts: Facts) -> Finding:
    statement = facts.number("statement_timeout")
    idle = {
        name: facts.number(name) for name in ("idle_session_timeout", "idle_in_transaction_session_timeout")
    }
    if 0 < statement < SHORT:
        detail = (
            f"statement_timeout is {statement} ms: a step that has to wait for its turn or for the disk fails"
        )
        advice = f"ALTER ROLE {facts.server['role']} SET statement_timeout = '5s'"
        return Finding("warning", "timeouts", detail, advice, f"statement_timeout = {statement}ms")
    if idle["idle_session_timeout"]:
        detail = (
            f"idle_session_timeout is {idle['idle_session_timeout']} ms: connections are made again and again"
        )
        told = f"idle_session_timeout = {idle['idle_session_timeout']}ms"
        return Finding("notice", "timeouts", detail, "leave it at 0 for this role", told)
    # Every step is one statement: no transaction of fencelock's is ever idle.
    return Finding("ok", "timeouts", "none that is too short for a step")


def _isolation(facts: Facts) -> Finding | None:
    level = facts.setting("default_transaction_isolation")
    if level == "read committed":
        return None
    detail = f"default_transaction_isolation is {level}: steps that meet are repeated, and slower"
    role = facts.server["role"]
    advice = f"ALTER ROLE {role} SET default_transaction_isolation = 'read committed'"
    return Finding("notice", "isolation", detail, advice, f"default_transaction_isolation = '{level}'")


def _connections(facts: Facts) -> Finding:
    used, most = facts.server["connections"], facts.number("max_connections")
    detail = f"{used} of {most} in use"
    if used >= NEARLY_FULL * (most - facts.number("superuser_reserved_connections")):
        advice = "raise max_connections, or give clients a smaller ?pool_size="
        detail = f"{detail}: whoever comes next may be turned away"
        return Finding("warning", "connections", detail, advice, f"max_connections = {most}")
    return Finding("ok", "connections", detail)


def _open_transactions(facts: Facts) -> Finding:
    oldest = facts.server["oldest"] or {}
    age, seconds = oldest.get("age") or 0, oldest.get("seconds") or 0.0
    if age < OLD_SNAPSHOT and seconds < LONG_OPEN:
        return Finding("ok", "transactions", "none has been open for long")
    since = f"for {seconds / 60:.0f} min" if seconds else f"for {age} transactions"
    detail = (
        f"process {oldest['pid']} has one open {since}: dead rows cannot be vacuumed, and steps become slower"
    )
    return Finding("warning", "transactions", detail, f"end it: SELECT pg_terminate_backend({oldest['pid']})")


def _dead_rows(facts: Facts) -> Finding | None:
    dead = facts.ours.get("dead") or {}
    if not dead:
        return None
    count, size = sum(dead.values()), int(facts.ours["bytes"])
    detail = f"{count} dead rows, {size / 2**20:.1f} MiB in all"
    if facts.setting("autovacuum") == "off":
        detail = f"{detail}; autovacuum is off, so they grow for ever"
        return Finding("warning", "tables", detail, "autovacuum = on", "autovacuum = off")
    if count > MANY_DEAD:
        return Finding(
            "warning", "tables", f"{detail}: autovacuum does not keep up", f'VACUUM "{facts.schema}".queue'
        )
    return Finding("ok", "tables", detail)
