"""What this machine can do, and what it cannot."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Self

from tools.servers import ServerError
from tools.servers.clock import COMPILER, HEADERS
from tools.servers.network import Namespaces
from tools.servers.packages import install

from chaos.disk import Disks

__all__ = ["Lateness", "commit", "description", "lacks"]

ROOT = Path(__file__).resolve().parents[1]


@cache
def _lack(capability: str) -> str:
    try:
        if capability == "namespaces":
            network = Namespaces()
            try:
                _, namespace = network.join("probe")
                network.hinder(namespace, "-s", network.clients, "-j", "DROP")
            finally:
                network.close()
        elif capability == "compiler":
            install([COMPILER, HEADERS])
        elif capability == "fuse":
            with tempfile.TemporaryDirectory() as folder, contextlib.closing(Disks(Path(folder))) as disks:
                disks.place("probe")
    except (ServerError, OSError, subprocess.SubprocessError) as error:
        return f"{capability}: {str(error).splitlines()[0]}"
    return ""


def lacks(capabilities: Sequence[str]) -> str:
    """What is missing of these, in words; empty if nothing is."""
    return "; ".join(filter(None, map(_lack, capabilities)))


def commit() -> str:
    """The commit that is run, and whether it was changed since."""
    try:
        said = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=10"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return said.stdout.strip()


def description() -> str:
    """The machine in one line."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {system}"


class Lateness(threading.Thread):
    """How much later than it wanted to a thread has ever woken up: that is the machine's doing."""

    STEP = 0.02

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.worst = 0.0
        self._over = threading.Event()

    def run(self) -> None:
        while True:
            due = time.monotonic() + self.STEP
            if self._over.wait(self.STEP):
                return
            self.worst = max(self.worst, time.monotonic() - due)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()
