"""Faults to inject: a misbehaving network (``TCPProxy``) and misbehaving processes.

A process is paused with SIGSTOP, which it can neither catch nor notice, and killed with SIGKILL.
Both are asynchronous: ``kill(2)`` returns before the last thread has stopped. So each helper waits
until ``/proc`` shows the effect on every thread of the process, and raises ``TimeoutError`` if it
does not come. Linux only, as ``/proc`` is.

A target is a pid, or anything with a ``pid`` (``subprocess.Popen``, ``multiprocessing.Process``).
Give the object where there is one: killing by bare pid reaps the child behind the object's back.

Not promised: anything about the children of the target; signal them themselves.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from fencelock.testing.proxy import TCPProxy
from fencelock.testing.relay import Counters, Direction, Fault, Match

__all__ = [
    "Counters",
    "Direction",
    "Fault",
    "HasPid",
    "Match",
    "TCPProxy",
    "kill",
    "pause",
    "paused",
    "process_states",
    "resume",
    "wait_state",
]

_STOPPED = "Tt"
_DEAD = "ZX"
_POLL = 0.001


class HasPid(Protocol):
    """A process object; ``pid`` is None before it was started."""

    @property
    def pid(self) -> int | None: ...


Target = int | HasPid


def process_states(target: Target) -> str:
    """Return the state letters of all threads, as ``/proc`` has them; "" if there is no such process."""
    states = []
    try:
        tasks = [*Path(f"/proc/{_pid(target)}/task").iterdir()]
    except (FileNotFoundError, ProcessLookupError):
        return ""
    for task in tasks:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # that thread just ended
            # The name stands in parentheses and may itself contain some.
            states.append((task / "stat").read_text().rpartition(")")[2].split()[0])
    return "".join(states)


def wait_state(target: Target, states: str, *, timeout: float = 5.0) -> str:
    """Wait until every thread is in one of these states, and return them.

    "S" sleeping, "R" running, "D" waiting for the disk, "T" stopped, "Z" dead but not reaped. A
    process that is gone satisfies "X".
    """
    deadline = time.monotonic() + timeout
    while True:
        seen = process_states(target)
        if (seen and set(seen) <= set(states)) or (not seen and "X" in states):
            return seen
        if not seen:
            raise ProcessLookupError(f"process {_pid(target)} is gone")
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {_pid(target)} is in state {seen!r}, not {states!r}")
        time.sleep(_POLL)


def pause(target: Target, *, timeout: float = 5.0) -> None:
    """Stop a process, and return once none of its threads runs."""
    os.kill(_pid(target), signal.SIGSTOP)
    # A thread that has ended may linger as a zombie beside those that stop.
    if set(wait_state(target, _STOPPED + "Z", timeout=timeout)) == {"Z"}:
        raise ProcessLookupError(f"process {_pid(target)} is dead")


def resume(target: Target, *, timeout: float = 5.0) -> None:
    """Let a stopped process go on, and return once it does."""
    os.kill(_pid(target), signal.SIGCONT)
    wait_state(target, "RSDIZX", timeout=timeout)


@contextlib.contextmanager
def paused(target: Target, *, timeout: float = 5.0) -> Iterator[None]:
    """Keep a process stopped for the length of the block; it may die meanwhile."""
    try:
        pause(target, timeout=timeout)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resume(target, timeout=timeout)


def kill(target: Target, *, timeout: float = 5.0) -> int | None:
    """Kill a process for certain and reap it if it is a child of ours.

    Return its status as ``subprocess`` writes it (-9 if this was what killed it), or None if it is
    not ours to reap. A process that is already gone is fine.
    """
    pid = _pid(target)
    if _finished(target):
        return _status(target)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    for reap in ("wait", "join"):  # Popen; multiprocessing.Process
        if callable(method := getattr(target, reap, None)):
            method(timeout=timeout)
            wait_state(pid, _DEAD, timeout=timeout)
            return _status(target)
    return _reap(pid, timeout)


def _finished(target: Target) -> bool:
    """Whether the object already knows that its process ended; its pid may be someone else's now."""
    poll = getattr(target, "poll", None)
    if callable(poll):
        poll()
    return _status(target) is not None


def _status(target: Target) -> int | None:
    for attribute in ("returncode", "exitcode"):
        status = getattr(target, attribute, None)
        if isinstance(status, int):
            return status
    return None


def _reap(pid: int, timeout: float) -> int | None:
    deadline = time.monotonic() + timeout
    while True:
        try:
            done, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:  # not ours: whoever it belongs to will reap it
            wait_state(pid, _DEAD, timeout=max(0.0, deadline - time.monotonic()))
            return None
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {pid} did not die")
        time.sleep(_POLL)


def _pid(target: Target) -> int:
    pid = target if isinstance(target, int) else target.pid
    if pid is None or pid <= 0:  # 0 and below would signal whole groups
        raise ValueError(f"no process id: {pid!r}")
    return pid
