"""Ticks: aligned intervals, cron lines, time zones, and the days on which clocks change."""

from __future__ import annotations

import random
import sys
from datetime import UTC, datetime, timedelta

import pytest

from fencelock import ConfigurationError
from fencelock.schedule.ticks import Cron, Every, zone

BERLIN = zone("Europe/Berlin")
SPRING = datetime(2026, 3, 29, tzinfo=UTC).timestamp()  # 02:00 to 03:00 CET is left out, at 01:00 UTC
AUTUMN = datetime(2026, 10, 25, tzinfo=UTC).timestamp()  # 02:00 to 03:00 comes twice, from 00:00 UTC on
DAY = 86_400


def times(cron: Cron, start: float, end: float) -> list[str]:
    """Return the ticks between two instants, as UTC says them."""
    return [datetime.fromtimestamp(t, UTC).strftime("%d %H:%M") for t in cron.missed(start, end, 1000)]


def test_an_interval_is_counted_from_1970() -> None:
    every = Every(timedelta(minutes=5))
    assert every.after(0) == 300
    assert every.after(299.9) == 300
    assert every.after(300) == 600
    assert every.missed(0, 899.9, 10) == [300, 600]
    assert every.missed(0, 900, 2) == [600, 900], "the newest, in order"
    assert every.missed(900, 1000, 10) == []
    assert every.missed(1e9, 0, 10) == []
    assert repr(every) == "every 300s"


@pytest.mark.parametrize("interval", [0, 0.5, 1.5, -1, True, "5m", None])
def test_an_interval_that_is_none(interval: object) -> None:
    with pytest.raises(ConfigurationError, match="interval="):
        Every(interval)  # type: ignore[arg-type]


def test_a_line_in_utc_and_in_a_zone() -> None:
    start = datetime(2026, 7, 1, tzinfo=UTC).timestamp()
    assert times(Cron("30 6 * * *", UTC), start, start + 2 * DAY) == ["01 06:30", "02 06:30"]
    assert times(Cron("30 6 * * *", BERLIN), start, start + 2 * DAY) == ["01 04:30", "02 04:30"]
    assert times(Cron("0 0 * * MON", UTC), start, start + 7 * DAY) == ["06 00:00"]
    assert times(Cron("*/20 * * * * *", UTC), start, start + 60) == ["01 00:00"] * 2 + ["01 00:01"]


def test_spring_a_fixed_time_in_the_gap_runs_once_at_its_end() -> None:
    assert times(Cron("30 2 * * *", BERLIN), SPRING - DAY, SPRING + 2 * DAY) == [
        "28 01:30",
        "29 01:00",  # 03:00 CEST: 02:30 was left out
        "30 00:30",
    ]
    assert times(Cron("15,45 2 * * *", BERLIN), SPRING, SPRING + DAY) == ["29 01:00"], "once, not twice"


def test_spring_frequent_lines_have_nothing_in_the_gap() -> None:
    assert times(Cron("*/30 * * * *", BERLIN), SPRING, SPRING + 2 * 3600) == [
        "29 00:30",
        "29 01:00",
        "29 01:30",
        "29 02:00",
    ]
    assert times(Cron("30 * * * *", BERLIN), SPRING, SPRING + 2 * 3600) == ["29 00:30", "29 01:30"]


def test_autumn_a_fixed_time_that_comes_twice_runs_the_first_time() -> None:
    assert times(Cron("30 2 * * *", BERLIN), AUTUMN - DAY, AUTUMN + 2 * DAY) == [
        "24 00:30",
        "25 00:30",
        "26 01:30",
    ]


def test_autumn_frequent_lines_run_both_times() -> None:
    assert times(Cron("*/30 * * * *", BERLIN), AUTUMN - 1, AUTUMN + 2 * 3600) == [
        "25 00:00",
        "25 00:30",
        "25 01:00",
        "25 01:30",
        "25 02:00",
    ]
    assert times(Cron("0 30 2 * * *", BERLIN), AUTUMN - 1, AUTUMN + DAY) == ["25 00:30", "25 01:30"], (
        "six fields"
    )


@pytest.mark.parametrize("line", ["30 2 * * *", "*/7 * * * *", "15,45 2,3 * * *", "0 */2 * * *", "0 0 L * *"])
@pytest.mark.parametrize("name", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo"])
def test_hosts_agree_on_the_names_wherever_they_begin(line: str, name: str) -> None:
    where = zone(name)
    start = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    cron = Cron(line, where)
    # Around every change of the clocks of that year, seen from many starts.
    changes = [
        start + hour * 3600
        for hour in range(365 * 24)
        if datetime.fromtimestamp(start + hour * 3600, where).utcoffset()
        != datetime.fromtimestamp(start + (hour + 1) * 3600, where).utcoffset()
    ]
    assert changes
    chosen = random.Random(1)
    for change in changes:
        first, end = change - DAY / 2, change + DAY / 2
        known = set(cron.missed(first, end, 10_000))
        for _ in range(20):
            begin = chosen.uniform(first, end)
            assert set(cron.missed(begin, end, 10_000)) == {t for t in known if t > begin}


def test_missed_ticks_of_a_long_time_cost_little() -> None:
    cron = Cron("* * * * * *", UTC)
    now = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    assert cron.missed(0, now, 3) == [now - 2, now - 1, now]
    rare = Cron("0 0 29 2 *", UTC)
    (found,) = rare.missed(0, now, 1)
    assert datetime.fromtimestamp(found, UTC).date().isoformat() == "2024-02-29"
    assert rare.missed(found, now, 5) == []


@pytest.mark.parametrize(
    "line", ["", "* * * *", "61 * * * *", "x * * * *", "* * * * * * *", "0 0 30 2 *", "@daily", None, 5]
)
def test_a_line_that_cannot_be_read(line: object) -> None:
    with pytest.raises(ConfigurationError, match=r"cron line .* (cannot be read|never comes)"):
        Cron(line, UTC)  # type: ignore[arg-type]


def test_a_line_that_never_comes() -> None:
    with pytest.raises(ConfigurationError, match="never comes"):
        Cron("* * */20 * 1L", UTC)


@pytest.mark.parametrize("name", ["Europe/Atlantis", "", "../etc/passwd", "Europe", None, 5])
def test_a_zone_that_is_not_known(name: object) -> None:
    with pytest.raises(ConfigurationError, match="timezone="):
        zone(name)  # type: ignore[arg-type]


def test_without_cronsim_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cronsim", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'fencelock\[schedule\]'"):
        Cron("* * * * *", UTC)
