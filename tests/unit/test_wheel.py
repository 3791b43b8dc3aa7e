"""The wheel in an empty environment: what a new user installs, and whether the README holds there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
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


PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    ran(*PIP, "wheel", "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder, HOME=os.environ.get("HOME", ""))
    (wheel,) = folder.glob("*.whl")
    assert re.fullmatch(r"fencelock-[\d.]+-py3-none-any\.whl", wheel.name)
    return wheel


def environment(wheel: Path, extra: str) -> Path:
    """Install the wheel into an empty environment, and return that environment's folder."""
    folder = wheel.parent / f"environment{extra}"
    ran(sys.executable, "-m", "venv", "--without-pip", folder, cwd=wheel.parent)
    what = f"{wheel}{extra}"
    ran(*PIP, "--python", folder, "install", what, cwd=wheel.parent, HOME=os.environ.get("HOME", ""))
    return folder


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """The folder of an environment with the library alone."""
    return environment(wheel, "")


@pytest.fixture(scope="module")
def with_command(wheel: Path) -> Path:
    """The folder of an environment with the command line too."""
    return environment(wheel, "[cli]")


def packages(installed: Path, cwd: Path) -> dict[str, str]:
    """Return what is installed there: names and versions."""
    pip = (word for word in PIP if word != "--quiet")
    listed = ran(*pip, "--python", installed, "list", "--format=freeze", cwd=cwd)
    found = (line.partition("==") for line in listed.splitlines() if "==" in line)
    return {name: version for name, _, version in found if name not in {"pip", "setuptools"}}


def test_the_library_brings_no_other_package(installed: Path, tmp_path: Path) -> None:
    assert packages(installed, tmp_path).keys() == {"fencelock"}


def test_the_extra_brings_those_of_the_command_line(with_command: Path, tmp_path: Path) -> None:
    assert packages(with_command, tmp_path).keys() >= {"fencelock", "click", "rich"}


def test_the_command_is_on_the_path(with_command: Path, tmp_path: Path) -> None:
    path = f"{with_command}/bin:{os.environ['PATH']}"
    assert (
        ran("sh", "-c", "command -v fencelock", cwd=tmp_path, PATH=path).strip()
        == f"{with_command}/bin/fencelock"
    )
    assert "fencelock" in ran("fencelock", "--help", cwd=tmp_path, PATH=path)
    assert not (with_command / "bin" / FORMER).exists()


def test_without_the_extra_the_command_says_what_to_install(installed: Path, tmp_path: Path) -> None:
    command = 'fencelock --version; echo "status $?"; python -m fencelock --version; echo "status $?"'
    told = ran("sh", "-c", command, cwd=tmp_path, PATH=f"{installed}/bin:{os.environ['PATH']}")
    line = "fencelock: the command line needs the package 'click': pip install 'fencelock[cli]'\nstatus 69\n"
    assert told == line * 2


def drive(installed: Path, folder: Path, steps: list[tuple[str, str, int, str]]) -> str:
    """Run blocks of the README; return what they printed."""
    (folder / "here").mkdir()
    (folder / "steps.json").write_text(json.dumps(steps))
    return ran(
        *("sh", "-c", '"$0" -c "$1" < ../steps.json', installed / "bin" / "python", DRIVER),
        cwd=folder / "here",
        PATH=f"{installed}/bin:{os.environ['PATH']}",
        FENCELOCK_URL=f"sqlite://{folder}/locks.db",
    )


def test_the_readme_holds(with_command: Path, tmp_path: Path) -> None:
    steps = runnable(ROOT / "README.md")
    told = drive(with_command, tmp_path, steps)
    assert told.count("---") == len(steps) >= 3
    assert FORMER not in told.lower()


def test_what_the_readme_shows_in_python_needs_the_library_alone(installed: Path, tmp_path: Path) -> None:
    steps = [step for step in runnable(ROOT / "README.md") if step[0] != "sh"]
    assert drive(installed, tmp_path, steps).count("---") == len(steps) >= 2


def test_nothing_that_is_installed_has_the_former_name(installed: Path, tmp_path: Path) -> None:
    (package,) = installed.glob("lib/python*/site-packages/fencelock")
    files = [path for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert len(files) > 300
    assert [path for path in files if FORMER in path.name.lower()] == []
    assert [path for path in files if FORMER.encode() in path.read_bytes().lower()] == []
    assert not any(FORMER in name for name in packages(installed, tmp_path))


def test_a_missing_driver_names_the_extra_to_install(with_command: Path, tmp_path: Path) -> None:
    command = with_command / "bin" / "fencelock"
    told = ran(command, "ls", "--url", "redis://127.0.0.1:1", cwd=tmp_path, check=False)
    assert "pip install 'fencelock[redis]'" in told and told.count("\n") == 1


def test_a_driver_that_is_too_old_names_both_versions(with_command: Path, tmp_path: Path) -> None:
    """A real one, as a user has it who installed redis-py long ago."""
    old = tmp_path / "old"
    ran(*PIP, "install", "--no-deps", "--target", old, "redis==4.6.0", cwd=tmp_path, HOME=os.environ["HOME"])
    command = with_command / "bin" / "fencelock"
    url = ("--url", "redis://127.0.0.1:1")
    told = ran(command, "ls", *url, cwd=tmp_path, check=False, PYTHONPATH=str(old))
    needs = "redis:// needs redis 5.0 or newer, this is 4.6.0: pip install 'fencelock[redis]'"
    assert told == f"fencelock: {needs}\n"
