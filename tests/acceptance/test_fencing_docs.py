"""The page on how to refuse old tokens: its programs for servers run, and say what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tools.servers import start

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "refuse-old-tokens.md"
ANNA, BEN = 1794966437913933, 1794966437913934
STALE = rf"token {ANNA} for '{{}}' is stale: {BEN} was seen already\n"
SAYS = {
    "postgres.py": ("postgres", "DATABASE_URL", STALE.format("document:1")),
    "cache.py": ("redis", "REDIS_URL", STALE.format("report:7") + r"2\n"),
    "guarded_etcd.py": ("etcd", "ETCD_URL", rf"{BEN} True\n{BEN} True\n{ANNA} False\n"),
    "guarded_zookeeper.py": (
        "zookeeper",
        "ZOOKEEPER_URL",
        rf"{BEN} True\n{BEN} True\n" + STALE.format("/stock/7/fence"),
    ),
}


def files() -> dict[str, str]:
    """The programs on the page, by file name."""
    block = re.compile(r"^```python file=(\S+)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
    return dict(block.findall(PAGE.read_text()))


@pytest.mark.parametrize("name", SAYS)
def test_a_program_runs(name: str) -> None:
    kind, variable, said = SAYS[name]
    with start(kind) as group:
        done = subprocess.run(
            [sys.executable, "-c", files()[name]],
            env={**os.environ, variable: str(group.url), "PYTHONWARNINGS": "error"},
            stdout=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0
    assert re.fullmatch(said, done.stdout), done.stdout


def test_none_is_left_out() -> None:
    assert files().keys() == SAYS.keys()
