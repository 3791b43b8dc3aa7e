"""How often a waiter looks: MySQL cannot tell it that its turn has come.

A look is a read of a few rows, without a write and without waiting for a disk. Whoever is next and has
just begun to wait looks every millisecond or two. Whoever stands further back has seen how fast the queue
moves, and looks away for a good part of the time until its turn. The longer nothing has moved, the longer
the pause. So a lock that is held for milliseconds is passed on in milliseconds, and one that is held for
minutes costs a few looks a second.
"""

from __future__ import annotations

from fencelock.runtime.base import Signal

__all__ = ["LONGEST", "Waiter"]

SHORTEST = 0.0015
GROWTH = 0.02
"""A pause is so much of the time that nothing has moved; polling adds half of it to the wait, on average."""
PART = 0.4
"""So much of the time until its turn, by the pace of the queue, a waiter looks away."""
LONGEST = 0.25


class Waiter:
    """One request that waits: its token, where it stands, and since when. Its signal ends a pause."""

    __slots__ = ("before", "pace", "signal", "since", "token")

    def __init__(self, token: int, before: int, now: float, signal: Signal) -> None:
        self.token = token
        self.before = before
        self.since = now
        self.signal = signal
        self.pace = 0.0  # seconds in which the queue moved by one, of late

    def stands(self, token: int, before: int, now: float) -> None:
        """It was seen at this place in the queue."""
        if token == self.token and before < self.before:
            pace = (now - self.since) / (self.before - before)
            self.pace = (self.pace + pace) / 2 if self.pace else pace
        if before != self.before or token != self.token:
            self.token, self.before, self.since = token, before, now

    def pause(self, now: float, slots: int, jitter: float) -> float:
        """Return for how long to look away; `slots` may hold together, `jitter` is from 0 up to 1."""
        behind = max(0, self.before - max(1, slots))
        pause = SHORTEST + behind * max(SHORTEST, PART * self.pace) + GROWTH * max(0.0, now - self.since)
        return min(LONGEST, pause * (0.75 + 0.5 * jitter))
