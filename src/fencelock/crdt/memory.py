"""What a replica must not forget, and the steps by which it changes.

A *step* says only what is new: a delta, a number. A memory and the steps after it give the memory that is
meant now; since values merge in any order, many steps are joined pair by pair before they meet the value.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fencelock.crdt import shape
from fencelock.crdt.base import Crdt
from fencelock.crdt.clocks import counts_from_tree, counts_tree
from fencelock.crdt.codec import from_bytes
from fencelock.crdt.exchange.base import record_from
from fencelock.crdt.packing import Tree, Wrong
from fencelock.runtime.ids import new_id

if TYPE_CHECKING:
    from typing import Self

__all__ = ["Memory", "Step"]

C = TypeVar("C", bound=Crdt)


@dataclass(frozen=True)
class Step(Generic[C]):
    """One change of a memory. What is `None` stays as it was."""

    news: C | None = None
    """What is merged into the value."""
    own: bool = False
    """Whether the news were made here, and are to be sent."""
    sent: bool = False
    """Whether all that was to be sent was sent."""
    id: str | None = None
    seq: int | None = None
    seen: dict[str, int] | None = None

    def tree(self) -> Tree:
        """Return it as plain values."""
        news = None if self.news is None else self.news.to_bytes()
        seen = None if self.seen is None else counts_tree(self.seen)
        return news, self.own, self.sent, self.id, self.seq, seen

    @classmethod
    def from_tree(cls, tree: Tree, kind: type[C]) -> Self:
        """Return a step that was read; raise `Wrong` or `DecodeError`."""
        news, own, sent, name, seq, seen = shape.sequence(tree, 6)
        if type(own) is not bool or type(sent) is not bool:
            raise Wrong("a part has the wrong shape")
        return cls(
            None if news is None else _value(news, kind),
            own,
            sent,
            None if name is None else _id(name),
            None if seq is None else shape.number(seq, 0),
            None if seen is None else counts_from_tree(seen),
        )


@dataclass(frozen=True)
class Memory(Generic[C]):
    """All that a replica must not forget."""

    value: C
    """The value, with all that was merged."""
    outgoing: C
    """What was changed here and may not have been sent yet."""
    id: str = field(default_factory=new_id)
    """Who this replica is: drawn when the file was made."""
    seq: int = 0
    """The last number that a record was, or was about to be, written under."""
    seen: dict[str, int] = field(default_factory=dict)
    """Up to which record of each other replica all is merged."""

    def after(self, *steps: Step[C]) -> Memory[C]:
        """Return the memory after some steps."""
        kind = type(self.value)
        news = _joined([step.news for step in steps if step.news is not None])
        last_sent = max((place for place, step in enumerate(steps, 1) if step.sent), default=0)
        left = _joined([step.news for step in steps[last_sent:] if step.own and step.news is not None])
        outgoing = kind() if last_sent else self.outgoing
        told: dict[str, Any] = {
            name: found
            for step in steps
            for name, found in (("id", step.id), ("seq", step.seq), ("seen", step.seen))
            if found is not None
        }
        return replace(
            self,
            value=self.value if news is None else self.value.merge(news),
            outgoing=outgoing if left is None else outgoing.merge(left),
            **told,
        )

    def tree(self) -> Tree:
        """Return it as plain values."""
        numbers = self.id, self.seq, counts_tree(self.seen)
        return (*numbers, self.value.to_bytes(), self.outgoing.to_bytes())

    @classmethod
    def from_tree(cls, tree: Tree, kind: type[C]) -> Self:
        """Return a memory that was read; raise `Wrong` or `DecodeError`."""
        name, seq, seen, value, outgoing = shape.sequence(tree, 5)
        kept = _value(value, kind), _value(outgoing, kind)
        return cls(*kept, _id(name), shape.number(seq, 0), counts_from_tree(seen))


def _joined(values: Sequence[C]) -> C | None:
    """Merge many values: in pairs, for one by one each merge would copy all that came before."""
    while len(values) > 1:
        pairs = itertools.zip_longest(values[::2], values[1::2])
        values = [one if two is None else one.merge(two) for one, two in pairs]
    return values[0] if values else None


def _value(part: Any, kind: type[C]) -> C:
    if type(part) is not bytes:
        raise Wrong("a part has the wrong shape")
    return from_bytes(part, kind)


def _id(part: Any) -> str:
    if record_from(f"{part}-0.whole") is None or type(part) is not str:
        raise Wrong("a part has the wrong shape")
    return part
