"""Once in a period, from a command line: the loop of `fencelock once` and of Django's `OnceCommand`.

Look, and take the turn if one is due. The lock may still be held by the run of an earlier period: that is
waited for. Otherwise the newest run says what to tell, and with which exit status.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

from fencelock.runtime import clock
from fencelock.schedule.plan import Plan
from fencelock.schedule.records import FAILED, RUNNING, Run

__all__ = ["NotEnded", "exit_status", "summary", "taken"]

T = TypeVar("T")
RETRY = 0.2
LOST = 76
UNKNOWN = 1
"""The status for a run that failed and recorded none: a function of Python."""


class NotEnded(Exception):
    """The run of an earlier period has not ended in time."""


def taken(
    look: Callable[[bool], Plan], take: Callable[[], T | None], rest: Callable[[float], None], wait: float
) -> tuple[T | None, Run | None]:
    """Return what `take` gave; `None` if there is nothing to run in this period, and its newest run.

    `look(True)` is asked first, and may offer a run that failed once more; after that `look(False)`. Raises
    `NotEnded` if the lock was not free within `wait` seconds.
    """
    give_up = clock.now() + wait
    todo = look(True)
    while todo.is_worth_a_try:
        got = take()
        if got is not None:
            return got, todo.last
        tried = todo.tick
        if tried is not None:
            if clock.now() >= give_up:
                raise NotEnded
            rest(RETRY)
        todo = look(False)
        if tried is None and todo.tick is None:
            break  # another host runs it, or was found to have died
    return None, todo.last


def summary(name: str, run: Run | None) -> str:
    """Say how the run of this period stands."""
    if run is None or not run.has_failed:
        is_running = run is not None and run.state == RUNNING
        return f"{name!r} {'is running now' if is_running else 'was run in this period already'}"
    detail = f" ({run.detail})" if run.detail else ""
    begun = datetime.fromtimestamp(run.started, UTC)
    return (
        f"{name!r} {run.state} in this period{detail}, on {run.host}, begun {begun:%Y-%m-%d %H:%M:%SZ}: "
        "--retry-failed runs it again"
    )


def exit_status(run: Run | None) -> int:
    """Return the status that the host of this run has returned; 0 for one that is running."""
    if run is None or not run.has_failed:
        return 0
    return (run.exit_status or UNKNOWN) if run.state == FAILED else LOST
