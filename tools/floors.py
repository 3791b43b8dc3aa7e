"""Runs fencelock with exactly the lowest versions that pyproject.toml declares.

    python -m tools.floors                      everything: twenty minutes
    python -m tools.floors --short              imports and the command line: seconds
    python -m tools.floors --rows sqlite redis  everything, with these servers only

The environment is `.floors/environment`: each package of an extra at its lower bound, and what the tests need
at the version of `constraints.txt`. It is built anew when one of the two files changes. In it run the unit
tests (docs pages among them), the tests of frameworks, the command line, and all conformance checks in
both flavours on each of `ROWS`. The last lines are a table: what showed that an extra works at its floor.

Exit status: 0 all well, 1 something failed, 64 wrong usage or a package without a floor, 69 a package could
not be installed.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar
from xml.etree import ElementTree

from tools.servers import start

__all__ = ["EXTRAS", "ROWS", "Failed", "environment", "floors", "main", "smoke"]

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".floors"
FAILED, USAGE, UNAVAILABLE = 1, 64, 69
ROWS = ("sqlite", "redis", "postgres", "mariadb", "zookeeper", "etcd")
FOLLOWERS = {
    "kombu": "celery",
    "opentelemetry-sdk": "opentelemetry-api",
    "opentelemetry-semantic-conventions": "",
    "h2": "",
}
"""What the tests need in the version of another package, or in one that pip finds for it."""


class Extra(NamedTuple):
    """How one sees that an extra works: its modules, addresses without a server, a row or pages and tests."""

    modules: tuple[str, ...]
    nowhere: tuple[str, ...] = ()
    row: str = ""
    proofs: tuple[str, ...] = ()


EXTRAS = {
    "cli": Extra(("fencelock.cli",), proofs=("docs/howto/command-line.md", "tests/acceptance/test_look.py")),
    "redis": Extra(
        ("fencelock.backends.redis", "fencelock.backends.redlock", "fencelock.fencing.redis"),
        ("redis://127.0.0.1:1", "redis+sentinel://127.0.0.1:1/x", "redis+cluster://127.0.0.1:1"),
        row="redis",
    ),
    "postgres": Extra(
        ("fencelock.backends.postgres", "fencelock.sql"),
        ("postgresql://127.0.0.1:1/x", "postgresql+advisory://127.0.0.1:1/x"),
        row="postgres",
    ),
    "mysql": Extra(
        ("fencelock.backends.mysql",),
        ("mysql://u@127.0.0.1:1/x", "mysql+getlock://u@127.0.0.1:1/x"),
        row="mariadb",
    ),
    "zookeeper": Extra(("fencelock.backends.zookeeper",), ("zookeeper://127.0.0.1:1",), row="zookeeper"),
    "etcd": Extra(("fencelock.backends.etcd",), row="etcd"),
    "consul": Extra(("fencelock.backends.consul",)),
    "jobs": Extra(
        ("fencelock.jobs", "fencelock.fencing.orm"),
        proofs=("docs/howto/run-jobs.md", "tests/acceptance/test_jobs_cli.py"),
    ),
    "schedule": Extra(
        ("fencelock.schedule",),
        proofs=("docs/howto/run-on-a-schedule.md", "tests/acceptance/test_schedule_cli.py"),
    ),
    "dashboard": Extra(
        ("fencelock.dashboard", "uvicorn"),
        proofs=("docs/howto/dashboard.md", "tests/acceptance/test_dashboard_gate.py"),
    ),
    "starlette": Extra(
        ("fencelock.contrib.starlette",),
        proofs=("docs/howto/use-with-fastapi.md", "tests/acceptance/test_contrib_web.py"),
    ),
    "fastapi": Extra(
        ("fencelock.contrib.fastapi",),
        proofs=("docs/howto/use-with-fastapi.md", "tests/acceptance/test_contrib_web.py"),
    ),
    "django": Extra(
        ("fencelock.contrib.django",),
        proofs=("docs/howto/use-with-django.md", "tests/acceptance/test_contrib_django.py"),
    ),
    "celery": Extra(
        ("fencelock.contrib.celery",),
        proofs=("docs/howto/use-with-celery.md", "tests/acceptance/test_contrib_celery.py"),
    ),
    "apscheduler": Extra(
        ("fencelock.contrib.apscheduler",),
        proofs=("docs/howto/use-with-apscheduler.md", "tests/acceptance/test_contrib_apscheduler.py"),
    ),
    "prometheus": Extra(("fencelock.contrib.prometheus",), proofs=("docs/howto/measure-and-trace.md",)),
    "opentelemetry": Extra(("fencelock.contrib.opentelemetry",), proofs=("docs/howto/measure-and-trace.md",)),
}


class Failed(Exception):
    """It cannot be done: one line, and an exit status."""

    def __init__(self, message: str, status: int = UNAVAILABLE) -> None:
        super().__init__(message)
        self.status = status


def floors(project: Path = ROOT / "pyproject.toml") -> dict[str, dict[str, str]]:
    """Return the lowest version of each package, by extra."""
    found: dict[str, dict[str, str]] = {}
    for extra, needs in tomllib.loads(project.read_text())["project"]["optional-dependencies"].items():
        packages = found.setdefault(extra, {})
        for need in needs:
            match = re.match(r"([\w.-]+)(?:\[[\w,]+\])?>=([\d.]+)", need)
            if match is not None:
                packages[match[1]] = match[2]
            elif not need.startswith("fencelock["):
                raise Failed(f"pyproject.toml: {need!r} of the extra {extra!r} has no lowest version", USAGE)
    return found


def constraints() -> list[str]:
    """Return what pip is to install: floors, and beside them what the project is tested with."""
    lowest = {name.lower(): version for needs in floors().values() for name, version in needs.items()}
    lines = [f"{name}=={version}" for name, version in lowest.items()]
    lines += [f"psycopg-binary=={lowest['psycopg']}"]
    lines += [f"{name}=={lowest[other]}" for name, other in FOLLOWERS.items() if other]
    taken = {*lowest, *FOLLOWERS, "psycopg-binary"}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        name = line.partition("==")[0].strip().lower().replace("_", "-")
        if name and not name.startswith("#") and name not in taken:
            lines.append(line)
    return lines


def environment() -> Path:
    """Return the folder of the environment, which is built if it is not current."""
    FOLDER.mkdir(exist_ok=True)
    wanted = hashlib.sha256()
    for part in (*constraints(), (ROOT / "pyproject.toml").read_text(), sys.version):
        wanted.update(part.encode() + b"\n")
    stamp = FOLDER / "stamp"
    with _locked(FOLDER / "lock"):
        if not stamp.exists() or stamp.read_text() != wanted.hexdigest():
            stamp.unlink(missing_ok=True)
            _build(FOLDER / "environment")
            stamp.write_text(wanted.hexdigest())
    return FOLDER / "environment"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(folder: Path) -> None:
    print(f"setting up {folder.relative_to(ROOT)} …", flush=True)
    listed = FOLDER / "constraints.txt"
    listed.write_text("\n".join(constraints()) + "\n")
    _must(sys.executable, "-m", "venv", "--clear", folder)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--python", folder)
    extras = ",".join(floors())
    _must(*pip, "install", "-c", listed, "--editable", f"{ROOT}[{extras}]", "--group", "dev")


def _must(*command: object) -> None:
    done = subprocess.run([*map(str, command)], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        told = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["ERROR: no reason"]
        raise Failed(f"the lowest versions cannot be installed: {told[0].removeprefix('ERROR: ')}")


def smoke(folder: Path, extra: str, *urls: str) -> str:
    """Import what an extra serves, and try it; return what is wrong, or ''. At `urls` servers run."""
    how = EXTRAS[extra]
    words = [",".join(part) for part in (how.modules, how.nowhere, urls)]
    commands: list[list[str]] = [["python", "tools/smoke.py", *words]]
    if extra == "cli":
        commands += [["fencelock", "--version"], ["fencelock", "run", "floors", "--", "true"]]
        commands += [["fencelock", "ls"], ["fencelock", "doctor"], ["python", "-m", "fencelock", "--help"]]
    with tempfile.TemporaryDirectory(prefix="fencelock-floors-") as store:
        for command in commands:
            done = _run(folder, command, FENCELOCK_URL=f"sqlite://{store}/locks.db")
            if done.returncode:
                return (done.stderr or done.stdout).strip().splitlines()[-1]
    return ""


def _run(folder: Path, command: Sequence[str], **more: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the environment."""
    program = [str(folder / "bin" / command[0]), *command[1:]]
    surroundings = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    surroundings |= {"PATH": f"{folder}/bin:{os.environ['PATH']}", **more}
    return subprocess.run(program, cwd=ROOT, env=surroundings, capture_output=True, text=True, check=False)


