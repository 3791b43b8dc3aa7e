"""What the outcomes of renewals are worth after a request for them was sent twice."""

from __future__ import annotations

from collections.abc import Sequence

from fencelock.core.ports import Outcome, Renewal

__all__ = ["as_sent"]


def as_sent(renewals: Sequence[Renewal], outcomes: Sequence[Outcome], *, twice: bool) -> list[Outcome]:
    """Return the outcomes, but not of shortenings that were sent twice.

    The first copy of such a one may be done late, and would cut short a longer extension.
    """
    return [
        Outcome.UNKNOWN if twice and renewal.exact and outcome is Outcome.RENEWED else outcome
        for renewal, outcome in zip(renewals, outcomes, strict=True)
    ]
