"""Extras: what needs none, what an extra declares, and what is said where one is missing or too old."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fencelock import Client, ConfigurationError
from fencelock.__main__ import main
from fencelock.backends import OWN
from fencelock.extras import FLOORS, too_old

ROOT = Path(__file__).resolve().parents[2]
WITHOUT = "import sys; sys.modules.update(click=None, rich=None)\n"
"""What a program sees where the extra `cli` is not installed."""
ALONE = {"consul", "memory", "sqlite"}
"""Schemes without a driver."""

EVERYTHING = """
import importlib, pkgutil, fencelock
skipped = ("fencelock.cli", "fencelock.contrib.celery")  # Celery itself imports click
count = 0
def walk(package):
    global count
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        if not module.name.startswith(skipped):
            found = importlib.import_module(module.name)
            count += 1
            if module.ispkg:
                walk(found)
"""

DJANGO = """
import django, sys
from django.conf import settings
settings.configure(INSTALLED_APPS=["fencelock.contrib.django"], FENCELOCK_URL="memory://")
django.setup()
from django.core.management import call_command, get_commands
from fencelock.contrib.django import OnceCommand, lock, locks
assert get_commands()["fencelock"] == "fencelock.contrib.django"
with locks().lock("x"):
    pass
call_command("check")
"""


def ran(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )


# Without the command line ----------------------------------------------------------------


def test_everything_but_the_command_line_is_imported_without_click_and_rich() -> None:
    configured = "from django.conf import settings; settings.configure()\n"
    done = ran(WITHOUT + configured + EVERYTHING + "walk(fencelock); print(count)")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 250


def test_the_walk_notices_what_needs_click() -> None:
    done = ran(WITHOUT + EVERYTHING.replace('"fencelock.cli", ', "") + "walk(fencelock)")
    assert "click" in done.stderr.splitlines()[-1]


def test_a_django_project_needs_neither() -> None:
    done = ran(WITHOUT + DJANGO)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("package", ["click", "rich"])
@pytest.mark.parametrize("way", ["from fencelock.__main__ import main", "script"])
def test_the_command_says_in_one_line_what_to_install(package: str, way: str) -> None:
    if way == "script":
        way = "import runpy; main = lambda args: runpy.run_module('fencelock', run_name='__main__')"
    done = ran(f"import sys; sys.modules[{package!r}] = None\n{way}\nsys.exit(main(['ls']))")
    line = f"fencelock: the command line needs the package {package!r}: pip install 'fencelock[cli]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (69, "", line)


def test_so_does_the_management_command() -> None:
    told = "from fencelock.contrib.django.management.commands.fencelock import Command\n"
    done = ran(WITHOUT + DJANGO + told + "Command().run_from_argv(['manage.py', 'fencelock', 'ls'])")
    assert done.returncode == 69
    assert done.stderr.count("\n") == 1 and "pip install 'fencelock[cli]'" in done.stderr


# Floors ----------------------------------------------------------------------------------


def declared() -> dict[str, dict[str, str]]:
    """Return the extras of pyproject.toml: the lowest version of each package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["dependencies"] == []
    found: dict[str, dict[str, str]] = {}
    for extra, needs in project["optional-dependencies"].items():
        found[extra] = {}
        for need in needs:
            if need.startswith("fencelock["):
                continue
            match = re.fullmatch(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)(?:,<[\d.]+)?", need)
            assert match is not None, f"{extra}: {need!r} has no lowest version"
            found[extra][match[1]] = match[2]
    return found


def test_the_table_is_what_the_package_declares() -> None:
    assert declared() == {**FLOORS, "all": {}}


