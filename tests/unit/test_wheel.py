"""The wheel in an empty environment: what a new user installs, and whether the README holds there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from unit.test_docs import DRIVER, ROOT, runnable

FORMER = "hold" + "fast"
"""A name that belongs to another package on the index."""
LIMIT = 300


def ran(*command: object, cwd: Path, check: bool = True, **options: str) -> str:
    """Run a command that sees nothing of this environment; return what it printed."""
    environment = {
        key: value
        for key, value in os.environ.items()
        if key in {"PATH", "LANG", "TMPDIR"} or key.startswith(("PIP_", "SSL_", "http", "HTTP"))
    }
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env={**environment, "HOME": str(cwd), "PYTHONNOUSERSITE": "1", **options},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0 or not check, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Build the wheel, install it into an empty environment, and return that environment's folder."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    ran(*pip, "wheel", "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder, HOME=os.environ.get("HOME", ""))
    (wheel,) = folder.glob("*.whl")
    assert re.fullmatch(r"fencelock-[\d.]+-py3-none-any\.whl", wheel.name)
    environment = folder / "environment"
    ran(sys.executable, "-m", "venv", environment, cwd=folder)
    ran(*pip, "--python", environment, "install", wheel, cwd=folder, HOME=os.environ.get("HOME", ""))
    yield environment


def test_the_command_is_on_the_path(installed: Path, tmp_path: Path) -> None:
    path = f"{installed}/bin:{os.environ['PATH']}"
    assert (
        ran("sh", "-c", "command -v fencelock", cwd=tmp_path, PATH=path).strip()
        == f"{installed}/bin/fencelock"
    )
    assert "fencelock" in ran("fencelock", "--help", cwd=tmp_path, PATH=path)
    assert not (installed / "bin" / FORMER).exists()


def test_the_readme_holds(installed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    steps = tmp_path / "steps.json"
    steps.write_text(json.dumps(runnable(ROOT / "README.md")))
    told = ran(
        *("sh", "-c", '"$0" -c "$1" < "$2"', installed / "bin" / "python", DRIVER, steps),
        cwd=folder,
        PATH=f"{installed}/bin:{os.environ['PATH']}",
        FENCELOCK_URL=f"sqlite://{tmp_path}/locks.db",
    )
    assert told.count("---") == len(runnable(ROOT / "README.md")) >= 3
    assert FORMER not in told.lower()


def test_nothing_that_is_installed_has_the_former_name(installed: Path, tmp_path: Path) -> None:
    (package,) = installed.glob("lib/python*/site-packages/fencelock")
    files = [path for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert len(files) > 300
    assert [path for path in files if FORMER in path.name.lower()] == []
    assert [path for path in files if FORMER.encode() in path.read_bytes().lower()] == []
    names = ran(installed / "bin" / "python", "-m", "pip", "list", "--format=freeze", cwd=tmp_path)
    assert re.search(r"^fencelock==", names, re.MULTILINE) and FORMER not in names


def test_a_missing_driver_names_the_extra_to_install(installed: Path, tmp_path: Path) -> None:
    told = ran(
        installed / "bin" / "fencelock", "ls", "--url", "redis://127.0.0.1:1", cwd=tmp_path, check=False
    )
    assert "pip install 'fencelock[redis]'" in told
