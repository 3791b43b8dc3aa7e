"""Runs fencelock on every Python that it supports, and writes what came of it.

    python -m tools.pythons              every Python: half an hour
    python -m tools.pythons 3.14 3.12    these; the other results stay
    python -m tools.pythons --short 3.14 what interrupts may break, and SQLite: a minute; nothing is stored
    python -m tools.pythons --page       write docs/reference/pythons.md from the stored results
    python -m tools.pythons --check      change nothing; exit 1 if the page or the classifiers are not current

Each Python has an environment, `.pythons/VERSION`, with the versions of `constraints.txt`; it is built anew
when that file, pyproject.toml or the Python changes. In it run the unit tests, the simulation, conformance on
SQLite and Redis in both flavours, and of the asyncio flavour under uvloop on Redis and PostgreSQL.

Exit status: 0 all passed, 1 something failed or the page is not current, 2 wrong usage, 69 a Python, a
package or a server is missing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from tools.interpreters import Interpreter, NotFound, find
from tools.results import Record, Results
from tools.servers import ServerError, start

__all__ = ["PYTHONS", "Failed", "is_well", "main", "page"]

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".pythons"
FAILED, UNAVAILABLE = 1, 69
PYTHONS = {"3.11": "", "3.12": "", "3.13": "sid", "3.14": "sid"}
"""Each Python that is supported, and the Debian suite that has it, if the machine's own has not."""
SEEDS = "0:2000"
CLASSIFIER = "Programming Language :: Python :: "
SHORT = (
    "tests/unit/runtime",
    "tests/unit/testing/test_interrupts.py",
    "tests/unit/test_interrupted_blocks.py",
)


class Failed(Exception):
    """It cannot be run: one line."""


class Run(NamedTuple):
    """Something that runs on each Python: its name in the results, its title, and what it does."""

    name: str
    title: str
    act: Callable[[Path], Record]


# The environments.


def environment(wanted: str, python: Interpreter) -> Path:
    """Return the environment of a Python, which is built if it is not current."""
    folder = FOLDER / wanted
    stamp = FOLDER / f"{wanted}.stamp"
    parts = [(ROOT / name).read_text() for name in ("constraints.txt", "pyproject.toml")]
    current = hashlib.sha256("\n".join([*parts, str(python)]).encode()).hexdigest()
    if not stamp.exists() or stamp.read_text() != current:
        FOLDER.mkdir(exist_ok=True)
        stamp.unlink(missing_ok=True)
        print(f"setting up .pythons/{wanted} …", flush=True)
        _must(wanted, python.program, "-m", "venv", "--without-pip", "--clear", folder)
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--python", folder)
        _must(wanted, *pip, "install", "-c", "constraints.txt", "--editable", ".", "--group", "dev", "pip")
        stamp.write_text(current)
    return folder


def _must(wanted: str, *command: object) -> None:
    done = subprocess.run([*map(str, command)], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no reason was given"]
        told = next((line for line in said if line.startswith(("ERROR", "Error"))), said[-1])
        raise Failed(f"Python {wanted}: its environment cannot be built: {told.removeprefix('ERROR: ')}")


def _run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    surroundings = {
        key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "VIRTUAL_ENV"}
    }
    surroundings["PATH"] = f"{folder}/bin:{os.environ['PATH']}"
    program = [str(folder / "bin" / command[0]), *command[1:]]
    return subprocess.run(program, cwd=ROOT, env=surroundings, capture_output=True, text=True, check=False)


# What runs.


def run_tests(folder: Path, *paths: str) -> Record:
    """Run the unit tests, in the way of `make test`."""
    begun = time.monotonic()
    command = ["python", "-m", "tools.tests", "--numprocesses", "2", "--dist", "loadscope"]
    done = _run(folder, *command, *(paths or ("tests/unit",)))
    record: Record = {what: _count(done.stdout, what) for what in ("passed", "failed", "skipped")}
    record["seconds"] = round(time.monotonic() - begun)
    if done.returncode:
        print(done.stdout[-6000:], done.stderr[-3000:], flush=True)
        found = re.findall(r"^(?:FAILED|ERROR) (.*)$", done.stdout, re.M)
        lines = [_plain(line) for line in dict.fromkeys(found)]  # what ran twice is told twice
        record["failures"] = lines or [f"pytest ended with status {done.returncode}"]
        record["failed"] = len(record["failures"])
    record["skips"] = sorted(
        {_plain(line) for line in re.findall(r"^SKIPPED \[\d+\] (.*)$", done.stdout, re.M)}
    )
    return record


def _count(said: str, what: str) -> int:
    """Sum what pytest counted in each of its runs."""
    ends = [line for line in said.splitlines() if re.search(r" in \d+\.\d+s", line)]
    return sum(int(number) for line in ends for number in re.findall(rf"(\d+) {what}", line))


