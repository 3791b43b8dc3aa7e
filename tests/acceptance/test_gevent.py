"""gevent: a hundred greenlets share a `Client` after `monkey.patch_all()`; leases are renewed meanwhile."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tools.servers import start

PROGRAM = Path(__file__).with_name("gevent_program.py")
SERVERS = ["redis", "postgres", "mariadb", "zookeeper", "etcd", "consul"]


@pytest.mark.parametrize("kind", ["memory", "sqlite", *SERVERS])
def test_a_hundred_greenlets_share_a_client(kind: str, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        url = f"{kind}://gevent" if kind == "memory" else f"{kind}://{tmp_path}/locks.db"
        if kind in SERVERS:
            url = stack.enter_context(start(kind)).url
        done = subprocess.run(
            [sys.executable, str(PROGRAM), url], capture_output=True, text=True, timeout=180, check=False
        )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told.pop("turns") > 100, "a greenlet that only sleeps did not get its turns"
    assert told == {
        "values": [20] * 5,
        "most": [1] * 5,
        "rising": True,
        "renewed": True,
        "left": [],
    }, done.stderr
    assert "Traceback" not in done.stderr
