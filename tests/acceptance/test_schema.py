"""`fencelock schema` on a real server: by itself, by psql, and by a role that may not."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from cli_helpers import fencelock_command
from tools.servers import start
from tools.servers.packages import program

import fencelock


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with start("postgres") as group:
        yield group


def query(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def tables(url: str, schema: str) -> set[str]:
    rows = query(url, f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'")
    return {row[0] for row in rows}


def psql(url: str, script: str) -> None:
    command = [program("psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", url]
    subprocess.run(command, input=script, text=True, check=True, timeout=30, capture_output=True)


def as_role(url: str, role: str) -> str:
    query(url, f"CREATE ROLE {role} LOGIN")
    return re.sub(r"//[^@]*@", f"//{role}@", url)


def test_it_makes_what_is_missing_and_may_be_run_again(server: Any) -> None:
    url = f"{server.url}?schema=made"
    for _ in range(2):
        done = fencelock_command(url, "schema")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"the schema is complete: {url}\n"
        assert {"queue", "buckets", "version"} <= tables(server.url, "made")
    query(server.url, "DROP TABLE made.queue CASCADE")
    assert fencelock_command(url, "schema").returncode == 0
    assert "queue" in tables(server.url, "made")
    assert query(server.url, "SELECT count(*) FROM made.version") == [(1,)]


def test_what_it_prints_is_run_by_psql_and_again(server: Any) -> None:
    url = f"{server.url}?schema=printed"
    script = fencelock_command(url, "schema", "--print").stdout
    assert tables(server.url, "printed") == set()
    psql(server.url, script)
    query(server.url, "UPDATE printed.buckets SET token = 10 WHERE bucket = 0")
    psql(server.url, script)
    assert query(server.url, "SELECT token FROM printed.buckets WHERE bucket = 0") == [(10,)]
    with fencelock.Client(url) as locks, locks.lock("x"):
        assert len(locks.inspect("x").holders) == 1


def test_a_role_without_rights_and_the_grants_it_needs(server: Any) -> None:
    url = f"{server.url}?schema=granted"
    poor = as_role(server.url, "poor") + "?schema=granted"
    done = fencelock_command(poor, "schema")
    assert (done.returncode, done.stdout) == (69, "")
    assert done.stderr.count("\n") == 1 and "fencelock schema --print" in done.stderr
    script = fencelock_command(url, "schema", "--print").stdout
    psql(server.url, script)
    assert fencelock_command(poor, "ls").returncode == 69
    grants = [line[3:] for line in script.splitlines() if line.startswith("-- GRANT") and "worker" in line]
    psql(server.url, "\n".join(grants).replace("TO worker;", "TO poor;"))
    with fencelock.Client(poor) as locks:
        with locks.rwlock("x").read(), locks.rwlock("x").read() as lease:
            assert len(locks.inspect("x").holders) == 2 and lease.verify()
        lease = locks.lock("x").acquire()
        assert len(locks.force_release("x")) == 1 and not lease.verify()


def test_a_schema_of_a_newer_version_is_left_alone(server: Any) -> None:
    url = f"{server.url}?schema=newer"
    assert fencelock_command(url, "schema").returncode == 0
    query(server.url, "UPDATE newer.version SET version = 99")
    done = fencelock_command(url, "schema")
    assert (done.returncode, done.stdout) == (64, "")
    assert "version 99" in done.stderr and done.stderr.count("\n") == 1
