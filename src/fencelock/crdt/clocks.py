"""Clocks for programs that share none: a hybrid logical clock, and a vector clock.

A `HybridLogicalClock` gives timestamps near the wall time that only ever rise, and that are later
than every timestamp it was shown: after `observe(t)`, `now() > t`. A timestamp is (wall time in
microseconds, tick, replica), ordered in this order; the tick rises while the wall time stands
still or has been set back, the replica makes it unique. A timestamp further ahead of the wall time
than `max_ahead` is refused: one machine with a wrong clock must not drag all others along.

A `VectorClock` counts the events of each replica. It tells whether one state had seen another
(before, after, equal), or neither had (concurrent), and no wall clock has a part in it.

Not promised: that the later of two timestamps was later in fact. Timestamps of two replicas that
have not heard of each other are ordered as their wall clocks were, right or wrong.
"""

from __future__ import annotations

import enum
import time as _time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from fencelock.crdt import shape
from fencelock.crdt.base import Change, Crdt, check_replica
from fencelock.crdt.codec import register
from fencelock.crdt.packing import MAX_INTEGER, Tree, Wrong
from fencelock.durations import Duration, duration
from fencelock.errors import ConfigurationError, FencelockError
from fencelock.names import shown
from fencelock.runtime import locks

if TYPE_CHECKING:
    from typing import Self

__all__ = ["ClockAhead", "HybridLogicalClock", "Order", "Timestamp", "VectorClock", "raised"]

MILLION = 1_000_000


class ClockAhead(FencelockError):
    """A timestamp is further ahead of this machine's clock than is allowed: one of the two clocks is wrong.

    Example:
        >>> str(ClockAhead(replica="anna", ahead=3600.0, limit=60.0))
        "a timestamp of 'anna' is 3.6e+03s ahead of this clock, at most 60s are allowed: set the clocks right"
    """

    def __init__(self, *, replica: str, ahead: float, limit: float) -> None:
        super().__init__(
            f"a timestamp of {replica!r} is {ahead:.3g}s ahead of this clock, "
            f"at most {limit:.3g}s are allowed: set the clocks right"
        )
        self.replica = replica
        self.ahead = ahead
        self.limit = limit


class Timestamp(NamedTuple):
    """A moment of a `HybridLogicalClock`; the greater one is the later one.

    Example:
        >>> Timestamp(5, 0, "anna") < Timestamp(5, 1, "anna") < Timestamp(5, 1, "ben") < Timestamp(6, 0, "a")
        True
    """

    wall: int
    """Microseconds since 1970."""
    tick: int
    """Which one of those in the same microsecond."""
    replica: str
    """Whose clock it was."""


def stamp_from_tree(tree: Tree) -> Timestamp:
    """Return the timestamp of a state that was read."""
    wall, tick, replica = shape.sequence(tree, 3)
    return Timestamp(shape.number(wall, 0), shape.number(tick, 0), shape.name(replica))


def check_stamp(stamp: Timestamp) -> Timestamp:
    """Return `stamp` if it is a timestamp that can be."""
    try:
        return stamp_from_tree(tuple(stamp) if isinstance(stamp, tuple) else None)
    except Wrong:
        raise ConfigurationError(f"stamp={shown(stamp)} is not a Timestamp") from None


class HybridLogicalClock:
    """A clock whose timestamps only rise, stay near the wall time, and follow those it was shown.

    Example:
        >>> anna = HybridLogicalClock("anna", time=lambda: 100.0)
        >>> ben = HybridLogicalClock("ben", time=lambda: 90.0)      # ten seconds slow
        >>> first = anna.now()
        >>> ben.observe(first)
        >>> ben.now() > first
        True
    """

    def __init__(
        self, replica: str, *, max_ahead: Duration = 60.0, time: Callable[[], float] = _time.time
    ) -> None:
        """Make a clock for one replica; `time` gives the seconds since 1970. Threads may share it."""
        self._replica = check_replica(replica)
        self._max_ahead = duration(max_ahead, "max_ahead")
        self._time = time
        self._lock = locks.lock()
        self._last = (0, 0)

    @property
    def replica(self) -> str:
        """Whose clock it is."""
        return self._replica

    def now(self) -> Timestamp:
        """Return a timestamp later than every one before it, given or observed."""
        with self._lock:
            wall, tick = self._last
            self._last = max((self._wall(), 0), (wall, tick + 1))
            return Timestamp(*self._last, self._replica)

    def check(self, stamp: Timestamp) -> None:
        """Raise `ClockAhead` if a timestamp is too far ahead of the wall time."""
        stamp = check_stamp(stamp)
        ahead = (stamp.wall - self._wall()) / MILLION
        if ahead > self._max_ahead or stamp.tick >= MAX_INTEGER:
            raise ClockAhead(replica=stamp.replica, ahead=ahead, limit=self._max_ahead)

    def observe(self, stamp: Timestamp) -> None:
        """Let all later timestamps be greater than this one; raises `ClockAhead`, and has changed nothing."""
        self.check(stamp)
        with self._lock:
            self._last = max(self._last, (stamp.wall, stamp.tick))

    def _wall(self) -> int:
        wall = int(self._time() * MILLION)
        if not 0 <= wall < MAX_INTEGER:
            raise ConfigurationError(f"time() gave {wall / MILLION:g}: it must give the seconds since 1970")
        return wall

    def __repr__(self) -> str:
        return f"<HybridLogicalClock of {self._replica!r}>"


