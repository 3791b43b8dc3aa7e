"""What the locks protect: one resource that checks the fencing token, and one that does not.

A critical section reads, waits and writes. The guarded resource keeps the newest token it has
seen and refuses older ones, *at the read too*: a guard at the write alone lets a stale holder
write between the reading and the writing of its successor, whose write then buries it.

The plain resource is the control. If it never loses an update, the faults were not real.
"""

from __future__ import annotations

from fencelock.testing.history import History

__all__ = ["Resource"]


class Resource:
    """Two cells of one lock's data: guarded and plain. Values are never used twice."""

    def __init__(self, name: str, history: History) -> None:
        self.name = name
        self.history = history
        self.newest = -1
        self.guarded = self.plain = self._values = 0
        self._seq = 0

    def read(self, token: int) -> int | None:
        """Read the guarded cell; None if the token is stale."""
        if token < self.newest:
            return None
        self.newest = token
        return self.guarded

    def write(self, client: str, token: int, base: int) -> bool:
        """Write the guarded cell, unless the token is stale."""
        self._values += 1
        accepted = token >= self.newest
        if accepted:
            self.newest = token
            self.guarded = self._values
            self._seq += 1
        self.history.write(
            client,
            self.name,
            token=token,
            base=base,
            value=self._values,
            seq=self._seq if accepted else None,
            accepted=accepted,
        )
        return accepted

    def write_plain(self, client: str, base: int) -> None:
        """Write the plain cell, whoever asks."""
        self._values += 1
        self.plain = self._values
        self.history.plain(client, self.name, base=base, value=self._values)
