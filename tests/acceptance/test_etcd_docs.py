"""The pages on etcd say what is: their programs run, the options are those of the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from etcd_desk import keys, leases, value
from tools.servers import start

from fencelock.backends import backend_from_url
from fencelock.backends.etcd.address import OPTIONS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "backends" / "etcd.md"
SAYS = {
    "backends/etcd.md": {
        "first.py": r"token \d+\nholders \['-c'\]\n",
        "guarded.py": r"written True\nwritten False\n",
    },
    "howto/migrate-from-etcd.md": {
        "after.py": r"held, token \d+\n",
    },
}
CHOICES = {
    "etcd": "etcd://localhost",
    "ZooKeeper": "zookeeper://localhost",
    "Consul": "consul://localhost",
    "Redis": "redis://localhost",
    "Redlock": "redlock://a,b,c",
    "PostgreSQL": "postgresql://localhost/app",
    "MySQL": "mysql://localhost/app",
    "SQLite": "sqlite:///locks.db",
}
CASES = [(page, name) for page, programs in SAYS.items() for name in programs]


@pytest.fixture(scope="module")
def group() -> Iterator[Any]:
    with start("etcd") as group:
        yield group


def files(page: str) -> dict[str, str]:
    """The programs on a page, by file name."""
    block = re.compile(r"^```python file=(\S+)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
    return dict(block.findall((DOCS / page).read_text()))


def run(text: str, url: str) -> str:
    environment = {**os.environ, "ETCD_URL": url, "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, "-c", text],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    return done.stdout


@pytest.mark.parametrize(("page", "name"), CASES)
def test_a_program_runs_and_leaves_nothing(page: str, name: str, group: Any) -> None:
    assert re.fullmatch(SAYS[page][name], run(files(page)[name], group.url))
    assert keys(group.members[0]) == []
    assert leases(group.members[0]) == []


@pytest.mark.parametrize("page", SAYS)
def test_none_is_left_out(page: str) -> None:
    assert files(page).keys() == SAYS[page].keys()


def test_what_is_guarded_is_written_once(group: Any) -> None:
    text = files("backends/etcd.md")["guarded.py"]
    group.members[0].ask("kv/deleterange", {"key": "c3RvY2svNw=="})
    assert value(group.members[0], "stock/7") is None
    run(text, group.url)
    assert value(group.members[0], "stock/7") == "12"


def test_the_page_has_the_options() -> None:
    part = PAGE.read_text().partition("## URL")[2].partition("## How it works")[0]
    rows = re.findall(r"^\| (`\w+=[^|]*) \|", part, flags=re.MULTILINE)
    options = [option for row in rows for option in re.findall(r"`(\w+)=", row)]
    assert sorted(options) == sorted([*OPTIONS, "namespace"])


def side_by_side() -> dict[str, dict[str, str]]:
    """The table on how to choose: for each row, what stands there for each backend."""
    text = (DOCS / "howto" / "choose-a-backend.md").read_text()
    part = text.partition("## Side by side")[2].partition("\n\n`Client")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    (_, *columns), _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    backends = [re.sub(r"\[(.*)\]\(.*\)", r"\1", column) for column in columns]
    return {title: dict(zip(backends, cells, strict=True)) for title, *cells in rows}


@pytest.mark.parametrize(("backend", "url"), CHOICES.items())
def test_how_to_choose_has_the_facts_of_the_code(backend: str, url: str) -> None:
    table = side_by_side()
    promised = backend_from_url(url).guarantees
    assert table["good for"][backend].partition(",")[0] == promised.use_for
    assert table["reaches"][backend].removeprefix("one ") == promised.scope
    assert (table["tokens rise"][backend] == "across power loss") == (promised.fencing == "durable")
    assert (table["a clock that is set"][backend] == "does nothing") == (promised.clock == "nothing")
    assert (table["first come, first served"][backend] == "yes") == (promised.fairness == "fifo")
    assert (table["waiters are"][backend] == "woken") == (promised.wakeup == "push")
    assert table["shortest ttl"][backend] == f"{promised.min_ttl:g} s"


def test_only_what_may_forget_loses_something_in_a_failover() -> None:
    row = side_by_side()["a failover loses"]
    for backend, url in CHOICES.items():
        loses_nothing = row[backend].partition(",")[0] in {"nothing", "–"}
        assert loses_nothing == (backend_from_url(url).guarantees.failover == "nothing"), backend