def simulate(folder: Path) -> Record:
    """Run seeds of the simulation, in both flavours."""
    begun = time.monotonic()
    done = _run(folder, "python", "-m", "fencelock.testing.simulation", "--seeds", SEEDS)
    found = re.search(r"(\d+) passed, (\d+) failed", done.stdout)
    passed, failed = (int(found[1]), int(found[2])) if found else (0, 1)
    record: Record = {"passed": passed, "failed": max(failed, int(done.returncode != 0))}
    if record["failed"]:
        record["failures"] = [_last(done)]
    return record | {"seconds": round(time.monotonic() - begun)}


def conform(folder: Path, row: str, *options: str) -> Record:
    """Run all conformance checks on a server of its own."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fencelock-pythons-") as store:
        if row == "sqlite":
            done = _run(folder, "fencelock", "conform", "--json", *options, f"sqlite://{store}/locks.db")
        else:
            with start(row) as group:
                done = _run(folder, "fencelock", "conform", "--json", *options, group.url)
    return _conformed(done) | {"seconds": round(time.monotonic() - begun)}


def _conformed(done: subprocess.CompletedProcess[str]) -> Record:
    try:
        told = json.loads(done.stdout)
    except ValueError:
        return {"passed": 0, "failed": 1, "failures": [_last(done)]}
    bad = [each for each in told["results"] if each["outcome"] == "failed"]
    for each in bad:
        print(each["flavour"], each["check"], each["traceback"], flush=True)
    return {
        "passed": told["passed"],
        "failed": told["failed"],
        "repeated": told["repeated"],
        "failures": [f"{each['flavour']} {each['check']}: {_plain(each['detail'])}" for each in bad],
    }


def _last(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return _plain(lines[-1]) if lines else f"status {done.returncode}, and nothing was said"


def _plain(text: str) -> str:
    """The text without what differs from run to run."""
    return re.sub(r"127\.0\.0\.1:\d+", "HOST", text.replace(f"{ROOT}/", "")).replace("|", "\\|")


UVLOOP = ("--flavour", "asyncio", "--loop", "uvloop")
RUNS = (
    Run("unit", "unit tests", run_tests),
    Run("simulation", "simulation", simulate),
    Run("sqlite", "SQLite", lambda folder: conform(folder, "sqlite")),
    Run("redis", "Redis", lambda folder: conform(folder, "redis")),
    Run("uvloop redis", "uvloop, Redis", lambda folder: conform(folder, "redis", *UVLOOP)),
    Run("uvloop postgres", "uvloop, PostgreSQL", lambda folder: conform(folder, "postgres", *UVLOOP)),
)
BRIEF = (
    Run("unit", "unit tests of interrupts", lambda folder: run_tests(folder, *SHORT)),
    Run("sqlite", "SQLite", lambda folder: conform(folder, "sqlite")),
)


def examine(wanted: str, runs: Sequence[Run]) -> Record:
    """Run everything on one Python; return what came of it."""
    python = find(wanted, PYTHONS[wanted])
    print(f"Python {python.version}, {python.source}", flush=True)
    folder = environment(wanted, python)
    record: Record = {"version": python.version, "source": python.source, "runs": {}}
    record["date"] = f"{datetime.now(UTC):%Y-%m-%d}"
    for run in runs:
        record["runs"][run.name] = found = run.act(folder)
        print(f"  {run.title:<20} {_cell(found)} in {found['seconds']} s", flush=True)
        for line in found.get("failures", ()):
            print(f"    FAILED {line}", flush=True)
    return record


def is_well(record: Record) -> bool:
    """Whether everything ran, and nothing failed."""
    runs = record.get("runs", {})
    return all(run.name in runs and not runs[run.name]["failed"] and runs[run.name]["passed"] for run in RUNS)


def run_all(names: Sequence[str], *, short: bool) -> int:
    """Examine each in turn; its results are stored at once."""
    told: dict[str, str] = {}
    status = 0
    for name in names:
        try:
            record = examine(name, BRIEF if short else RUNS)
        except (NotFound, Failed, ServerError) as error:
            line = _plain(str(error).splitlines()[0])
            print(f"pythons: {line}", file=sys.stderr, flush=True)
            told[name], status = f"not run: {line}", UNAVAILABLE
            record = {"error": line}
        else:
            failed = [
                each for each, found in record["runs"].items() if found["failed"] or not found["passed"]
            ]
            told[name] = f"{record['version']}: " + (f"FAILED: {', '.join(failed)}" if failed else "passed")
            status = status or (FAILED if failed else 0)
        if not short:
            RESULTS.store(name, record)
    print("\n" + "\n".join(f"{name:<6} {line}" for name, line in told.items()), flush=True)
    print(f"{'3.14t':<6} not run: {FREE_THREADED}")
    return status


# The page.

FREE_THREADED = "no Debian suite has a free-threaded build (python3.14-nogil), and no package index has one"
INTRODUCTION = f"""\
# Pythons

