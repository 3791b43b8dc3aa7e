"""A running count of a history that others are writing: read on from where one stopped."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from fencelock.testing import Event

__all__ = ["Tally"]


class Tally:
    """Counts events by kind, and remembers when each name was last granted."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.kinds: Counter[str] = Counter()
        self.granted: dict[str, float] = {}
        self.lost_updates = 0
        """Of the plain resources, so far."""
        self._bases: set[tuple[object, object]] = set()

    def update(self) -> None:
        """Read what is new."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        end = data.rfind(b"\n") + 1
        self._offset += end
        for line in data[:end].splitlines():
            kind = line[9 : line.find(b'"', 9)].decode()  # {"kind":"granted",…
            self.kinds[kind] += 1
            if kind == "granted":
                event = Event.from_json(line.decode())
                self.granted[event.name] = event.at
            elif kind == "plain":
                event = Event.from_json(line.decode())
                self.lost_updates += (event.resource, event.base) in self._bases
                self._bases.add((event.resource, event.base))