def conform(folder: Path, row: str) -> str:
    """Run all conformance checks on a server; return the last line, or what is wrong."""
    with tempfile.TemporaryDirectory(prefix="fencelock-floors-") as store:
        if row == "sqlite":
            done = _run(folder, ["fencelock", "conform", f"sqlite://{store}/locks.db"])
        else:
            with start(row) as group:
                done = _run(folder, ["fencelock", "conform", group.url])
    print(done.stdout[-3000:] if done.returncode else "", done.stderr, end="", flush=True)
    last = (done.stdout.strip() or done.stderr.strip() or "nothing was said").splitlines()[-1]
    return f"{last} in both flavours" if done.returncode == 0 else f"FAILED: {last}"


def run_tests(folder: Path) -> tuple[str, set[str]]:
    """Run the unit tests and the proofs; return the last line, and the files and pages that passed."""
    report = FOLDER / "tests.xml"
    report.unlink(missing_ok=True)
    files = {proof for how in EXTRAS.values() for proof in how.proofs if proof.endswith(".py")}
    command = ["python", "-m", "pytest", "--numprocesses", "2", "--dist", "loadscope", f"--junitxml={report}"]
    done = _run(folder, [*command, "tests/unit", *sorted(files)])
    if done.returncode:
        print(done.stdout[-6000:], done.stderr[-2000:], flush=True)
    last = (done.stdout.strip().splitlines() or ["nothing was said"])[-1].strip("= ")
    return (last if done.returncode == 0 else f"FAILED: {last}"), _passed(report)


