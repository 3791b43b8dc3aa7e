"""Descendants: finding, signalling and adopting every process that comes from one command.

A process group is not enough: whoever calls setsid has left it. On Linux this process asks to
be a *subreaper*: a descendant whose parent ends becomes its child, wherever it has moved. So
all descendants hang below it, /proc shows them, and when it has no child left none is left.

Elsewhere there is the process group and nothing more.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

__all__ = ["Process", "adopt_orphans", "die_with_parent", "end_children", "of", "send"]

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


class Process(NamedTuple):
    """One line of the process table. `started` tells it from a later one with the same pid."""

    pid: int
    parent: int
    group: int
    started: int


def adopt_orphans() -> bool:
    """Let orphaned descendants become children of this process; say whether that works here."""
    return _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(signum: int) -> bool:
    """Let this process get a signal when its parent's thread ends; say whether that works here."""
    return _prctl(PR_SET_PDEATHSIG, signum)


def _prctl(option: int, value: int) -> bool:
    if sys.platform != "linux":
        return False
    try:
        import ctypes

        return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def of(root: int) -> list[Process]:
    """Return every descendant of a process, parents before children; none where there is no /proc."""
    below: dict[int, list[Process]] = {}
    for process in _table():
        below.setdefault(process.parent, []).append(process)
    found = below.get(root, [])
    for process in found:  # grows while it is walked
        found.extend(below.get(process.pid, ()))
    return found


def _table() -> Iterable[Process]:
    try:
        entries = os.listdir("/proc")  # noqa: PTH208 - hundreds of Path objects for a few digits
    except OSError:
        return
    for entry in entries:
        if entry.isdigit():
            process = _look_up(int(entry))
            if process is not None:
                yield process


def _look_up(pid: int) -> Process | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name in the second field is the process's own choice: it may contain spaces and brackets.
    fields = stat[stat.rindex(b")") + 2 :].split()
    return Process(pid, int(fields[1]), int(fields[2]), int(fields[19]))


def send(process: Process, signum: int) -> None:
    """Signal that very process. One that has ended meanwhile, or is not ours to signal, is left."""
    try:
        if hasattr(os, "pidfd_open"):
            _send_by_handle(process, signum)
        else:
            os.kill(process.pid, signum)
    except (ProcessLookupError, PermissionError):
        pass


def _send_by_handle(process: Process, signum: int) -> None:
    # Between looking and signalling it may have ended and its pid may have been given to
    # somebody else. The handle pins the process; then we look whether it is the same one.
    handle = os.pidfd_open(process.pid)
    try:
        now = _look_up(process.pid)
        if now is not None and now.started == process.started:
            signal.pidfd_send_signal(handle, signum)
    finally:
        os.close(handle)


def end_children() -> None:
    """Kill and reap every child of this process, and theirs, until there is none."""
    import time

    while not reap():
        for process in of(os.getpid()):
            send(process, signal.SIGKILL)
        time.sleep(0.01)


def reap() -> bool:
    """Reap what has ended; say whether no child is left."""
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        return True
    return False
