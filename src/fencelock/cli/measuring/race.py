"""One name, an empty section, many contenders: how often the lock changes hands, and how fairly.

A *handoff* is an acquisition by another contender than the one before: whoever takes the lock back at once
has handed it to nobody. The order of acquisitions is that of their tokens. How long a handoff took is told by
the monotonic clock, which all processes of a host share. The share is the least-served contender's part of
the best-served one's.

Everybody starts on one sign. What happens in the first moments does not count: connections for pushes are
opened then.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fencelock.cli.measuring.course import PATIENCE, Course
from fencelock.cli.measuring.row import NotMeasured, Row
from fencelock.cli.text import span
from fencelock.errors import AcquireTimeout
from fencelock.lock import Lock

__all__ = ["Heat", "Taken", "contend", "heat", "judged", "threads"]

HEAT = 0.5
GRACE = 2.0
"""Who waits when the time is over is still served for so long: a last step that is cut short looks like a
backend that is down."""
LOOK = 0.1

Taken = tuple[int, float]
"""The token of an acquisition, and when it came."""


class Heat(NamedTuple):
    """From when acquisitions count, and until when there are any."""

    since: float
    until: float


def heat(seconds: float) -> Heat:
    """Return the times of a race that begins now."""
    since = time.monotonic() + min(HEAT, seconds / 5)
    return Heat(since, since + seconds)


def contend(lock: Lock, until: float, over: Callable[[], object]) -> list[Taken]:
    """Take the lock and give it back, again and again."""
    taken: list[Taken] = []
    while not over() and (now := time.monotonic()) < until:
        try:
            lease = lock.acquire(timeout=until - now + GRACE)
        except AcquireTimeout:
            break
        taken.append((lease.token, time.monotonic()))
        lease.release()
    return taken


def judged(key: str, title: str, taken: Sequence[Sequence[Taken]], times: Heat) -> Row:
    """Make a row of what each contender has taken."""
    counted = [[one for one in ones if times.since <= one[1] < times.until] for ones in taken]
    order = sorted((token, when, who) for who, ones in enumerate(counted) for token, when in ones)
    gaps = [when - before for (_, before, one), (_, when, other) in itertools.pairwise(order) if one != other]
    if not gaps:
        raise NotMeasured(f"no handoff within {span(times.until - times.since)}")
    counts = [len(ones) for ones in counted]
    rate = len(gaps) / max(order[-1][1] - order[0][1], 1e-9)
    return Row(key, title, gaps, rate, share=min(counts) / max(counts))


def threads(course: Course, key: str, title: str) -> Row:
    """Let the threads of one blocking client race."""
    with course.blocking() as locks:
        ttl = course.ttl(locks.guarantees)
        own = [
            locks.lock(course.name(f"{key}:{n}"), ttl=ttl, timeout=PATIENCE) for n in range(course.contenders)
        ]
        crowd = _Crowd(course, locks.lock(course.name(key), ttl=ttl), own)
        times = crowd.race()
    return judged(key, title, crowd.taken, times)


class _Crowd:
    """Threads, what each has taken, and what went wrong first."""

    def __init__(self, course: Course, lock: Lock, own: Sequence[Lock]) -> None:
        self._course, self._lock, self._own = course, lock, own
        self._gate = threading.Barrier(len(own) + 1)
        self._times = Heat(0.0, 0.0)
        self._errors: list[BaseException] = []
        self.taken: list[list[Taken]] = [[] for _ in own]

    def race(self) -> Heat:
        """Run, and raise what went wrong."""
        threads = [
            threading.Thread(target=self._enter, args=(n,), daemon=True) for n in range(len(self._own))
        ]
        for thread in threads:
            thread.start()
        self._gate.wait()
        self._times = heat(self._course.seconds)
        self._gate.wait()
        for thread in threads:
            while thread.is_alive():
                thread.join(LOOK)  # signals are heard on this thread, and only in between
        if self._errors:
            raise self._errors[0]
        return self._times

    def _over(self) -> bool:
        return bool(self._course.stop or self._errors)

    def _enter(self, number: int) -> None:
        try:
            self._own[number].acquire().release()  # connecting is not part of the race
        except BaseException as error:  # noqa: BLE001 - raised by whoever waits for this thread
            self._errors.append(error)
        self._gate.wait()
        self._gate.wait()
        try:
            self.taken[number] = contend(self._lock, self._times.until, self._over)
        except BaseException as error:  # noqa: BLE001
            self._errors.append(error)
