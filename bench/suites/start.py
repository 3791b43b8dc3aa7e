"""Starting up: importing the package, and `holdfast run` until its command runs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.measure import Contestant, Result, Run, Suite, interleave

__all__ = ["SUITE"]

# As it is on a user's machine: compiled modules are kept from one start to the next.
ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


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


@contextlib.contextmanager
def until_command() -> Iterator[Run]:
    """From the start of `holdfast run` to the moment its command reads the clock."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        cli = Path(sys.executable).with_name("holdfast")
        look = ("date", "+%s.%N")
        command = [str(cli), "run", "--url", f"sqlite://{folder}/locks.db", "bench", "--", *look]

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


def measure(progress: Callable[[str], None]) -> Sequence[Result]:
    python = sys.executable
    contestants = [
        Contestant("python, nothing else", program(python, "-c", "pass"), "limit"),
        Contestant("python, import holdfast", program(python, "-c", "import holdfast"), "holdfast"),
        Contestant("holdfast run, until its command runs", until_command, "holdfast"),
    ]
    figures = interleave(contestants, rounds=9, count=3, progress=progress)
    notes = ["targets: import at most 60 ms above bare Python; the command within 250 ms"]
    return [Result("Starting up", figures, notes)]


SUITE = Suite("start", "import time, and the start of `holdfast run`", measure)