def _passed(report: Path) -> set[str]:
    """Return the test files and the docs pages of which nothing failed."""
    ran: dict[str, bool] = {}
    for case in ElementTree.parse(report).iter("testcase") if report.exists() else ():
        page = re.fullmatch(r"test_examples_run\[(.*)\]", case.get("name", ""))
        place = page[1] if page else case.get("classname", "").replace(".", "/") + ".py"
        ran[place] = ran.get(place, True) and not len(case)
    return {place for place, is_well in ran.items() if is_well}


def check(folder: Path, rows: Sequence[str], *, short: bool) -> bool:
    """Run everything, print the table, and say whether all is well."""
    told = {extra: smoke(folder, extra) for extra in EXTRAS}
    found: dict[str, str] = {}
    passed: set[str] = set()
    if not short:
        found["tests"], passed = _timed("tests", lambda: run_tests(folder))
        for row in rows:
            found[row] = _timed(row, lambda row=row: conform(folder, row))  # type: ignore[misc]
    lowest = floors()
    is_well = not any(line.startswith("FAILED") for line in found.values())
    print()
    for extra, how in EXTRAS.items():
        proof = [f"FAILED: {told[extra]}" if told[extra] else "imports and first use"]
        if not short:
            proof += [each if each in passed else f"FAILED: {each}" for each in how.proofs]
        if how.row in found:
            proof.append(f"conform {how.row}: {found[how.row]}")
        is_well = is_well and not any("FAILED" in line for line in proof)
        packages = " ".join(f"{name}=={version}" for name, version in lowest[extra].items()) or "–"
        print(f"{extra:<14} {packages:<58} {'; '.join(proof)}")
    for name in ("tests", "sqlite"):
        if name in found:
            print(f"{name:<14} {'':<58} {found[name]}")
    return is_well


def _timed(what: str, act: Callable[[], T]) -> T:
    began = time.monotonic()
    print(f"{what} …", end="", flush=True)
    result = act()
    print(f" {time.monotonic() - began:.0f}s", flush=True)
    return result


def main(words: Sequence[str] | None = None) -> int:
    """Do it; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.floors", description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="imports and the command line only")
    parser.add_argument("--rows", nargs="*", choices=ROWS, default=ROWS, help="conformance on these only")
    given = parser.parse_args(words)
    try:
        folder = environment()
        return 0 if check(folder, given.rows, short=given.short) else FAILED
    except Failed as error:
        print(f"floors: {error}", file=sys.stderr)
        return error.status


if __name__ == "__main__":
    sys.exit(main())
