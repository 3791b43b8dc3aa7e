"""Waiting for a state with a deadline, by asking again and again, ever more slowly."""

from __future__ import annotations

import time
from collections.abc import Callable

from .errors import NotReady, ServerError

FIRST_PAUSE = 0.01
LONGEST_PAUSE = 0.2


def until(check: Callable[[], object], seconds: float, what: str, tail: Callable[[], str] = str) -> None:
    """Returns once `check()` does. Its last complaint, and `tail()`, are told when the time is over.

    NotReady and OSError mean "not yet"; any other error ends the waiting.
    """
    deadline = time.monotonic() + seconds
    pause = FIRST_PAUSE
    while True:
        try:
            check()
        except (NotReady, OSError) as error:
            if time.monotonic() > deadline:
                raise ServerError(f"{what} not ready within {seconds:g}s: {error}{tail()}") from error
        else:
            return
        time.sleep(pause)
        pause = min(pause * 1.5, LONGEST_PAUSE)
