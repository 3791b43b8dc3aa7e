"""Two things worth a lock, outside the backend under test: one plain, one guarded by the token.

*Plain*: a number in a file. Whoever writes last wins, so a section that comes too late tramples on an update.

*Guarded*: a log that all append to, and one rule that everybody applies to it in the log's own order: an
entry with a token below the highest one so far is refused, any other is accepted and raises it. Reads are
entries too: the mark must rise when a section begins, or a sleeper whose successor has read but not yet
written could slip its write in between. An append is one `write` to a file opened with O_APPEND, which
the kernel does not interleave; whoever has appended reads on to its own entry and so knows what became of
it. There is no lock to be stopped or killed with, and the place of an accepted write among the accepted
ones is known.

The guard knows nothing of versions: two writes with good tokens that were made from the same version are both
accepted, and the checker sees the lost update.

Not promised: anything after a crash of the machine.
"""

from __future__ import annotations

import itertools
import os
import struct
import threading
from pathlib import Path

from fencelock import StaleToken

__all__ = ["Guarded", "Plain"]

ENTRY = struct.Struct("<qqq")  # token, whether it is a write, whose
NUMBER = struct.Struct("<q")
CHUNK = ENTRY.size * 4096


class Plain:
    """A number that anybody may overwrite."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def read(self) -> int:
        found = os.pread(self._fd, NUMBER.size, 0)
        return int(NUMBER.unpack(found)[0]) if found else 0

    def write(self, value: int) -> None:
        os.pwrite(self._fd, NUMBER.pack(value), 0)

    def close(self) -> None:
        os.close(self._fd)


class Guarded:
    """A version that grows with each write, and only for whoever brings the highest token."""

    _numbers = itertools.count(1)

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._mutex = threading.Lock()
        self._end = 0  # of what was folded
        self._mark = 0
        self._version = 0

    def read(self, token: int) -> int:
        """Return the version; from now on no older token is served."""
        return self._append(token, write=False)

    def write(self, token: int) -> int:
        """Write, and return the new version: the place of this write among all accepted ones."""
        return self._append(token, write=True)

    def close(self) -> None:
        os.close(self._fd)

    def _append(self, token: int, *, write: bool) -> int:
        whose = os.getpid() << 32 | next(self._numbers)
        with self._mutex:
            os.write(self._fd, ENTRY.pack(token, write, whose))
            accepted = self._fold(whose)
            mark, version = self._mark, self._version
        if not accepted:
            raise StaleToken(resource=self.name, token=token, newest=mark)
        return version

    def _fold(self, whose: int) -> bool:
        """Apply the rule up to and including one's own entry; return whether that was accepted."""
        while True:
            chunk = os.pread(self._fd, CHUNK, self._end)
            for token, write, author in ENTRY.iter_unpack(chunk):
                self._end += ENTRY.size
                accepted = token >= self._mark
                if accepted:
                    self._mark = token
                    self._version += write
                if author == whose:
                    return bool(accepted)
