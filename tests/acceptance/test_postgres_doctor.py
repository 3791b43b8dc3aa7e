"""The doctor of PostgreSQL, on real servers whose settings are changed under it; and, on facts alone, what it
says of servers that are not at hand.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import fencelock_command
from crew import wait_until
from postgres_desk import FLAVOURS, activity, ask, desk_for, nothing_left, proxied, role, session
from test_postgres_bad_input import standby
from tools.servers import start

from fencelock import BackendUnavailable, Client
from fencelock.backends.base import Finding
from fencelock.backends.postgres.doctor import MANY_DEAD, Facts, findings
from fencelock.backends.postgres.schema import VERSION
from fencelock.runtime import blocking

SECRET = "a-password-nobody-may-see"
SUBJECTS = [
    *("version", "role", "schema", "rights", "durability", "synchronous_commit", "replicas", "pooler"),
    *("notify", "timeouts", "connections", "transactions", "tables"),
]
GRANTS = (
    "GRANT USAGE ON SCHEMA fencelock TO worker",
    "GRANT ALL ON ALL TABLES IN SCHEMA fencelock TO worker",
)


@pytest.fixture(scope="module")
def group() -> Iterator[Any]:
    with start("postgres", settings={"max_connections": "30"}) as group:
        with Client(group.url) as locks:
            locks.lock("warm up").acquire().release()
        yield group


@pytest.fixture
def server(group: Any) -> Iterator[Any]:
    server = group.members[0]
    yield server
    wait_until(lambda: not activity(server), "nobody is connected")
    nothing_left(server)


def examine(url: str, flavour: str = "blocking") -> dict[str, Finding]:
    with desk_for(flavour, url) as desk:
        found: Sequence[Finding] = (
            desk(desk.locks._session.backend.doctor) if flavour == "asyncio" else run(desk)
        )
    for finding in found:
        text = f"{finding.subject}{finding.detail}{finding.advice}"
        assert SECRET not in text
        assert "\n" not in text
    return {finding.subject: finding for finding in found}


def run(desk: Any) -> Sequence[Finding]:
    found: Sequence[Finding] = blocking.run(desk.locks._session.backend.doctor())
    return found


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_all_is_well(server: Any, flavour: str) -> None:
    found = examine(server.url, flavour)
    assert list(found) == SUBJECTS
    assert {finding.severity for finding in found.values()} == {"ok"}
    assert found["version"].detail.startswith("PostgreSQL 1")


def test_the_command(server: Any) -> None:
    done = fencelock_command("", "doctor", "--json", server.url)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {one["subject"]: one["severity"] for one in json.loads(done.stdout)["findings"]}
    assert set(found) == {*SUBJECTS, "clock", "latency"}
    assert found["clock"] == "ok"


@pytest.mark.parametrize(
    ("rule", "subject", "severity", "says"),
    [
        ("SET synchronous_commit = off", "synchronous_commit", "notice", "all the same"),
        ("SET statement_timeout = '50ms'", "timeouts", "warning", "50 ms"),
        ("SET idle_session_timeout = '5s'", "timeouts", "notice", "5000 ms"),
        ("SET default_transaction_read_only = on", "role", "critical", "may only read"),
        ("SET default_transaction_isolation = 'serializable'", "isolation", "notice", "serializable"),
    ],
)
def test_what_a_role_has_of_its_own(server: Any, rule: str, subject: str, severity: str, says: str) -> None:
    with role(server, "worker", *GRANTS, f"ALTER ROLE worker {rule}", password=SECRET) as url:
        found = examine(url)
    assert found[subject].severity == severity
    assert says in found[subject].detail
    others = {finding.severity for name, finding in found.items() if name != subject}
    assert others == {"ok"}


def test_rights(server: Any) -> None:
    with role(server, "worker", password=SECRET) as url:
        found = examine(url)
        assert found["rights"].severity == "critical"
        assert "may not use schema" in found["rights"].detail
        ask(server, GRANTS[0])
        assert "SELECT on version" in examine(url)["rights"].detail
        ask(server, GRANTS[1])
        assert examine(url)["rights"].severity == "ok"
        ask(server, "REVOKE DELETE ON fencelock.queue FROM worker")
        assert examine(url)["rights"].detail == "role worker lacks DELETE on queue"
        missing = examine(f"{url}?schema=other")["schema"]
        assert missing.severity == "critical"
        assert "fencelock schema --print" in missing.advice
    assert examine(f"{server.url}?schema=other")["schema"].severity == "ok"
    assert ask(server, "SELECT to_regnamespace('other')") == [(None,)], "it looks, and makes nothing"


def test_a_newer_schema(server: Any) -> None:
    ask(server, "UPDATE fencelock.version SET version = %s", VERSION + 1)
    try:
        found = examine(server.url)["schema"]
        assert found.severity == "critical"
        assert f"version {VERSION + 1}" in found.detail
    finally:
        ask(server, "UPDATE fencelock.version SET version = %s", VERSION)


def test_connections_that_are_nearly_used_up(server: Any) -> None:
    with ExitStack() as stack:
        for _ in range(25):
            stack.enter_context(closing(session(server)))
        found = examine(server.url)["connections"]
    assert found.severity == "warning"
    assert "of 30" in found.detail


def test_a_transaction_that_is_open(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencelock.backends.postgres.doctor.LONG_OPEN", 0.2)
    with closing(session(server)) as sleeper:
        sleeper.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        sleeper.execute("SELECT 1")
        time.sleep(0.3)
        found = examine(server.url)["transactions"]
        pid = sleeper.info.backend_pid
        sleeper.execute("ROLLBACK")
    assert found.severity == "warning"
    assert f"process {pid}" in found.detail
    assert str(pid) in found.advice


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_poolers(flavour: str) -> None:
    with start("pgbouncer") as group:
        assert "none" in examine(group.urls["direct"], flavour)["pooler"].detail
        for mode, severity in (("session", "ok"), ("transaction", "warning")):
            found = examine(group.urls[mode], flavour)["pooler"]
            assert found.severity == severity
            assert f"{mode} mode" in found.detail
        nothing = "SELECT pid FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
        assert ask(group.members[0], nothing) == []


def test_durability() -> None:
    with start(
        "postgres", settings={"fsync": "off", "full_page_writes": "off", "autovacuum": "off"}
    ) as group:
        with Client(group.url) as locks:
            locks.lock("job").acquire().release()
        found = examine(group.url)
        assert found["durability"].severity == "critical"
        assert "fsync and full_page_writes off" in found["durability"].detail
        assert found["tables"].severity == "warning"
        done = fencelock_command("", "doctor", group.url)
        assert done.returncode == 2, done.stdout + done.stderr


def test_replicas(tmp_path: Path) -> None:
    with standby(tmp_path) as (first, second):
        wait_until(lambda: ask(first, "SELECT 1 FROM pg_stat_replication"), "the standby is connected")
        assert "none synchronous" in examine(first.url)["replicas"].detail
        assert examine(first.url)["replicas"].severity == "warning"
        assert examine(second.url)["role"].severity == "critical"
        assert "replicas" not in examine(second.url)
        ask(first, "ALTER SYSTEM SET synchronous_standby_names = '*'")
        ask(first, "SELECT pg_reload_conf()")
        wait_until(lambda: examine(first.url)["replicas"].severity == "ok", "it is synchronous")
        assert "1 of 1 confirm" in examine(first.url)["replicas"].detail
        with role(first, "worker", *GRANTS) as url:
            assert "may not see" in examine(url)["replicas"].detail
        second.stop()
        wait_until(lambda: examine(first.url)["replicas"].severity == "critical", "it is gone")
        assert "every grant waits" in examine(first.url)["replicas"].detail
        ask(first, "ALTER SYSTEM RESET synchronous_standby_names")
        ask(first, "SELECT pg_reload_conf()")


def test_commits_that_wait_for_the_notify_of_another(server: Any) -> None:
    """A commit that waits for a standby keeps the lock that NOTIFY takes; the others wait for that."""
    with ExitStack() as stack:
        sessions = [stack.enter_context(closing(session(server))) for _ in range(4)]
        write = "SELECT pg_logical_emit_message(true, 'a', 'b'), pg_notify('news', '')"
        threads = [threading.Thread(target=one.execute, args=(write,)) for one in sessions]
        for thread in threads:
            stack.callback(thread.join, 10)
        stack.callback(ask, server, "SELECT pg_reload_conf()")
        stack.callback(ask, server, "ALTER SYSTEM RESET synchronous_standby_names")
        ask(server, "ALTER SYSTEM SET synchronous_standby_names = 'nowhere'")
        ask(server, "SELECT pg_reload_conf()")
        wait_until(lambda: ask(server, "SHOW synchronous_standby_names") == [("nowhere",)], "it is set")
        for thread in threads:
            thread.start()
        found = wait_until(lambda: _with_notice(server.url), "they wait")
    assert found.severity == "notice"
    assert "about 500 in a second" in found.detail
    assert examine(server.url)["notify"].severity == "ok"


def _with_notice(url: str) -> Finding | None:
    found = examine(url)["notify"]
    return found if "NOTIFY: 3;" in found.detail else None


def test_one_that_does_not_answer(server: Any) -> None:
    with proxied(server.url) as (proxy, url):
        proxy.refuse()
        with desk_for("blocking", url) as desk, pytest.raises(BackendUnavailable):
            run(desk)


# On facts alone ---------------------------------------------------------------------------------------

FACTS = Facts(
    schema="fencelock",
    server={
        "settings": {
            "server_version": "15.4",
            "server_version_num": "150004",
            "fsync": "on",
            "synchronous_commit": "on",
            "max_connections": "100",
            "default_transaction_isolation": "read committed",
        },
        "role": "worker",
        "database": "d",
        "standby": False,
        "may_create": True,
        "schema": True,
        "replicas": [],
        "connections": 3,
        "notifying": 0,
        "oldest": None,
    },
    ours={"usage": True, "missing": [], "dead": {"queue": 10, "buckets": 5}, "bytes": 1 << 20},
    version=VERSION,
    is_pooled=False,
    keeps_sessions=True,
)


def found_in(facts: Facts, subject: str) -> Finding:
    return next(finding for finding in findings(facts) if finding.subject == subject)


def with_settings(**settings: str) -> Facts:
    return replace(FACTS, server={**FACTS.server, "settings": {**FACTS.server["settings"], **settings}})


@pytest.mark.parametrize(
    ("facts", "subject", "severity", "says"),
    [
        (with_settings(server_version="12.9", server_version_num="120009"), "version", "warning", "13"),
        (
            replace(FACTS, ours={**FACTS.ours, "dead": {"queue": MANY_DEAD + 1}}),
            "tables",
            "warning",
            "does not keep up",
        ),
        (
            replace(FACTS, server={**FACTS.server, "oldest": {"pid": 7, "age": 5_000_000, "seconds": None}}),
            "transactions",
            "warning",
            "process 7 has one open for 5000000 transactions",
        ),
        (
            replace(
                with_settings(synchronous_standby_names="*", synchronous_commit="local"),
                server={
                    **with_settings(synchronous_standby_names="*", synchronous_commit="local").server,
                    "replicas": [{"sync": "sync"}],
                },
            ),
            "replicas",
            "warning",
            "no grant waits",
        ),
    ],
)
def test_facts(facts: Facts, subject: str, severity: str, says: str) -> None:
    finding = found_in(facts, subject)
    assert finding.severity == severity
    assert says in finding.detail
    assert finding.advice


def test_standbys_of_which_some_confirm() -> None:
    facts = with_settings(synchronous_standby_names="one")
    facts.server["replicas"] = [{"sync": "sync"}, {"sync": "async"}]
    finding = found_in(facts, "replicas")
    assert finding.severity == "ok"
    assert finding.detail == "1 of 2 confirm each grant; 1 more must not be promoted"


def test_standbys_of_which_any_may_confirm() -> None:
    facts = with_settings(synchronous_standby_names="ANY 1 (one, two, three)")
    facts.server["replicas"] = [{"sync": "quorum"}] * 3
    finding = found_in(facts, "replicas")
    assert finding.severity == "notice"
    assert finding.detail.startswith("each grant waits for any 1 of 3: ")
    assert "among at least 3 of them" in finding.advice
    facts = with_settings(synchronous_standby_names="any 2 (one, two)")
    facts.server["replicas"] = [{"sync": "quorum"}] * 2
    finding = found_in(facts, "replicas")
    assert (finding.severity, finding.detail) == ("ok", "2 of 2 confirm each grant")
