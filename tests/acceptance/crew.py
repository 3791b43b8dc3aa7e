"""Real processes for the acceptance tests: started, listened to, and never left behind.

A worker is a script in `workers/` that writes one JSON object a line. `Crew` ends whoever is
still there when its block ends, by the process it started and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fencelock.testing import pause, resume
from fencelock.testing.conformance.expect import Late

WORKERS = Path(__file__).parent / "workers"
PATIENCE = 60.0
"""How long to wait for what must come, on a machine that is busy with other things."""


def sqlite_url(folder: Path) -> str:
    return f"sqlite://{folder / 'locks.db'}"


def wait_until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """Return the first true answer."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() >= deadline:
            raise Late(f"not within {seconds:g}s: {what}")
        time.sleep(0.005)


def stop_between_steps(pid: int, *files: Path | str) -> None:
    """Stop a process that uses these files of SQLite, but not while it has one of them locked.

    A process that is stopped in the very middle of a step blocks all others until it goes on: that
    is declared, and not what these tests are about.
    """

    def stopped() -> bool:
        pause(pid)
        if all(map(is_free, files)):
            return True
        resume(pid)
        return False

    wait_until(stopped, f"process {pid} stopped between two steps")


def is_free(file: Path | str) -> bool:
    """Whether no process has a file of SQLite locked."""
    db = sqlite3.connect(file, timeout=0.5, isolation_level=None)
    try:
        db.execute("BEGIN IMMEDIATE")
        db.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return False
    finally:
        db.close()
    return True


class Member:
    """One process of the crew."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.errors = ""
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._readers = [
            threading.Thread(target=self._read_lines, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def _read_lines(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self.errors = self.process.stderr.read()

    def hear(self, seconds: float = PATIENCE) -> dict[str, Any]:
        """Return the next thing that the worker says."""
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            raise AssertionError(f"{self.name} said nothing for {seconds:g}s") from None
        if line is None:
            self._readers[1].join(PATIENCE)
            raise AssertionError(f"{self.name} ended and said nothing: {self.errors}")
        said: dict[str, Any] = json.loads(line)
        return said

    def tell(self, line: str = "") -> None:
        """Send the worker a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def signal(self, signum: int) -> None:
        self.process.send_signal(signum)

    def end(self, seconds: float = PATIENCE) -> int:
        """Wait for the worker to end by itself, and return its status."""
        status = self.process.wait(seconds)
        for reader in self._readers:
            reader.join(PATIENCE)
        return status

    def dismiss(self) -> None:
        """End it now, however it stands."""
        if self.process.poll() is None:
            for signum in (signal.SIGKILL, signal.SIGCONT):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.process.pid, signum)
        self.end()
        # Closing a pipe that a thread is reading waits for that thread, and no signal ends the wait.
        if any(reader.is_alive() for reader in self._readers):
            raise AssertionError(f"{self.name} has ended, and a child of it keeps its output open")
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


class Crew:
    """Processes that end with the block at the latest."""

    def __init__(self) -> None:
        self.members: list[Member] = []

    def start(self, script: str, *args: object, name: str | None = None) -> Member:
        """Start `workers/<script>.py` with these arguments."""
        command = [sys.executable, str(WORKERS / f"{script}.py"), *map(str, args)]
        return self._started(name or script, command)

    def python(self, code: str, *args: object, name: str = "python") -> Member:
        """Start a few lines of Python."""
        return self._started(name, [sys.executable, "-c", code, *map(str, args)])

    def _started(self, name: str, command: list[str]) -> Member:
        member = Member(name, command)
        self.members.append(member)
        return member

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.members:
            member.dismiss()
