"""What a measurement gives: the time of every single step, or the reason why there is none.

The spread is the distance between the quartiles: half of all steps took a time within it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fencelock.backends.checkup import quantile

__all__ = ["NotMeasured", "Row", "latency"]


class NotMeasured(Exception):
    """There is no figure here, and the text says why. The other measurements go on."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement."""

    key: str
    """What programs call it."""
    title: str
    times: Sequence[float] = ()
    """Seconds of each step."""
    rate: float | None = None
    """So many in a second, all together."""
    share: float | None = None
    """What the least-served contender had of what the best-served one had."""
    note: str = ""
    """Why there are no figures, or what has to be known of them."""

    @property
    def median(self) -> float | None:
        return quantile(self.times, 0.5) if self.times else None


def latency(times: Sequence[float]) -> dict[str, float]:
    """Return minimum, median, 95th and 99th percentile, and spread of at least one time.

    Example:
        >>> latency([0.3, 0.1, 0.2, 0.4, 0.5])["spread"]
        0.2
    """
    ordered = sorted(times)
    first, third = quantile(ordered, 0.25), quantile(ordered, 0.75)
    return {
        "min": ordered[0],
        "median": quantile(ordered, 0.5),
        "p95": quantile(ordered, 0.95),
        "p99": quantile(ordered, 0.99),
        "spread": third - first,
    }