@pytest.mark.parametrize("extra", ["dashboard", "jobs", "schedule", "django", "all"])
def test_an_extra_with_commands_brings_the_command_line(extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needs = project["project"]["optional-dependencies"][extra]
    assert needs[0].startswith("fencelock[cli")
    assert "fencelock[cli]" in project["dependency-groups"]["dev"]


def test_the_extra_mysql_brings_what_a_first_login_needs() -> None:
    """MySQL 9 asks for `caching_sha2_password`, for which both drivers need this package."""
    assert {"PyMySQL", "asyncmy", "cryptography"} == declared()["mysql"].keys()


def pretend(folder: Path, package: str, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the metadata say that this version is installed."""
    metadata = folder / f"{package.replace('-', '_')}-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(str(folder))


@pytest.mark.parametrize("scheme", sorted(set(OWN) - ALONE))
def test_a_driver_that_is_too_old_is_one_line(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = OWN[scheme].partition(" [")[2].rstrip("]")
    package, floor = list(FLOORS[extra].items())[-1]
    pretend(tmp_path, package, "0.9.7", monkeypatch)
    with pytest.raises(ConfigurationError) as caught:
        Client(f"{scheme}://user:secret@127.0.0.1:1")
    assert str(caught.value) == (
        f"{scheme}:// needs {package} {floor} or newer, this is 0.9.7: pip install 'fencelock[{extra}]'"
    )


@pytest.mark.parametrize(
    ("version", "old"),
    [
        ("2.10.0", True),
        ("2.10.99", True),
        ("2.11", False),
        ("2.11.0", False),
        ("2.11.0rc1", False),
        ("2.12", False),
        ("3", False),
        ("10.0", False),
    ],
)
def test_versions_are_compared_as_numbers(
    version: str, old: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(tmp_path, "kazoo", version, monkeypatch)
    assert bool(too_old("zookeeper", "zookeeper://")) is old


def test_what_is_installed_here_is_not_too_old() -> None:
    assert [too_old(extra, extra) for extra in FLOORS] == [""] * len(FLOORS)


def test_a_click_that_is_too_old_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only if something fails: looking costs more than everything else that `fencelock run` imports."""
    pretend(tmp_path, "click", "8.0.4", monkeypatch)
    assert main(["--version"]) == 0
    monkeypatch.setattr("fencelock.cli.load", lambda *words: 1 / 0)
    assert main(["ls"]) == 69
    line = "the command line needs click 8.1.2 or newer, this is 8.0.4: pip install 'fencelock[cli]'"
    assert capsys.readouterr().err == f"fencelock: {line}\n"


@pytest.mark.parametrize(
    ("extra", "code", "what"),
    [
        ("celery", "import fencelock.contrib.celery", "fencelock.contrib.celery"),
        ("apscheduler", "import fencelock.contrib.apscheduler", "fencelock.contrib.apscheduler"),
        ("django", "import fencelock.contrib.django", "fencelock.contrib.django"),
        ("prometheus", "import fencelock.contrib.prometheus", "fencelock.contrib.prometheus"),
        ("opentelemetry", "import fencelock.contrib.opentelemetry", "fencelock.contrib.opentelemetry"),
        ("starlette", "import fencelock.contrib.starlette", "fencelock.contrib.starlette"),
        ("fastapi", "import fencelock.contrib.fastapi", "fencelock.contrib.fastapi"),
        ("dashboard", "from fencelock.dashboard import create_app", "the dashboard"),
        (
            "jobs",
            "from sqlalchemy import create_engine; from fencelock.jobs import Table;"
            "Table(create_engine('sqlite:////nowhere/jobs.db'))",
            "fencelock.jobs",
        ),
        (
            "schedule",
            "import fencelock; from fencelock.schedule import Schedule;"
            "Schedule(fencelock.Client('memory://')).cron('nonsense', name='x')(print)",
            "cron lines",
        ),
    ],
)
def test_a_framework_that_is_too_old_is_named(
    extra: str, code: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, floor = next(iter(FLOORS[extra].items()))
    pretend(tmp_path, package, "0.9.7", monkeypatch)
    done = ran(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {code}")
    line = f"{what} needs {package} {floor} or newer, this is 0.9.7: pip install 'fencelock[{extra}]'"
    assert done.stderr.splitlines()[-1] == f"fencelock.errors.ConfigurationError: {line}"
