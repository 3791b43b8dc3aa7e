"""Durations: seconds or a timedelta, and nothing else."""

from __future__ import annotations

import decimal
import math
from datetime import timedelta

import pytest

from fencelock import ConfigurationError
from fencelock.durations import duration, optional_duration


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(0, 0.0), (5, 5.0), (0.25, 0.25), (timedelta(minutes=1), 60.0), (timedelta(0), 0.0), (1e9, 1e9)],
)
def test_seconds_and_timedeltas_are_durations(value: object, seconds: float) -> None:
    for read in (duration, optional_duration):
        found = read(value, "ttl")  # type: ignore[arg-type]
        assert found == seconds
        assert isinstance(found, float)


WRONG = [
    -1,
    -0.001,
    math.nan,
    -math.inf,
    timedelta(seconds=-1),
    True,
    False,
    "5",
    b"5",
    [5],
    1j,
    decimal.Decimal("1.5"),
    10**400,
]


@pytest.mark.parametrize("value", WRONG, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("read", [duration, optional_duration])
def test_anything_else_is_refused_by_name(read: object, value: object) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(value, "ttl")  # type: ignore[operator]
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("ttl=")
    assert "give" in message
    if value != 10**400:
        assert repr(value)[:40] in message


def test_only_an_optional_duration_may_be_without_limit() -> None:
    assert optional_duration(None, "timeout") == math.inf
    assert optional_duration(math.inf, "timeout") == math.inf
    for value in (None, math.inf):
        with pytest.raises(ConfigurationError, match="ttl="):
            duration(value, "ttl")  # type: ignore[arg-type]
