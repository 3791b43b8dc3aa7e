"""SQLite: users of one group share a folder made as docs/reference/permissions.md says; others do not.

The tests run as root and change their user. That user keeps the right to read everything, since the sources
and the interpreter may lie where other users may not look; what is tested is who may write. Who may read
is tested by forks, which keep no right.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crew import WORKERS, wait_until
from redis_desk import FLAVOURS
from rights_page import block

from fencelock import Client

GROUP, ANN, BOB, EVE = 61000, 61001, 61002, 61003
SCRIPT = WORKERS / "rights_sqlite.py"
READS = "+dac_read_search"
TABLES = "Tables of modules in your own database"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder as the page makes it, with a file and an exchange of the users' own."""
    assert os.geteuid() == 0, "these tests change their user: run the tests as root"
    base = Path(tempfile.mkdtemp(dir="/tmp"))
    base.chmod(0o755)
    folder = base / "locks"
    lines = block("SQLite group").replace("-g locks", f"-g {GROUP}").replace("/var/lib/locks", str(folder))
    first, *_, last = lines.splitlines()
    own = (last.replace("locks-flight.db", "app.db"), f"{first}/exchange")
    for line in (*lines.splitlines(), *own):
        subprocess.run(shlex.split(line.removeprefix("$ ")), check=True)
    (base / "tables.py").write_text(block(TABLES))
    subprocess.run([sys.executable, base / "tables.py", f"sqlite:///{folder}/app.db"], check=True)
    for user in (ANN, BOB, EVE):
        subprocess.run(["install", "-d", "-o", str(user), base / str(user)], check=True)
    yield folder
    shutil.rmtree(base)


def as_user(user: int, folder: Path, *words: str) -> subprocess.Popen[str]:
    """Start the worker as a user; all but EVE are in the group."""
    own = folder.parent / str(user)
    groups = "--clear-groups" if user == EVE else f"--groups={GROUP}"
    who = [f"--reuid={user}", f"--regid={user}", groups, f"--inh-caps={READS}", f"--ambient-caps={READS}"]
    return subprocess.Popen(
        ["setpriv", *who, sys.executable, SCRIPT, folder, *words, own],
        env={"HOME": str(own), "TMPDIR": str(own), "PATH": os.environ["PATH"]},
        cwd=own,
        umask=0o007,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(user: int, folder: Path, *words: str) -> tuple[int, str]:
    with as_user(user, folder, *words) as process:
        _, errors = process.communicate(timeout=300)
        return process.returncode, errors


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_one_after_the_other_uses_every_module(folder: Path, flavour: str) -> None:
    for user in (ANN, BOB, ANN):
        status, errors = run(user, folder, flavour)
        assert status == 0, errors
    files = {path.name.partition(".db")[0] for path in folder.iterdir() if ".db" in path.name}
    assert files == {"locks", "locks-flight", "app"}


def test_a_user_waits_for_another(folder: Path) -> None:
    with as_user(ANN, folder, "hold") as ann:
        first = int(said(ann))
        with as_user(BOB, folder, "wait") as bob, Client(f"sqlite://{folder}/locks.db") as locks:
            wait_until(lambda: locks.inspect("shared").waiters, "bob waits")
            tell(ann)
            assert int(said(bob)) > first
            tell(bob)
            assert (ann.wait(30), bob.wait(30)) == (0, 0)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.mark.parametrize("flavour", ["hold", *FLAVOURS])
def test_whom_the_group_does_not_have_is_told_at_once(folder: Path, flavour: str) -> None:
    before = (folder / "locks.db").stat()
    status, errors = run(EVE, folder, flavour)
    assert status == 1
    *_, last = errors.strip().splitlines()
    assert "BackendUnavailable" in last and "permissions of the file and its folder" in last
    assert "docs/reference/permissions.md" in last
    assert (folder / "locks.db").stat().st_mtime_ns == before.st_mtime_ns


def test_only_the_group_may_read(folder: Path) -> None:
    def read() -> None:
        (folder / "locks.db").read_bytes()

    assert in_fork(ANN, (GROUP,), read)
    assert not in_fork(EVE, (), read)


def in_fork(user: int, groups: tuple[int, ...], call: Callable[[], Any]) -> bool:
    """Say whether a user may do something."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    os.setgroups(groups)
    os.setgid(user)
    os.setuid(user)
    try:
        call()
    except PermissionError:
        os._exit(1)
    os._exit(0)
