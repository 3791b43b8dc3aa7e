"""The pages on ZooKeeper say what is: their programs run, the guarantees are those of the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tools.servers import start
from zookeeper_desk import operator, znodes

from fencelock.backends.zookeeper.address import OPTIONS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "backends" / "zookeeper.md"
SAYS = {
    "first.py": r"token \d+\nholders \['-c'\]\n",
    "guarded.py": r"while it is held: 1\nafter that: NoNodeError\n",
}


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with start("zookeeper") as group:
        yield group.members[0]


def files(page: str) -> dict[str, str]:
    """The programs on a page, by file name."""
    block = re.compile(r"^```python file=(\S+)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
    return dict(block.findall((DOCS / page).read_text()))


def launched(text: str, server: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "ZOOKEEPER_URL": f"zookeeper://{server.address}"}
    return subprocess.Popen([sys.executable, "-c", text], env=environment, stdout=subprocess.PIPE, text=True)


def finished(programs: Sequence[subprocess.Popen[str]]) -> list[str]:
    said = [program.communicate(timeout=60)[0] for program in programs]
    assert [program.returncode for program in programs] == [0] * len(programs)
    return said


def test_the_programs_run(server: Any) -> None:
    programs = files("backends/zookeeper.md")
    assert programs.keys() == SAYS.keys()
    for name, text in programs.items():
        (said,) = finished([launched(text, server)])
        assert re.fullmatch(SAYS[name], said), said
    assert znodes(server) == []


def test_the_old_lock_and_the_new_one_side_by_side(server: Any) -> None:
    programs = files("howto/migrate-from-kazoo.md")
    assert list(programs) == ["before.py", "after.py", "both.py"]
    with operator(server) as client:
        client.ensure_path("/sold")
        for step in (["before.py", "both.py"], ["both.py", "after.py"]):
            client.set("/sold", b"0")
            assert finished([launched(programs[name], server) for name in step * 2]) == ["done\n"] * 4
            assert client.get("/sold")[0] == b"40", f"{step} do not exclude each other"


def test_the_page_has_the_options() -> None:
    text = PAGE.read_text()
    part = text.partition("## URL")[2].partition("## Users")[0]
    options = set(re.findall(r"^\| `(\w+)=", part, flags=re.MULTILINE))
    assert options == {*OPTIONS, "namespace"}
