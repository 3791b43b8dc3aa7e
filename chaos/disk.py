"""A disk whose power can fail, and that can be full, mounted for one server or one file.

The file system itself is `disk.c`, which says what is durable and what is lost. It is compiled for each run;
each member of an ensemble has a disk of its own, so that one, some or all can lose their power.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tools.servers import ServerError
from tools.servers.clock import COMPILER, HEADERS
from tools.servers.keeper import keeper
from tools.servers.packages import Package, install

__all__ = ["Disk", "Disks"]

SOURCE = Path(__file__).with_suffix(".c")
FUSE = Package("libfuse3-dev", ("/usr/include/fuse3/fuse.h",))
OPTIONS = ("-O1", "-D_FILE_OFFSET_BITS=64", "-I/usr/include/fuse3")
FULL, SYNC = 0, 1
USUAL, WAITS, FAILS = 0, 1, 2
PATIENCE = 30.0


class Disks:
    """The disks of one run, by the names of the members."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.mounts = folder / "disks", folder / "mounts"
        self.program = self.folder / "disk"
        self.by_name: dict[str, Disk] = {}
        if os.geteuid() != 0:
            raise ServerError("mounting a disk needs root")
        install([COMPILER, HEADERS, FUSE])
        for each in (self.folder, self.mounts):
            _make(each)
        # What is unmounted here must go in namespaces too that somebody made meanwhile, or it would live on.
        subprocess.run(["mount", "--bind", "--make-shared", self.mounts, self.mounts], check=True)
        keeper().add("mount", self.mounts)
        command = ["cc", *OPTIONS, "-o", str(self.program), str(SOURCE), "-lfuse3", "-lpthread"]
        subprocess.run(command, check=True, capture_output=True, timeout=60)

    def place(self, name: str) -> Path:
        """A new folder on the disk of this member."""
        if name not in self.by_name:
            self.by_name[name] = Disk(self.program, self.folder / name, self.mounts / name)
        folder = Path(tempfile.mkdtemp(dir=self.by_name[name].mounted))
        folder.chmod(0o711)
        return folder

    def settle(self) -> None:
        """Everything there is now is durable, as after a while."""
        for disk in self.by_name.values():
            disk.settle()

    def close(self) -> None:
        """Unmount them all."""
        for disk in self.by_name.values():
            disk.unmount()
        self.by_name.clear()
        subprocess.run(["umount", self.mounts], check=True)
        keeper().remove("mount", self.mounts)
        shutil.rmtree(self.folder)
        shutil.rmtree(self.mounts)


class Disk:
    """One of them. Nobody must have a file open on it when it loses its power."""

    def __init__(self, program: Path, folder: Path, mounted: Path) -> None:
        self.mounted, switches, kept = mounted, folder / "switches", folder / "kept"
        self._command = [program, kept, mounted, switches]
        for each in (folder, kept, mounted):
            _make(each)
        switches.write_bytes(bytes(2))
        with switches.open("r+b") as file:
            self._switches = mmap.mmap(file.fileno(), 2)
        self.mount()

    def mount(self) -> None:
        """Give it power."""
        self._switches[SYNC] = USUAL
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, start_new_session=True, text=True
        )
        keeper().add("mount", self.mounted)
        deadline = time.monotonic() + PATIENCE
        while not self.mounted.is_mount():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ServerError(f"the disk could not be mounted (status {self._process.poll()})")
            time.sleep(0.002)

    def unmount(self) -> dict[str, int]:
        """Take its power; return how many bytes each file lost."""
        deadline = time.monotonic() + PATIENCE
        while subprocess.run(["umount", self.mounted], check=False, capture_output=True).returncode:
            if time.monotonic() > deadline:
                raise ServerError(f"{self.mounted} is still in use")
            time.sleep(0.01)  # who was killed has not let go of everything yet
        said, _ = self._process.communicate(timeout=PATIENCE)
        keeper().remove("mount", self.mounted)
        if self._process.returncode:
            raise ServerError(f"the disk ended with status {self._process.returncode}")
        lines = (line.partition(" ") for line in said.splitlines())
        return {path: int(lost) for lost, _, path in lines}

    def lose(self) -> dict[str, int]:
        """Take its power, and give it back."""
        lost = self.unmount()
        self.mount()
        return lost

    def settle(self) -> None:
        """All that was written is durable now."""
        top = os.open(self.mounted, os.O_RDONLY)
        try:
            os.fsync(top)
        finally:
            os.close(top)

    def fill(self, full: bool) -> None:
        """Whether there is no room left."""
        self._switches[FULL] = full

    @contextlib.contextmanager
    def failing(self) -> Iterator[None]:
        """Writes are taken, and not one becomes durable: an fsync waits, and at the end of this fails.

        It fails after two seconds anyway. All is as usual again after `lose`.
        """
        self._switches[SYNC] = WAITS
        try:
            yield
        finally:
            self._switches[SYNC] = FAILS


def _make(folder: Path) -> None:
    """Servers with an account of their own must be able to pass through."""
    folder.mkdir()
    folder.chmod(0o711)
