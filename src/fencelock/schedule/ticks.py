"""When: the ticks of a cron line or of an interval, as whole seconds since 1970.

All hosts must give a tick the same name. So a tick is its scheduled instant, and nothing here depends on when
a host began to count: an interval counts from 1970-01-01 00:00 UTC, and a cron line is only ever read
forwards, since cronsim read backwards answers a little differently around a change of the clocks.

Cron lines are cronsim's, which does as Debian's cron does: five fields, or six with the seconds first. When
the clocks change, a line with a fixed minute and hour (`30 2 * * *`) runs once that day: in spring, if its
time is skipped, at the end of the gap; in autumn, if its time comes twice, at the first of the two. A line
that begins with `*` in one of those fields, and one with six fields, follows the clock on the wall: nothing
in the gap, both times in autumn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from fencelock.durations import Duration, duration
from fencelock.errors import ConfigurationError
from fencelock.extras import refuse_old
from fencelock.names import shown

__all__ = ["Cron", "Every", "Times", "zone"]

WINDOWS = (3600, 86_400, 32 * 86_400, 366 * 86_400, 60 * 366 * 86_400)
"""How far back to look for missed ticks, in seconds: further each time, so that dense lines cost little."""


class Times(ABC):
    """The instants of a schedule."""

    @abstractmethod
    def after(self, instant: float) -> int | None:
        """Return the first tick after an instant; `None` if none ever comes."""

    @abstractmethod
    def missed(self, after: float, until: float, most: int) -> list[int]:
        """Return the ticks after the one instant and not after the other: the newest `most`, in order."""


class Every(Times):
    """Every so many seconds, counted from 1970."""

    def __init__(self, interval: Duration, what: str = "interval") -> None:
        seconds = duration(interval, what)
        if seconds < 1 or seconds != int(seconds):
            raise ConfigurationError(f"{what}={shown(interval)} is no whole number of seconds from 1 on")
        self.seconds = int(seconds)

    def after(self, instant: float) -> int:
        return (int(instant // self.seconds) + 1) * self.seconds

    def missed(self, after: float, until: float, most: int) -> list[int]:
        last = int(until // self.seconds) * self.seconds
        first = max(self.after(after), last - (most - 1) * self.seconds)
        return list(range(first, last + 1, self.seconds))

    def __repr__(self) -> str:
        return f"every {self.seconds}s"


class Cron(Times):
    """The times of a cron line in a time zone."""

    def __init__(self, line: str, zone: tzinfo) -> None:
        self.line = line
        self._zone = zone
        if not isinstance(line, str) or self.after(0) is None:
            raise ConfigurationError(
                f"cron line {shown(line)} never comes: write five fields, as '*/5 * * * *'"
            )

    def after(self, instant: float) -> int | None:
        return next(self._from(instant), None)

    def missed(self, after: float, until: float, most: int) -> list[int]:
        found: deque[int] = deque(maxlen=most)
        for window in WINDOWS:
            start = max(after, until - window)
            found.clear()
            for tick in self._from(start):
                if tick > until:
                    break
                found.append(tick)
            if len(found) == most or start == after:
                break
        return list(found)

    def _from(self, instant: float) -> Iterator[int]:
        last = instant
        for moment in _simulated(self.line, datetime.fromtimestamp(instant, self._zone)):
            tick = int(moment.timestamp())
            # Two of a line's times may fall on one instant (both in the gap of spring), and in the second
            # of two equal hours the first one's are found again.
            if tick > last:
                last = tick
                yield tick

    def __repr__(self) -> str:
        return f"{self.line} ({self._zone})"


def zone(name: str) -> tzinfo:
    """Return a time zone by its name. Raises `ConfigurationError`."""
    if name == "UTC":
        return UTC  # also where there is no database of time zones
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, TypeError, OSError):  # OSError: a folder of the database
        raise ConfigurationError(
            f"timezone={shown(name)} is not known: give a name such as Europe/Berlin, or install tzdata"
        ) from None


def _simulated(line: Any, start: datetime) -> Any:
    try:
        from cronsim import CronSim, CronSimError
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"cron lines need the package {error.name!r}: pip install 'fencelock[schedule]'"
        ) from error
    try:
        return CronSim(line, start)
    except CronSimError as error:
        refuse_old("schedule", "cron lines")
        what = str(error).lower()
        raise ConfigurationError(
            f"cron line {shown(line)} cannot be read ({what}): write five fields, as '*/5 * * * *'"
        ) from None
