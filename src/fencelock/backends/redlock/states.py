"""What several nodes say of a lock, as one: who holds it, and how they voted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fencelock.backends.redlock.keys import Record
from fencelock.core.quorum import quorum
from fencelock.state import Entry, LockState

__all__ = ["Polled", "QuorumState", "holder", "polled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumState(LockState):
    """A lock as a quorum of nodes sees it."""

    votes: Mapping[str, str] = field(default_factory=dict)
    """What each node said, in words."""

    def as_dict(self) -> dict[str, Any]:
        """Return the state as plain data, for JSON."""
        return {**LockState.as_dict(self), "votes": dict(self.votes)}


@dataclass(frozen=True, slots=True)
class Polled:
    """One node's record of a lock, and its time in microseconds when it was asked."""

    record: Record
    now: int


def polled(answers: Iterable[Any], place: int = 1) -> list[Polled]:
    """Read the answers of `look.lua` or `break.lua`: the record at this place, where there is one."""
    return [
        Polled(record, answer[0])
        for answer in answers
        if isinstance(answer, list) and (record := Record.read(answer[place])) is not None
    ]


def holder(found: Sequence[Polled], nodes: int, silent: int) -> Entry | None:
    """Return who holds the lock: the owner that a quorum has, or may have with the nodes that are silent.

    Its token is the one that most have: a node whose vote came too late to count may have another. It is
    gone when so many of its records have expired that no quorum is left.
    """
    if not found:
        return None
    (owner, votes), *_ = Counter(each.record.owner for each in found).most_common(1)
    enough = quorum(nodes)
    if votes + silent < enough:
        return None  # left over, or just on its way in or out
    mine = [each for each in found if each.record.owner == owner]
    lefts = sorted((each.record.left for each in mine), reverse=True)
    tokens = Counter(each.record.token for each in mine)
    best = max(mine, key=lambda each: (tokens[each.record.token], each.record.token))
    return best.record.entry(best.now, lefts[min(enough, len(lefts)) - 1])