class Order(enum.Enum):
    """How two vector clocks stand to each other.

    Example:
        >>> Order.BEFORE.value
        'before'
    """

    BEFORE = "before"
    AFTER = "after"
    EQUAL = "equal"
    CONCURRENT = "concurrent"


@register
class VectorClock(Crdt):
    """How many events of each replica a state has seen.

    Example:
        >>> anna, _ = VectorClock().tick("anna")
        >>> ben, _ = VectorClock().tick("ben")
        >>> anna.compare(ben).value, anna.compare(anna | ben).value
        ('concurrent', 'before')
    """

    __slots__ = ("_counts",)
    code = 1

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        """Start from nothing, or from counts that are known."""
        self._counts = checked_counts({} if counts is None else counts)

    def tick(self, replica: str) -> Change[VectorClock]:
        """Count one event of `replica`."""
        return Change(*map(_clock, raised(self._counts, check_replica(replica), 1)))

    def compare(self, other: VectorClock) -> Order:
        """Say whether this one is before, after, equal to or concurrent with `other`."""
        self._check_same(other)
        behind, ahead = _within(self._counts, other._counts), _within(other._counts, self._counts)
        if behind:
            return Order.EQUAL if ahead else Order.BEFORE
        return Order.AFTER if ahead else Order.CONCURRENT

    def merge(self, other: VectorClock) -> VectorClock:
        """Return what has seen the events of both."""
        self._check_same(other)
        return _clock(highest(self._counts, other._counts))

    def __getitem__(self, replica: str) -> int:
        return self._counts.get(replica, 0)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._counts))

    def __len__(self) -> int:
        return len(self._counts)

    def _tree(self) -> Tree:
        return counts_tree(self._counts)

    @classmethod
    def _from_tree(cls, tree: Tree) -> Self:
        return cls(counts_from_tree(tree))

    def _state(self) -> object:
        return self._counts

    def __repr__(self) -> str:
        return f"VectorClock({self._counts!r})"


def _clock(counts: dict[str, int]) -> VectorClock:
    made = VectorClock()
    made._counts = counts
    return made


# Counts by replica --------------------------------------------------------------------------


def checked_counts(counts: Mapping[str, int]) -> dict[str, int]:
    """Return a copy of counts that can be; zeros are left out."""
    if not isinstance(counts, Mapping):
        raise ConfigurationError(f"counts={shown(counts)} is not a mapping of replicas to numbers")
    for replica, count in counts.items():
        check_replica(replica)
        check_count(count, replica)
    return {replica: count for replica, count in counts.items() if count}


def check_count(count: int, what: str) -> int:
    """Return `count` if it can be counted up to."""
    if type(count) is not int or not 0 <= count <= MAX_INTEGER:
        raise ConfigurationError(
            f"{what}={shown(count)} is out of range: give a whole number from 0 to 2^63-1"
        )
    return count


def raised(counts: Mapping[str, int], replica: str, by: int) -> tuple[dict[str, int], dict[str, int]]:
    """Return the counts with one of them raised, and that one alone."""
    if not by:
        return dict(counts), {}
    count = check_count(counts.get(replica, 0) + by, f"the count of {replica!r}")
    return {**counts, replica: count}, {replica: count}


def highest(one: Mapping[str, int], two: Mapping[str, int]) -> dict[str, int]:
    """Return the higher count of each replica."""
    return {**one, **{replica: count for replica, count in two.items() if count > one.get(replica, 0)}}


def counts_tree(counts: Mapping[str, int]) -> Tree:
    """Return counts as (replica, count, …)."""
    return tuple(part for pair in sorted(counts.items()) for part in pair)


def counts_from_tree(tree: Tree) -> dict[str, int]:
    """Return the counts of a state that was read."""
    return {replica: shape.number(count) for replica, count in shape.named(tree).items()}


def _within(one: Mapping[str, int], two: Mapping[str, int]) -> bool:
    return all(count <= two.get(replica, 0) for replica, count in one.items())
