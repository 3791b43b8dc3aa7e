"""How an attempt can end: what a handler may raise, what is kept of an error, when to try again."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from fencelock.durations import Duration, duration
from fencelock.errors import ConfigurationError, FencelockError
from fencelock.names import shown
from fencelock.runtime import locks

__all__ = ["Backoff", "Ledger", "Reject", "Retry", "Tally", "reason_of"]

LONGEST_PAUSE = 3600.0
Backoff = Duration | Callable[[int], Duration]
"""Seconds after the first attempt, doubled after each further one; or a function of the attempt's number."""


class Reject(FencelockError):
    """Raised by a handler: this job can never succeed. It is dead at once, with the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Retry(FencelockError):
    """Raised by a handler: not now. The job is due again `after` so many seconds, if attempts are left."""

    def __init__(self, *, after: Duration, reason: str = "the handler asked for another time") -> None:
        super().__init__(reason)
        self.after = duration(after, "after")
        self.reason = reason


def reason_of(error: BaseException) -> str:
    """Return an error in one line, as the table keeps it."""
    if isinstance(error, Reject | Retry):
        return _one_line(error.reason)
    told = _one_line(str(error))
    return f"{type(error).__name__}: {told}" if told else type(error).__name__


def _one_line(text: object) -> str:
    # NUL is the one character that PostgreSQL does not take, lone surrogates are none.
    line = " ".join(str(text).replace("\0", " ").split())
    return line.encode("utf-8", "replace").decode()


def check_backoff(backoff: Backoff) -> Backoff:
    """Return it if it can say when to try again."""
    return backoff if callable(backoff) else duration(backoff, "backoff")


def pause_after(backoff: Backoff, attempt: int) -> float:
    """Return how many seconds to wait after an attempt; jittered, so that failures do not come in step."""
    if callable(backoff):
        return duration(backoff(attempt), "backoff")
    first = duration(backoff, "backoff")
    return min(first * 2.0 ** min(attempt - 1, 40), LONGEST_PAUSE) * (0.5 + random.random())


def check_count(value: int, what: str, highest: int) -> int:
    """Return a number of things if there can be so many."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= highest:
        raise ConfigurationError(
            f"{what}={shown(value)} is out of range: give a whole number from 1 to {highest}"
        )
    return value


@dataclass(frozen=True, slots=True)
class Tally:
    """What a worker has done: how its attempts have ended."""

    taken: int = 0
    """Attempts that were begun."""
    done: int = 0
    retried: int = 0
    """Failed, and due again."""
    dead: int = 0
    overtaken: int = 0
    """Refused: another attempt had begun, or somebody had ended the job."""
    lost: int = 0
    """The lease was lost before the end, or the end could not be told to the database in time."""
    given_back: int = 0
    """Not ended when the worker had to stop."""


class Ledger:
    """A tally that threads add to."""

    def __init__(self) -> None:
        self._mutex = locks.lock()
        self._counts: dict[str, int] = {}

    def add(self, what: str) -> None:
        """Count one."""
        with self._mutex:
            self._counts[what] = self._counts.get(what, 0) + 1

    def tally(self) -> Tally:
        """Return how it stands."""
        with self._mutex:
            return Tally(**self._counts)
