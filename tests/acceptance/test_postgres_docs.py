"""The pages on PostgreSQL say what is: their programs run, the guarantees are those of the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tools.servers import start

from fencelock.backends.postgres.address import OWN

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "backends" / "postgresql.md"
SAYS = {
    "backends/postgresql.md": {
        "first.py": r"token \d+\nholders \['-c'\]\n",
        "pool.py": r"the client is closed, the pool is not: True\n",
        "engine.py": r"done\n",
    },
    "howto/lock-inside-a-transaction.md": {
        "named.py": r"lock 'import:customer-7' not acquired within 0\.2\d*s\nfree again\n",
        "session.py": r"done\n",
        "queue.py": r"one has job 1, two has job 2\n",
    },
}
CASES = [(page, name) for page, programs in SAYS.items() for name in programs]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with start("postgres") as group:
        yield str(group.url)


def files(page: str) -> dict[str, str]:
    """The programs on a page, by file name."""
    block = re.compile(r"^```python file=(\S+)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
    return dict(block.findall((DOCS / page).read_text()))


def launched(text: str, url: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "DATABASE_URL": url, "PYTHONWARNINGS": "error"}
    return subprocess.Popen([sys.executable, "-c", text], env=environment, stdout=subprocess.PIPE, text=True)


def finished(programs: Sequence[subprocess.Popen[str]]) -> list[str]:
    said = [program.communicate(timeout=60)[0] for program in programs]
    assert [program.returncode for program in programs] == [0] * len(programs)
    return said


@pytest.mark.parametrize(("page", "name"), CASES)
def test_a_program_runs(page: str, name: str, url: str) -> None:
    (said,) = finished([launched(files(page)[name], url)])
    assert re.fullmatch(SAYS[page][name], said)


@pytest.mark.parametrize("page", SAYS)
def test_none_is_left_out(page: str) -> None:
    assert files(page).keys() == SAYS[page].keys()


def test_the_old_lock_and_the_new_one_side_by_side(url: str) -> None:
    programs = files("howto/migrate-from-pg-advisory-locks.md")
    assert list(programs) == ["before.py", "after.py", "both.py"]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE stock (id integer PRIMARY KEY, sold integer)")
        connection.execute("INSERT INTO stock VALUES (7, 0)")
        for step in (["before.py", "both.py"], ["both.py", "after.py"]):
            connection.execute("UPDATE stock SET sold = 0")
            assert finished([launched(programs[name], url) for name in step * 2]) == ["done\n"] * 4
            row: Any = connection.execute("SELECT sold FROM stock").fetchone()
            assert row[0] == 40, f"{step} do not exclude each other"


def test_the_page_has_the_options() -> None:
    text = PAGE.read_text()
    part = text.partition("## URL")[2].partition("## Set-up")[0]
    options = set(re.findall(r"^\| `(\w+)=", part, flags=re.MULTILINE))
    assert options == OWN | {"namespace"}
