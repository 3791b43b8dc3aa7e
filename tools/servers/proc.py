"""What /proc tells about processes: their children, their age, the ports they listen on. Linux only.

A process id may be given to a stranger once its owner was reaped. Callers therefore either hold the process
unreaped while they signal it, or remember its start time and compare.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from .errors import ServerError

LISTEN = "0A"


def start_time(pid: int) -> str | None:
    """The start time in clock ticks since boot; with the pid it names a process for good."""
    fields = _stat(pid)
    return fields[19] if fields else None


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The second field is the program's name in parentheses, and may itself hold spaces and parentheses.
    return text.rpartition(")")[2].split()


def tree(pid: int) -> list[int]:
    """The process and all its descendants, parents before children."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        fields = _stat(int(entry.name)) if entry.name.isdigit() else None
        if fields and fields[0] != "Z":
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def signal_tree(pid: int, number: signal.Signals) -> list[int]:
    """Sends a signal to the process and its descendants, and returns them.

    The root is stopped first, and must stand still: a stopped parent neither forks nor reaps, so no child is
    missed and no child's id can pass to a stranger meanwhile.
    """
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + 1.0
    while (fields := _stat(pid)) and fields[0] not in "TtZX" and time.monotonic() < deadline:
        time.sleep(0.001)
    pids = tree(pid)
    for each in reversed(pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, number)
    return pids


def wait_gone(pids: list[int], seconds: float = 5.0) -> None:
    """Waits until none of the processes runs."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and any(runs(pid) for pid in pids):
        time.sleep(0.01)


def wait_stopped(pid: int, seconds: float = 5.0) -> None:
    """Returns once the process and its descendants stand still: a signal that was sent is not yet an effect.

    A child that was being born when the others were signalled is signalled here.
    """
    deadline = time.monotonic() + seconds
    while moving := [each for each in tree(pid) if (fields := _stat(each)) and fields[0] not in "TtZX"]:
        if time.monotonic() > deadline:
            raise ServerError(f"process {moving[0]} does not stop within {seconds:g}s of SIGSTOP")
        time.sleep(0.005)
        for each in moving:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGSTOP)


def runs(pid: int) -> bool:
    """Whether there is such a process; a zombie counts as none, since it only waits for its parent."""
    fields = _stat(pid)
    return fields is not None and fields[0] != "Z"


def listens(pid: int, port: int) -> bool:
    """Whether this very process listens on the TCP port, and not a stranger who was faster."""
    inodes = _listening_inodes(pid, port)
    if not inodes:
        return False
    wanted = {f"socket:[{inode}]" for inode in inodes}
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(descriptor.readlink()) in wanted:
                    return True
    return False


def _listening_inodes(pid: int, port: int) -> set[str]:
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()
            sockets = [line.split() for line in lines if f":{port:04X} " in line]
            if found := {words[9] for words in sockets if words[3] == LISTEN}:
                return found
    return set()
