"""SQLite: no server, so no network to break; the file itself, its lock and its disk."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from chaos.backends.store import Store

__all__ = ["SQLite"]

NO_NETWORK = "no network between the clients and the file"
NO_SERVER = "no server"
DISK = "4m"


class SQLite(Store):
    """A file of locks."""

    word = "sqlite"
    kind = ""
    sockets = 1  # from which all threads of a process send
    spared: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("reply", "swallow", "cut", "loss", "reset", "partition"), NO_NETWORK),
        **dict.fromkeys(("clock", "restart", "leader", "failover", "pooler"), NO_SERVER),
        "session": "no sessions",
    }

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.place = folder / "store"
        self.file = self.place / "locks.db"

    def start(self) -> None:
        self.place.mkdir()
        if self.small:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", self.place], check=True)

    def stop(self) -> None:
        if self.small:
            subprocess.run(["umount", "-l", self.place], check=False, capture_output=True)

    @property
    def url(self) -> str:
        return f"sqlite://{self.file}"

    def version(self) -> str:
        return sqlite3.sqlite_version

    def residue(self) -> list[str]:
        with contextlib.closing(self.open()) as db:
            return [f"{name} {owner}" for name, owner in db.execute("SELECT name, owner FROM queue")]

    def delete(self) -> None:
        with contextlib.closing(self.open()) as db:
            db.execute("DELETE FROM queue")

    logs = ("copied", "/store/locks.db")

    def log_files(self) -> list[Path]:
        """The index of the log is no part of it: after a reboot it is made anew."""
        (self.place / "locks.db-shm").unlink(missing_ok=True)
        return [file for file in (self.file, self.place / "locks.db-wal") if file.exists()]

    def refuse(self) -> None:
        """Fill the disk to the last byte."""
        with (self.place / "ballast").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)) == 4096:
                pass

    def accept(self) -> None:
        (self.place / "ballast").unlink(missing_ok=True)

    @contextlib.contextmanager
    def blocked(self) -> Iterator[None]:
        with contextlib.closing(self.open()) as db:
            db.execute("BEGIN IMMEDIATE")
            yield
            db.execute("ROLLBACK")

    def can_stop(self, pid: int) -> bool:
        """A process that is stopped in the very middle of a step blocks all others: that is declared."""
        with contextlib.closing(self.open(0.3)) as db:
            try:
                db.execute("BEGIN IMMEDIATE")
                db.execute("ROLLBACK")
            except sqlite3.OperationalError:
                return False
        return True

    def open(self, timeout: float = 30.0) -> sqlite3.Connection:
        """A connection of the operator's own."""
        return sqlite3.connect(self.file, timeout=timeout, isolation_level=None)
