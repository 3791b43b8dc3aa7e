"""Client processes without the cost of starting Python: one process imports everything and forks at a word.

    runner ── line of JSON ──> nursery ── fork ──> client
           <── its pid, and later its end ──

The nursery itself never makes a client of anything, so what it forks is clean. It dies when its standard
input ends, and so do its children (PR_SET_PDEATHSIG): nothing outlives the runner."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

__all__ = ["Nursery"]

ROOT = Path(__file__).resolve().parents[1]
CLONE_NEWNET = 0x40000000
CLONE_NEWNS = 0x00020000
MS_BIND, MS_REC, MS_SLAVE = 0x1000, 0x4000, 0x80000
BOOT = b"/proc/sys/kernel/random/boot_id"
PR_SET_PDEATHSIG = 1
PATIENCE = 60.0
libc = ctypes.CDLL(None, use_errno=True)


class Nursery:
    """The runner's side."""

    def __init__(self, modules: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self.ended: dict[int, int] = {}
        """The status of each process that has ended, by pid."""
        self._born: queue.Queue[int] = queue.Queue()
        self._asking = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, *modules],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def spawn(self, config: Mapping[str, Any]) -> int:
        """Fork a client, and return its pid."""
        assert self._process.stdin is not None
        with self._asking:
            self._process.stdin.write(json.dumps(config) + "\n")
            self._process.stdin.flush()
            return self._born.get(timeout=PATIENCE)

    def close(self) -> None:
        """End the nursery and every client that is left."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait(PATIENCE)
        with contextlib.suppress(ProcessLookupError):  # what a client has forked, and what hangs there
            os.killpg(self._process.pid, signal.SIGKILL)
        self._reader.join(PATIENCE)
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            if "status" in said:
                self.ended[said["pid"]] = said["status"]
            else:
                self._born.put(said["pid"])


def serve(modules: Sequence[str]) -> None:
    """The nursery's own main loop."""
    for module in modules:
        importlib.import_module(module)
    children: set[int] = set()
    pending = b""
    while True:
        if select.select([0], [], [], 0.05)[0]:
            chunk = os.read(0, 65536)
            *lines, pending = (pending + chunk).split(b"\n")
            for text in lines:
                pid = _fork(text)
                children.add(pid)
                _say(pid=pid)
            if not chunk:
                break
        _reap(children)
    for child in children:
        for number in (signal.SIGKILL, signal.SIGCONT):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)


def _reap(children: set[int]) -> None:
    for child in [*children]:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            children.discard(child)
            _say(pid=child, status=os.waitstatus_to_exitcode(status))


def _say(**fields: int) -> None:
    os.write(1, (json.dumps(fields) + "\n").encode())


def _fork(text: bytes) -> int:
    nursery = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != nursery:
            os._exit(1)
        _be_a_client(json.loads(text))
        status = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(status)


def _be_a_client(config: dict[str, Any]) -> None:
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(2, 1)
    if namespace := config.get("netns"):
        enter(namespace)
    if boot := config.get("boot"):
        believe(boot)
    importlib.import_module(config.get("module", "chaos.client")).run(config)


def enter(namespace: str) -> None:
    """Move this process into a network namespace (`os.setns` is younger than our oldest Python)."""
    fd = os.open(f"/var/run/netns/{namespace}", os.O_RDONLY)
    if libc.setns(fd, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {namespace}")
    os.close(fd)


def believe(boot: str) -> None:
    """Let this process, and nobody else, read the name of the machine's boot from this file."""
    apart = libc.unshare(CLONE_NEWNS) or libc.mount(None, b"/", None, MS_REC | MS_SLAVE, None)
    if apart or libc.mount(os.fsencode(boot), BOOT, None, MS_BIND, None):
        raise OSError(ctypes.get_errno(), "cannot give this process a boot id of its own")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the runner's business
    serve(sys.argv[1:])
