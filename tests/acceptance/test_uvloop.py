"""uvloop: `AsyncClient` works under it, in a forked child too, as it does under asyncio's own loop."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tools.servers import start

PROGRAM = Path(__file__).with_name("uvloop_program.py")
SERVERS = ["redis", "postgres", "mariadb", "etcd", "consul", "zookeeper"]


@pytest.mark.parametrize("kind", SERVERS)
def test_a_client_works_under_uvloop_and_after_a_fork(kind: str) -> None:
    with start(kind) as group:
        done = subprocess.run(
            [sys.executable, str(PROGRAM), group.url], capture_output=True, text=True, timeout=90, check=False
        )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "loop": "uvloop",
        "grew": True,
        "child": {"held": False, "own": True},
        "verified": True,
        "released": True,
    }, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("kind", SERVERS)
def test_a_client_that_is_closed_after_its_loop_says_so_under_uvloop(kind: str) -> None:
    command = [sys.executable, str(PROGRAM)]
    with start(kind) as group:
        done = subprocess.run(
            [*command, group.url, "late"], capture_output=True, text=True, timeout=90, check=False
        )
    assert done.stdout.startswith("ConfigurationError: this AsyncClient belongs to another"), done.stderr


@pytest.mark.parametrize("kind", SERVERS)
def test_a_connection_that_breaks_is_replaced_under_uvloop(kind: str) -> None:
    """uvloop does not call a reader again for a reset right behind data, and closes the socket early."""
    checks = ["replies_that_are_cut", "connections_reset_before_a_request"]
    chosen = [word for check in checks for word in ("--only", check)]
    command = [
        sys.executable,
        "-m",
        "fencelock",
        "conform",
        "--loop",
        "uvloop",
        "--flavour",
        "asyncio",
        *chosen,
    ]
    with start(kind) as group:
        done = subprocess.run([*command, group.url], capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout.endswith("\n2 passed, 0 failed\n"), done.stdout + done.stderr
