"""Results of long runs: a JSON file that is committed, and the page of the docs that is made of it."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

__all__ = ["Record", "Results"]

Record = dict[str, Any]


class Results:
    """What came of the runs of one program, by name."""

    def __init__(self, file: Path, names: Collection[str], page: Callable[[dict[str, Record]], str]) -> None:
        """Keep in `file` the records of `names`, in this order; `page` makes the page beside it."""
        self.file = file
        self.page = file.with_suffix(".md")
        self._names = names
        self._make = page

    def load(self) -> dict[str, Record]:
        """Return what is stored."""
        stored: dict[str, Record] = json.loads(self.file.read_text()) if self.file.exists() else {}
        return stored

    def store(self, name: str, record: Record) -> None:
        """Put one record in, and write the page. Several runs may do so at once."""
        with Path(__file__).open() as latch:
            fcntl.flock(latch, fcntl.LOCK_EX)
            stored = {**self.load(), name: record}
            ordered = {each: stored[each] for each in self._names if each in stored}
            self.file.write_text(json.dumps(ordered, indent=2, ensure_ascii=False) + "\n")
            self.write_page()

    def write_page(self) -> None:
        """Write the page from what is stored."""
        self.page.write_text(self._make(self.load()))

    def is_current(self) -> bool:
        """Whether the page is what would be written."""
        return self.page.exists() and self.page.read_text() == self._make(self.load())