What was run: on each Python the unit tests, {int(SEEDS.split(":")[1]):,} seeds of the simulation in both
flavours, and the whole [conformance suite](../howto/write-a-backend.md): on SQLite and Redis in both
flavours, and in the asyncio flavour under uvloop on Redis and PostgreSQL. `make pythons` runs it again and
writes this page, so the page claims nothing else. Drivers have the same versions on each, those of
`constraints.txt`.

*Repeated* counts the checks about time in which something was late at first. They ran once more, alone.
"""


def page(results: dict[str, Record]) -> str:
    """Return the page as it should be."""
    ran = {name: record for name, record in results.items() if "runs" in record}
    heads = ["Python", "from", *(run.title for run in RUNS), "run"]
    lines = [f"| {' | '.join(heads)} |\n", f"|{'---|' * len(heads)}\n"]
    for record in ran.values():
        cells = [_cell(record["runs"].get(run.name)) for run in RUNS]
        lines.append(f"| {' | '.join([record['version'], record['source'], *cells, record['date']])} |\n")
    missing = [
        f"- Python {name}: {results.get(name, {}).get('error', 'not run yet')}.\n"
        for name in PYTHONS
        if name not in ran
    ]
    missing.append(f"- Python 3.14 without the GIL: {FREE_THREADED}.\n")
    parts = [INTRODUCTION, "".join(lines)]
    for title, key in (("Failures", "failures"), ("Skipped", "skips")):
        notes = _notes(ran, key)
        if notes:
            parts.append(f"## {title}\n\n{notes}")
    return "\n".join([*parts, f"## Not run\n\n{''.join(missing)}"])


def _notes(ran: dict[str, Record], key: str) -> str:
    """Return the lines of all Pythons, each with those that it is about."""
    found: dict[str, list[str]] = {}
    for record in ran.values():
        for run in record["runs"].values():
            for line in run.get(key, ()):
                found.setdefault(line, []).append(record["version"])
    return "".join(f"- {', '.join(dict.fromkeys(versions))}: {line}\n" for line, versions in found.items())


def _cell(found: Record | None) -> str:
    if found is None:
        return "not run"
    more = [f"{found[what]} {what}" for what in ("failed", "skipped", "repeated") if found.get(what)]
    return ", ".join([f"{found['passed']} passed", *more])


RESULTS = Results(ROOT / "docs" / "reference" / "pythons.json", PYTHONS, page)


def claimed(project: Path = ROOT / "pyproject.toml") -> list[str]:
    """Return the versions that the package's classifiers claim."""
    words = tomllib.loads(project.read_text())["project"]["classifiers"]
    return [word.removeprefix(CLASSIFIER) for word in words if word.startswith(f"{CLASSIFIER}3.")]


def problems() -> list[str]:
    """Return what is not current, a line each."""
    results = RESULTS.load()
    found = []
    if not RESULTS.is_current():
        found.append(f"{RESULTS.page} is not current: run python -m tools.pythons --page")
    for name in results:
        if is_well(results[name]) != (name in claimed()):
            passed = "passed" if is_well(results[name]) else "did not pass"
            found.append(f"pyproject.toml claims Python {', '.join(claimed())}; {name} {passed}")
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Run, write or check."""
    parser = argparse.ArgumentParser(prog="python -m tools.pythons", description=__doc__.partition("\n")[0])
    parser.add_argument("names", metavar="VERSION", nargs="*", help=f"one of: {' '.join(PYTHONS)}")
    parser.add_argument(
        "--short", action="store_true", help="what interrupts may break, and SQLite; store nothing"
    )
    parser.add_argument("--page", action="store_true", help="write the page from the stored results")
    parser.add_argument(
        "--check", action="store_true", help="exit 1 if the page or a classifier is not current"
    )
    given = parser.parse_args(words)
    if unknown := [name for name in given.names if name not in PYTHONS]:
        parser.error(f"Python {unknown[0]!r} is not among those that are supported: {' '.join(PYTHONS)}")
    if given.check:
        found = problems()
        print("".join(f"{line}\n" for line in found), end="", file=sys.stderr)
        return FAILED if found else 0
    if given.page:
        RESULTS.write_page()
        return 0
    return run_all([name for name in PYTHONS if not given.names or name in given.names], short=given.short)


if __name__ == "__main__":
    sys.exit(main())
