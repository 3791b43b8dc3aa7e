"""SQLite: no server, so no network to break; the file itself, its lock and its disk."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from chaos.backends.store import Store

__all__ = ["SQLite"]

NO_NETWORK = "no network between the clients and the file"
NO_SERVER = "no server"
DISK = "sqlite"
"""What its disk is called."""


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
        self.file = folder / "locks.db"

    def start(self) -> None:
        if self.disks:
            self.file = self.disks.place(DISK) / "locks.db"

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

    log = "/locks.db-wal"

    def refuse(self) -> None:
        self.fill(True)

    def accept(self) -> None:
        self.fill(False)

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
