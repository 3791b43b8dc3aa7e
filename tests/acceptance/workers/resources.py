"""Things worth a lock: one that anybody may trample on, and one that is guarded by fencing tokens.

`Guarded` keeps the highest token it has seen, whether it came with a read or a write, and refuses
a lower one in the same transaction. Reads count too: the mark must rise when a section begins,
or a sleeper whose successor has read but not yet written could still slip its write in between.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

from fencelock import StaleToken


def say(**fields: Any) -> None:
    """Tell the test something: one line of JSON, in one write."""
    os.write(sys.stdout.fileno(), (json.dumps(fields) + "\n").encode())


class Counter:
    """A number in a file, read and written without any care."""

    WIDTH = 16

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def read(self) -> int:
        return int(os.pread(self._fd, self.WIDTH, 0) or b"0")

    def write(self, value: int) -> None:
        os.pwrite(self._fd, f"{value:<{self.WIDTH}}".encode(), 0)

    def close(self) -> None:
        os.close(self._fd)


class Plain:
    """A list of words in a file: whoever writes last wins."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[str]:
        return self.path.read_text().split() if self.path.exists() else []

    def write(self, words: list[str]) -> None:
        draft = self.path.with_suffix(f".{os.getpid()}")
        draft.write_text(" ".join(words))
        draft.replace(self.path)


class Guarded:
    """A list of words that remembers the newest token, and refuses older ones."""

    def __init__(self, path: Path) -> None:
        self._name = path.name
        self._db = sqlite3.connect(path, timeout=30, isolation_level=None)
        self._db.execute("PRAGMA synchronous = OFF")
        self._db.execute("BEGIN IMMEDIATE")
        columns = "one INTEGER PRIMARY KEY, mark INTEGER, version INTEGER, words TEXT"
        self._db.execute(f"CREATE TABLE IF NOT EXISTS list ({columns})")
        self._db.execute("INSERT OR IGNORE INTO list VALUES (1, 0, 0, '')")
        self._db.execute("COMMIT")

    def read(self, token: int) -> tuple[int, list[str]]:
        """Return the version and the words; from now on no older token is served."""
        version, words = self._checked(token)
        self._db.execute("UPDATE list SET mark = ?", (token,))
        self._db.execute("COMMIT")
        return version, words

    def write(self, token: int, words: list[str]) -> int:
        """Write the words and return their version."""
        version, _ = self._checked(token)
        self._db.execute(
            "UPDATE list SET mark = ?, version = ?, words = ?", (token, version + 1, " ".join(words))
        )
        self._db.execute("COMMIT")
        return version + 1

    def look(self) -> list[str]:
        """Return the words, without a token: for the judge only."""
        words: str = self._db.execute("SELECT words FROM list").fetchone()[0]
        return words.split()

    def _checked(self, token: int) -> tuple[int, list[str]]:
        self._db.execute("BEGIN IMMEDIATE")
        mark, version, words = self._db.execute("SELECT mark, version, words FROM list").fetchone()
        if token < mark:
            self._db.execute("ROLLBACK")
            raise StaleToken(resource=self._name, token=token, newest=mark)
        return version, words.split()

    def close(self) -> None:
        self._db.close()
