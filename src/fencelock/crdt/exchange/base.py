"""Where replicas leave what they have to tell: the contract that a directory, SQL and Redis keep.

For each name there are *records*, known by (author, seq, whole). Only its author writes or deletes a
record, and never twice under one seq, so there is nothing to lock and nothing to race for. A record is
`whole`, the author's whole state as of seq, or a delta, what the author changed since seq - 1.

Postconditions:

- `records`: what is there, in any order; bodies are not read. This is the digest.
- `read`: the bodies of those that are still there; the others are left out.
- `write`: the record is there as a whole, then those that it replaces are gone. An error means that
  it may be there or not; a reader never sees a part of it.
- `remove`: the records are gone.

Not promised: that a reader sees records in the order in which they were written. Readers cope.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Exchange", "Record", "record_from", "said"]

FORM = re.compile(r"([0-9a-z]{1,64})-([0-9]{1,18})\.(whole|delta)")


class Record(NamedTuple):
    """What is known of a record without reading it.

    Example:
        >>> Record("a1", 3, False).label()
        'a1-3.delta'
    """

    author: str
    """The id of the replica that wrote it."""
    seq: int
    """Which one of its author's records it is."""
    whole: bool
    """Whether it is the whole state, or a delta."""

    def label(self) -> str:
        """Return its name in a store that wants one string."""
        return f"{self.author}-{self.seq}.{'whole' if self.whole else 'delta'}"


def record_from(label: str) -> Record | None:
    """Return the record of a label; `None` for what is none."""
    found = FORM.fullmatch(label)
    return Record(found[1], int(found[2]), found[3] == "whole") if found else None


def said(error: BaseException) -> str:
    """Return what a driver's error says, on one line."""
    return " ".join(str(error).split())[:200] or type(error).__name__


class Exchange(ABC):
    """A place where the replicas of a value leave their records for each other.

    Example:
        >>> import tempfile
        >>> from fencelock.crdt import DirectoryExchange
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     place = DirectoryExchange(folder)
        ...     place.write("stock", Record("a1", 1, True), b"body", [])
        ...     place.read("stock", place.records("stock"))
        {Record(author='a1', seq=1, whole=True): b'body'}
    """

    @abstractmethod
    def records(self, name: str) -> list[Record]:
        """Return the records of a name."""

    @abstractmethod
    def read(self, name: str, records: Sequence[Record]) -> dict[Record, bytes]:
        """Return the bodies of those records that are there."""

    @abstractmethod
    def write(self, name: str, record: Record, body: bytes, replaced: Sequence[Record]) -> None:
        """Put a record, then remove those that it replaces."""

    @abstractmethod
    def remove(self, name: str, records: Sequence[Record]) -> None:
        """Remove records."""

    def close(self) -> None:
        """Close what this exchange has opened itself."""
