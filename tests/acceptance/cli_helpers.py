"""What the tests of the command line share: real processes of `fencelock`, and a look at all others."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crew import wait_until

import fencelock

FENCELOCK = str(Path(sys.executable).parent / "fencelock")
PATIENCE = 30.0


def environment(url: str) -> dict[str, str]:
    return {**os.environ, "FENCELOCK_URL": url}


def fencelock_command(url: str, *args: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `fencelock` to its end."""
    options = {"stdin": subprocess.DEVNULL, **options} if "input" not in options else options
    return subprocess.run(
        [FENCELOCK, *args],
        env=environment(url),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        **options,
    )


@contextlib.contextmanager
def running(url: str, *args: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Run `fencelock` beside the test; what is still there in the end is killed."""
    settings: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
        "start_new_session": True,  # no terminal, whoever runs the tests
        **options,
    }
    with subprocess.Popen([FENCELOCK, *args], env=environment(url), **settings) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


@contextlib.contextmanager
def on_terminal(env: dict[str, str], *args: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run `fencelock` on a terminal, which is the controlling one of its session; its size is in `env`."""
    screen, terminal = pty.openpty()
    code = "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0)"
    program = [sys.executable, "-c", f"{code}; os.execv(sys.argv[1], sys.argv[1:])", FENCELOCK, *args]
    process = subprocess.Popen(program, env=env, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    try:
        yield process, screen
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(screen)


def alive(pid: int) -> bool:
    """Whether a process runs: it exists and is no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat[stat.rindex(")") + 2] not in "ZX"


def pids_in(path: Path, count: int = 1) -> list[int]:
    """Return the process ids in a file, once there are so many."""

    def read() -> list[int] | None:
        try:
            lines = path.read_text().splitlines()
        except OSError:
            return None
        return [int(line) for line in lines] if len(lines) >= count else None

    pids = wait_until(read, f"{count} process ids in {path.name}")
    assert isinstance(pids, list)
    return pids


def kill_all(pids: list[int]) -> None:
    """Clean up after a test that failed."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def wait_held(locks: fencelock.Client, name: str) -> fencelock.Entry:
    """Return the holder, once there is one."""

    def holder() -> fencelock.Entry | None:
        return next(iter(locks.inspect(name).holders), None)

    entry = wait_until(holder, f"somebody holds {name}")
    assert isinstance(entry, fencelock.Entry)
    return entry


def never_free_while_alive(locks: fencelock.Client, name: str, pids: list[int]) -> None:
    """Watch a lock until it is free: whoever is alive after that moment is a violation."""

    def free() -> bool:
        return not locks.inspect(name).holders

    wait_until(free, f"{name} is free")
    left = [pid for pid in pids if alive(pid)]
    kill_all(left)
    assert not left, "the lock was free while processes of its command were alive"
