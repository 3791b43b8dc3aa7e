"""The pages on MySQL say what is: their programs run, guarantees and options are those of the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import fencelock_command
from mysql_desk import ask, getlock
from tools.servers import start

from fencelock.backends.mysql.getlock import KNOWN
from fencelock.backends.mysql.server import OPTIONS

DOCS = Path(__file__).parents[2] / "docs" / "backends"
PAGES = {"mysql": "mysql.md", "mysql+getlock": "mysql-getlock.md"}
SAYS = {"mysql": r"token \d+\nholders \['-c'\]\n", "mysql+getlock": r"token \d+\n"}


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with start("mariadb") as group:
        yield group.members[0]


@pytest.mark.parametrize("form", PAGES)
def test_the_program_runs(form: str, server: Any) -> None:
    block = re.compile(r"^```python file=(\S+)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
    ((name, text),) = block.findall((DOCS / PAGES[form]).read_text())
    assert name == "first.py"
    urls = {"MYSQL_URL": server.url, "MYSQL_GETLOCK_URL": getlock(server.url), "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, **urls},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(SAYS[form], done.stdout)


def test_the_pages_have_the_options() -> None:
    part = (DOCS / "mysql.md").read_text().partition("## URL")[2].partition("## Bring")[0]
    named = {option for row in re.findall(r"^\| (`\w+=.*?) \|", part, flags=re.MULTILINE)
             for option in re.findall(r"`(\w+)=", row)}  # fmt: skip
    assert named == OPTIONS | {"namespace"}
    part = (DOCS / "mysql-getlock.md").read_text().partition("## URL")[2].partition("## How")[0]
    assert set(re.findall(r"^\| `(\w+)=", part, flags=re.MULTILINE)) == KNOWN - OPTIONS


@pytest.mark.parametrize("form", PAGES)
def test_the_schema_is_made_by_command(form: str, server: Any) -> None:
    ask(server, "DROP DATABASE IF EXISTS made", "CREATE DATABASE made")
    url = f"{form}://fencelock:reef-knot@{server.address}/made"
    for _ in range(2):
        told = fencelock_command(url, "schema", url)
        assert told.returncode == 0, told.stderr
    printed = fencelock_command(url, "schema", "--print", url)
    assert printed.stdout.startswith("-- fencelock's")
    tables = re.findall(r"CREATE TABLE IF NOT EXISTS (\w+)", printed.stdout)
    assert sorted(row[0] for row in ask(server, "SHOW TABLES FROM made")) == sorted(tables)


@pytest.mark.parametrize("form", PAGES)
def test_doctor_is_content(form: str, server: Any) -> None:
    url = server.url if form == "mysql" else getlock(server.url)
    told = fencelock_command(url, "doctor", url)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "innodb_flush_log_at_trx_commit is 1" in told.stdout
    ask(server, "SET GLOBAL innodb_flush_log_at_trx_commit = 2")
    try:
        told = fencelock_command(url, "doctor", "--fail-on", "warning", url)
        assert told.returncode == 1, told.stdout
        assert "innodb_flush_log_at_trx_commit = 2" in told.stdout
        assert "a rare double grant is possible" in told.stdout
        ask(server, "SET GLOBAL innodb_flush_log_at_trx_commit = 0")
        told = fencelock_command(url, "doctor", url)
        assert told.returncode == (2 if form == "mysql" else 0), told.stdout
        assert "innodb_flush_log_at_trx_commit = 0" in told.stdout
    finally:
        ask(server, "SET GLOBAL innodb_flush_log_at_trx_commit = 1")
