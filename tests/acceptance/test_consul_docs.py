"""The pages on Consul say what is: their programs run, the guarantees and options are those of the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import FENCELOCK
from consul_desk import ask, nothing_left
from tools.servers import start
from tools.servers.packages import program

from fencelock.backends.consul.address import OPTIONS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "backends" / "consul.md"
MOVING = "howto/migrate-from-consul-lock.md"
SAYS = {"first.py": r"token \d+\nholders \['-c'\]\n", "guard.py": r"done 200\n"}
AT = "-http-addr=$AT shop/sold"
SELL = f"#!/bin/sh\nn=$(consul kv get {AT}); consul kv put {AT} $((n + 1)) >/dev/null"


@pytest.fixture(scope="module")
def group() -> Iterator[Any]:
    with start("consul") as group:
        yield group
        for key in ("shop/sold", "app/colour"):
            ask(group.members[0], "DELETE", f"kv/{key}")
        ask(group.members[0], "DELETE", "kv/locks?recurse")
        nothing_left(group.members[0])


def files(page: str) -> dict[str, str]:
    """The programs on a page, by file name."""
    block = re.compile(r"^```python file=(\S+)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
    return dict(block.findall((DOCS / page).read_text()))


def launched(command: list[str], group: Any) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "CONSUL_URL": group.url,
        "FENCELOCK_URL": group.url,
        "AT": group.members[0].address,
        "PYTHONWARNINGS": "error",
        "PATH": f"{Path(program('consul')).parent}:{os.environ['PATH']}",
    }
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def finished(programs: Sequence[subprocess.Popen[str]]) -> list[str]:
    said = [program.communicate(timeout=60)[0] for program in programs]
    assert [program.returncode for program in programs] == [0] * len(programs)
    return said


@pytest.mark.parametrize("name", SAYS)
def test_a_program_runs(name: str, group: Any) -> None:
    (said,) = finished([launched([sys.executable, "-c", files("backends/consul.md")[name]], group)])
    assert re.fullmatch(SAYS[name], said)


def test_none_is_left_out() -> None:
    assert files("backends/consul.md").keys() == SAYS.keys()
    assert list(files(MOVING)) == ["before.py", "after.py"]


def test_old_and_new_do_as_they_say(group: Any) -> None:
    server = group.members[0]
    for name, text in files(MOVING).items():
        ask(server, "PUT", "kv/shop/sold", 0)
        assert finished([launched([sys.executable, "-c", text], group) for _ in range(2)]) == ["done\n"] * 2
        assert ask(server, "GET", "kv/shop/sold?raw")[1] == 20, name


def test_the_old_command_and_the_new_one_side_by_side(group: Any, tmp_path: Path) -> None:
    """In each of the two steps of moving, none is lost."""
    server = group.members[0]
    old = ["consul", "lock", f"-http-addr={server.address}", "-child-exit-code", "locks/stock-7"]
    new = [FENCELOCK, "run", "--ttl", "15", "stock:7", "--"]
    sell = tmp_path / "sell"  # a file, as on the page: the old command gives its words to a shell, unquoted
    sell.write_text(SELL)
    sell.chmod(0o755)
    work = str(sell)
    for step in ([[*old, work], [*old, *new, work]], [[*old, *new, work], [*new, work]]):
        ask(server, "PUT", "kv/shop/sold", 0)
        finished([launched(command, group) for command in step * 2])
        assert ask(server, "GET", "kv/shop/sold?raw")[1] == 4


def test_the_page_has_the_options() -> None:
    text = PAGE.read_text()
    part = text.partition("## URL")[2].partition("## Time")[0]
    options = set(re.findall(r"^\| `(\w+)=", part, flags=re.MULTILINE))
    assert options == {*OPTIONS, "namespace"}
