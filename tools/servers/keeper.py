"""Nothing stays behind, even after SIGKILL: a small process that outlives its owner and clears up after it.

The owner tells the keeper, line by line over a pipe, what it has made (`+process 812 99182`, `+folder /x`,
`+mount /y`, `+netns fl-1`, `+link fl-b1`) and what it has itself removed again (the same with `-`). When the
owner is gone the keeper removes what is left: processes first, then mounts, folders and networks.

Why not PR_SET_PDEATHSIG: it fires when the *thread* that started the child ends, so a server that was started
from a short-lived thread would die with it; and it removes no folders. The pipe's end alone is not enough: a
forked child of the owner holds a copy of it. So the keeper also watches its parent's id.

Not promised: survival of the keeper's own death by SIGKILL together with its owner.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

from . import proc

ROOT = Path(__file__).resolve().parents[2]
END = ".\n"
ORDER = ("process", "mount", "folder", "netns", "link")


class Keeper:
    """The owner's side. One for each process that starts servers."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._entries: dict[str, None] = {}
        self._mutex = threading.Lock()
        self._process = self._launch()

    def add(self, kind: str, value: object) -> None:
        entry = f"{kind} {value}"
        with self._mutex:
            self._entries[entry] = None
            self._tell(f"+{entry}\n")

    def remove(self, kind: str, value: object) -> None:
        entry = f"{kind} {value}"
        with self._mutex:
            self._entries.pop(entry, None)
            self._tell(f"-{entry}\n")

    def close(self) -> None:
        """Ends the keeper; what is still registered is removed by it."""
        with contextlib.suppress(OSError):
            # Said aloud, as the end of the pipe is not seen while a forked child has it open too.
            self._process.communicate(END, timeout=30)

    def _tell(self, line: str) -> None:
        try:
            self._write(line)
        except OSError:
            # Somebody ended the keeper: a new one is told everything from the beginning.
            self._process.wait()
            self._process = self._launch()
            self._write("".join(f"+{entry}\n" for entry in self._entries))

    def _write(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def _launch(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", __name__, str(self.owner)],
            cwd="/",
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )


_keeper: Keeper | None = None
_mutex = threading.Lock()


def keeper() -> Keeper:
    """This process's keeper; a forked child gets one of its own."""
    global _keeper
    with _mutex:
        if _keeper is None or _keeper.owner != os.getpid():
            _keeper = Keeper()
        return _keeper


def close() -> None:
    """Ends this process's keeper, if it has one."""
    global _keeper
    if _keeper is not None and _keeper.owner == os.getpid():
        _keeper.close()
        _keeper = None


def watch(owner: int) -> None:
    """The keeper's own main loop."""
    entries: dict[str, None] = {}
    pending = b""
    while os.getppid() == owner:
        if not select.select([0], [], [], 0.5)[0]:
            continue
        chunk = os.read(0, 65536)
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            _note(entries, os.fsdecode(line))
        if not chunk or b"." in lines:
            break
    clear(list(entries))


def _note(entries: dict[str, None], line: str) -> None:
    if line.startswith("+"):
        entries[line[1:]] = None
    elif line.startswith("-"):
        entries.pop(line[1:], None)


def clear(entries: list[str]) -> None:
    """Removes what the entries name, where it still exists."""
    for kind in ORDER:
        for entry in entries:
            name, _, value = entry.partition(" ")
            if name == kind:
                _REMOVE[kind](value)


def _end_process(value: str) -> None:
    pid, start = value.split()
    if proc.start_time(int(pid)) == start:
        proc.wait_gone(proc.signal_tree(int(pid), signal.SIGKILL))


def _remove_mount(value: str) -> None:
    subprocess.run(["umount", "--lazy", value], capture_output=True, check=False)


def _remove_folder(value: str) -> None:
    shutil.rmtree(value, ignore_errors=True)


def _remove_netns(value: str) -> None:
    subprocess.run(["ip", "netns", "delete", value], capture_output=True, check=False)


def _remove_link(value: str) -> None:
    subprocess.run(["ip", "link", "delete", value], capture_output=True, check=False)


_REMOVE = {
    "process": _end_process,
    "mount": _remove_mount,
    "folder": _remove_folder,
    "netns": _remove_netns,
    "link": _remove_link,
}

if __name__ == "__main__":
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    watch(int(sys.argv[1]))
