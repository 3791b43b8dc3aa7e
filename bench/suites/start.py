"""Starting up: what `import fencelock` takes in time and memory, and `fencelock run` until its command runs.

Whole programs are timed, from before they are started; bare Python, which everybody needs, is the limit and
is taken off where a target is for what comes on top. Compiled modules are there, as on a user's machine.
Peers are libraries that are imported for the same purpose, and for the command flock(1), which is no Python
at all.

Memory is the resident size of the process once it has imported. That no driver is imported is looked up in
`sys.modules`.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench import effort
from bench.measure import Contestant, Figure, Result, Run, Suite, interleave, named
from bench.suites.targets import at_most, to_limit

__all__ = ["DRIVERS", "SUITE", "drivers"]

ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
ROUNDS, COUNT = 9, 3
PAGE = os.sysconf("SC_PAGE_SIZE")
BARE, OURS = "python, nothing else", "import fencelock"
MODULES = {BARE: "sys", OURS: "fencelock", "import filelock": "filelock", "import redis": "redis"}
MODULES |= {"import redis_lock": "redis_lock", "import kazoo.client": "kazoo.client"}
RUN, COMMAND = "fencelock run, until its command runs", ("date", "+%s.%N")
STARTER = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"

DRIVERS = {
    *(
        "redis",
        "hiredis",
        "psycopg",
        "pymysql",
        "asyncmy",
        "kazoo",
        "hpack",
        "google.protobuf",
        "http.client",
    ),
    *("sqlite3", "sqlalchemy", "cronsim", "starlette", "uvicorn", "prometheus_client", "click", "rich"),
}


def measure(progress: Callable[[str], None]) -> Sequence[Result]:
    for module in MODULES.values():
        python(f"import {module}")  # compile what is not compiled yet
    return [imported(progress), memory(progress), started(progress)]


def python(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=ENVIRONMENT).stdout


def role(name: str) -> str:
    return {BARE: "limit", OURS: "fencelock"}.get(name, "peer")


# Importing ------------------------------------------------------------------------------------


def program(*command: str) -> Callable[[], contextlib.AbstractContextManager[Run]]:
    """Measure whole runs of a program."""

    @contextlib.contextmanager
    def prepare() -> Iterator[Run]:
        def run(count: int) -> float:
            started = time.perf_counter()
            for _ in range(count):
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
            return time.perf_counter() - started

        yield run

    return prepare


def imported(progress: Callable[[str], None]) -> Result:
    contestants = [
        Contestant(name, program(sys.executable, "-c", f"import {module}"), role(name))
        for name, module in MODULES.items()
    ]
    figures = interleave(contestants, rounds=ROUNDS, count=COUNT, progress=progress)
    bare, ours = named(figures, BARE), named(figures, OURS)
    assert bare is not None and ours is not None
    found = drivers()
    verdicts = [
        at_most("above bare Python", (ours.median - bare.median) * 1e3, 60, " ms", key="import"),
        at_most("drivers and tables imported with it", len(found), 0, key="drivers"),
        *to_limit(figures, None, OURS),
    ]
    notes = [f"imported with it: {', '.join(found)}"] if found else []
    return Result("import fencelock", figures, notes, verdicts=verdicts, key="start.import")


def drivers() -> list[str]:
    """Return what `import fencelock` imports and should not: drivers, and what makes tables and pages."""
    said = python("import sys, fencelock; print(*sys.modules)")
    return sorted(DRIVERS & set(said.split()))


def memory(progress: Callable[[str], None]) -> Result:
    figures = []
    for name, module in MODULES.items():
        progress(f"memory: {name}")
        code = f"import {module}; print(open('/proc/self/statm').read().split()[1])"
        sizes = [float(python(code)) * PAGE for _ in range(effort.rounds(ROUNDS))]
        figures.append(Figure(name, role(name), sizes))
    return Result(
        "Memory of a process after import fencelock",
        figures,
        verdicts=to_limit(figures, None, OURS),
        key="start.memory",
        unit="B",
    )


# The command line -----------------------------------------------------------------------------


def until(*before: str) -> Callable[[], contextlib.AbstractContextManager[Run]]:
    """Measure from the start of a program to the moment when the command that it starts reads the clock."""

    @contextlib.contextmanager
    def prepare() -> Iterator[Run]:
        with tempfile.TemporaryDirectory(prefix="fencelock-bench-") as folder:
            command = [word.replace("FOLDER", folder) for word in (*before, *COMMAND)]

            def run(count: int) -> float:
                total = 0.0
                for _ in range(count):
                    started = time.time()
                    shown = subprocess.run(
                        command, check=True, capture_output=True, text=True, env=ENVIRONMENT
                    ).stdout
                    total += float(shown) - started
                return total

            yield run

    return prepare


def started(progress: Callable[[str], None]) -> Result:
    cli = str(Path(sys.executable).with_name("fencelock"))
    contestants = [
        Contestant("python, which starts the command", until(sys.executable, "-c", STARTER), "limit"),
        Contestant(RUN, until(cli, "run", "--url", "sqlite://FOLDER/locks.db", "bench", "--"), "fencelock"),
        Contestant("flock(1)", until("flock", "FOLDER/lock")),
    ]
    figures = interleave(contestants, rounds=ROUNDS, count=COUNT, progress=progress)
    ours = named(figures, RUN)
    assert ours is not None
    verdicts = [
        at_most("from the start to the command", ours.median * 1e3, 250, " ms", key="run"),
        *to_limit(figures, None, RUN),
    ]
    return Result(
        "fencelock run on SQLite, until its command runs", figures, verdicts=verdicts, key="start.run"
    )


SUITE = Suite("start", "import time and memory, and the start of `fencelock run`", measure)
