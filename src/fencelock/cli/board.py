"""What `fencelock top` shows, as plain data: which locks, in which order, with which words. No I/O.

A *picture* is what the backend said at one moment. Between two pictures ages grow and bars run down by
this machine's monotonic clock, so the board lives while the backend is asked once in an interval.

A bar shows how much of a lease is left, of the longest rest that was seen of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fencelock.changes import changes, longest_rests
from fencelock.cli.look import mark, mode, who
from fencelock.cli.text import shown, span
from fencelock.state import LockState

__all__ = ["HEADER", "ORDERS", "Board", "Row", "bar"]

HEADER = ("NAME", "MODE", "HOLDER", "TOKEN", "HELD", "WAITING", "EXPIRES")
ORDERS = ("waiters", "age", "expiry", "name")
WIDTH = 10
FULL, EMPTY, PARTS = "█", "░", "▏▎▍▌▋▊▉"


class Row(NamedTuple):
    """One lock as it is shown."""

    cells: tuple[str, ...]
    left: float
    """How much is left of the lease that ends first, from 0 to 1."""


def bar(left: float, width: int = WIDTH) -> str:
    """Return a bar for a part from 0 to 1.

    Example:
        >>> bar(0.5, 4)
        '██░░'
    """
    eighths = round(max(0.0, min(1.0, left)) * width * 8)
    whole, part = divmod(eighths, 8)
    text = FULL * whole + (PARTS[part - 1] if part else "")
    return text + EMPTY * (width - len(text))


class Board:
    """Everything that is known of the locks, and how it is looked at."""

    def __init__(self, now: float, order: str = "waiters", wanted: str = "") -> None:
        self.order = order
        self.wanted = wanted
        self.typing = False
        self.trouble = ""
        """Why the backend does not answer; empty while it does."""
        self._began = self._at = now
        self._states: Sequence[LockState] = ()
        self._seen: Mapping[str, float] = {}
        self._changes = 0
        self._first = True
        self._sorted: list[LockState] | None = None

    def take(self, states: Sequence[LockState], now: float) -> None:
        """Take in a new picture."""
        self._changes += 0 if self._first else len(changes(self._states, states))
        self._seen = longest_rests(self._seen, states)
        self._states, self._at, self._first = states, now, False
        self.trouble, self._sorted = "", None

    def press(self, key: str) -> bool:
        """Take a key that was pressed; say whether to go on."""
        self._sorted = None
        if self.typing:
            self._type(key)
        elif key in {"q", "Q"}:
            return False
        elif key == "s":
            self.order = ORDERS[(ORDERS.index(self.order) + 1) % len(ORDERS)]
        elif key == "/":
            self.typing = True
        elif key == "\x1b":
            self.wanted = ""
        return True

    def _type(self, key: str) -> None:
        if key in {"\r", "\n"}:
            self.typing = False
        elif key == "\x1b":
            self.typing, self.wanted = False, ""
        elif key in {"\x7f", "\b"}:
            self.wanted = self.wanted[:-1]
        elif key.isprintable():
            self.wanted += key

    def summary(self, now: float) -> str:
        """Return the figures at the top."""
        held = sum(bool(state.holders) for state in self._states)
        waiters = sum(len(state.waiters) for state in self._states)
        passed = now - self._began
        rate = self._changes / passed if passed > 0 else 0.0
        return f"{held} held  {waiters} waiting  {rate:.1f} changes/s since {span(passed)}"

    def chosen(self) -> Sequence[LockState]:
        """Return the locks that are wanted, in order."""
        if self._sorted is None:
            wanted = self.wanted.casefold()
            found = [state for state in self._states if wanted in _words(state)] if wanted else self._states
            self._sorted = sorted(found, key=_keys[self.order])
        return self._sorted

    def rows(self, now: float, most: int | None = None) -> list[Row]:
        """Return the first locks as they are shown: at most so many, and no work for the rest."""
        passed = max(0.0, now - self._at)
        return [self._row(state, passed) for state in self.chosen()[:most]]

    def _row(self, state: LockState, passed: float) -> Row:
        name, waiting = shown(state.name), str(len(state.waiters) or "-")
        if not state.holders:
            return Row((name, "-", "-", "-", "-", waiting, "-"), 0.0)
        first = state.holders[0]
        more = f" +{len(state.holders) - 1}" if len(state.holders) > 1 else ""
        soonest = min(state.holders, key=lambda entry: entry.expires_in)
        rest = max(0.0, soonest.expires_in - passed)
        left = rest / self._seen[soonest.owner] if self._seen.get(soonest.owner) else 0.0
        held = span(max(entry.age for entry in state.holders) + passed)
        expires = f"{bar(left)} {span(rest)}"
        token = str(max(entry.token for entry in state.holders))
        holder = who(first) + more + mark(first)
        return Row((name, mode(first), holder, token, held, waiting, expires), left)


def _words(state: LockState) -> str:
    """What is looked through: the name, and who holds it."""
    return " ".join([shown(state.name), *(who(entry) for entry in state.holders)]).casefold()


def _age(state: LockState) -> float:
    return max((entry.age for entry in state.holders), default=0.0)


def _rest(state: LockState) -> float:
    return min((entry.expires_in for entry in state.holders), default=float("inf"))


_keys = {
    "waiters": lambda state: (-len(state.waiters), -_age(state), state.name),
    "age": lambda state: (-_age(state), state.name),
    "expiry": lambda state: (_rest(state), state.name),
    "name": lambda state: (state.name,),
}
