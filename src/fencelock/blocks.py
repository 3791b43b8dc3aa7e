"""Which lease belongs to which `with` block of a lock that many share.

A `with` statement calls `__enter__` and `__exit__` from one frame, so the frame identifies the block: in a
generator that another thread closes, and in an async generator that another task closes, too. Blocks of one
frame are nested, so the one that was entered last ends first.

Code that calls `__enter__` and `__exit__` by hand, as `ExitStack` does, may call them from two frames. Such a
block is found by the object whose methods made both calls (the stack) and by the thread or task, last in
first out, or because no other is left. If several are, none is guessed: the block ends with an error, and all
of those leases are released when the last of those blocks has ended.
"""

from __future__ import annotations

from types import FrameType
from typing import Any

from fencelock.errors import ConfigurationError

__all__ = ["Blocks"]

STATEMENTS = frozenset({"BEFORE_WITH", "BEFORE_ASYNC_WITH"})
"""The instruction that calls `__enter__` up to Python 3.13; from 3.14 on a call after `LOAD_SPECIAL`."""

Block = tuple[Any, object, int]
"""The lease, the thread or task that entered, and the instruction of the frame that did."""
Placed = tuple[FrameType | None, Block]


class Blocks:
    """The blocks of one lock that have been entered and not left."""

    __slots__ = ("_astray", "_open")

    def __init__(self) -> None:
        self._open: dict[FrameType | None, list[Block]] = {}
        self._astray = 0  # blocks that have ended, and could not be told from others that had not

    def enter(self, frame: FrameType | None, at: int, caller: object, lease: Any) -> None:
        """This frame has entered a block with this lease, by the instruction `at`."""
        blocks = self._open.get(frame)
        if blocks is None:
            self._open[frame] = [(lease, caller, at)]
        else:
            blocks.append((lease, caller, at))

    def leave(self, frame: FrameType | None) -> Any:
        """Return the lease of the block that ends in this frame; `None` if it was not entered there."""
        blocks = self._open.get(frame)
        if blocks is None:
            return None
        lease = blocks.pop()[0]
        if not blocks:
            del self._open[frame]
        return lease

    def leave_by_hand(self, frame: FrameType | None, caller: object, name: str) -> list[Any]:
        """Return the leases to release for a block that was entered in another frame."""
        blocks = self._entered_by_hand()
        if not blocks:
            raise ConfigurationError(
                f"lock {name!r} has no block to leave: __exit__ was called without __enter__"
            )
        chosen = _found(blocks, frame, caller)
        if not chosen:
            self._astray += 1
        left = [block for block in blocks if block not in chosen]
        if self._astray and self._astray >= len(left):
            chosen += reversed(left)
            self._astray = 0
        if not chosen:
            raise ConfigurationError(
                f"cannot tell which lease on {name!r} this block entered with, for several were entered by "
                "calls of __enter__ on other threads or tasks: use `with lock.acquire() as lease:`"
            )
        return [self._take(frame, block) for frame, block in chosen]

    def _entered_by_hand(self) -> list[Placed]:
        """Return what was entered by calling `__enter__`, in the order of entry."""
        return [
            (frame, block)
            for frame, blocks in list(self._open.items())
            for block in blocks
            if frame is None or not _is_statement(frame, block[2])
        ]

    def _take(self, frame: FrameType | None, block: Block) -> Any:
        blocks = self._open[frame]
        blocks.remove(block)
        if not blocks:
            del self._open[frame]
        return block[0]


def _found(blocks: list[Placed], frame: FrameType | None, caller: object) -> list[Placed]:
    """Return the one block of these that ends here, or none if that cannot be told."""
    owner = _owner(frame)
    owned = [placed for placed in blocks if owner is not None and _owner(placed[0]) is owner]
    pool = owned or blocks
    callers = {id(block[1]) for _, block in pool}
    if id(caller) in callers:
        pool = [placed for placed in pool if placed[1][1] is caller]
    elif len(pool) > 1 and not (owned and len(callers) == 1):
        return []
    return pool[-1:]


def _owner(frame: FrameType | None) -> object:
    """Return the first argument of the function that this frame runs: of a method, its object."""
    if frame is None or not frame.f_code.co_argcount:
        return None
    return frame.f_locals.get(frame.f_code.co_varnames[0])


def _is_statement(frame: FrameType, at: int) -> bool:
    """Whether the instruction belongs to a `with` statement, and not to a plain call."""
    import dis  # only now: most programs never come here

    before = ""
    for instruction in dis.get_instructions(frame.f_code):
        if instruction.offset == at:
            return instruction.opname in STATEMENTS or before == "LOAD_SPECIAL"
        before = instruction.opname
    return False
