"""Which records to read: the arithmetic of an exchange, without any I/O."""

from __future__ import annotations

from collections.abc import Sequence

from fencelock.crdt.exchange.base import Record

__all__ = ["by_author", "last", "wanted"]


def by_author(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Return the records of each author."""
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record.author, []).append(record)
    return found


def wanted(records: Sequence[Record], seen: int) -> list[Record]:
    """Return which of an author's records to read, in order, for whoever has merged all up to `seen`.

    Example:
        >>> there = [Record("a", 4, True), Record("a", 5, False), Record("a", 6, False)]
        >>> [record.seq for record in wanted(there, 0)], [record.seq for record in wanted(there, 5)]
        ([4, 5, 6], [6])
    """
    whole = max((record for record in records if record.whole), default=None, key=lambda one: one.seq)
    deltas = {record.seq: record for record in records if not record.whole}
    plan = []
    if whole is not None and seen < whole.seq:
        plan.append(whole)
        seen = whole.seq
    while seen + 1 in deltas:
        seen += 1
        plan.append(deltas[seen])
    return plan


def last(records: Sequence[Record]) -> int:
    """Return the number up to which somebody new would come; 0 if nobody can begin."""
    plan = wanted(records, 0)
    return plan[-1].seq if plan else 0
