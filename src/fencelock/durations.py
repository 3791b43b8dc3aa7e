"""Durations: seconds as a number, or a `timedelta`. Anything else is refused by name."""

from __future__ import annotations

import math
from datetime import timedelta

from fencelock.errors import ConfigurationError
from fencelock.names import shown

__all__ = ["Duration", "duration", "optional_duration"]

LONGEST = 1e10
"""Three hundred years: whatever is longer is a mistake."""

Duration = float | timedelta
"""What every `ttl`, `timeout` and `max_hold` accepts."""


def duration(value: Duration, what: str) -> float:
    """Return `value` in seconds, finite and not negative.

    Example:
        >>> duration(timedelta(minutes=1), "ttl")
        60.0
    """
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise ConfigurationError(f"{what}={shown(value)} is not a duration: give seconds or a timedelta")
    if not 0 <= seconds < LONGEST:  # false for NaN as well
        raise ConfigurationError(
            f"{what}={shown(value)} is out of range: give a finite number of seconds, 0 or more"
        )
    return float(seconds)


def optional_duration(value: Duration | None, what: str) -> float:
    """Like `duration`, but `None` (and infinity) mean "without limit"."""
    if value is None or value == math.inf:
        return math.inf
    return duration(value, what)
