"""Which lease belongs to which `with` block of a lock that many share.

A `with` statement looks `__exit__` up before it calls `__enter__`, keeps what it found until the block is
over, and calls that. So each lookup gives an object of its own, an `Exit`, and `__enter__` puts the lease
into it: the block finds its lease without a search, also in a generator that another thread closes.
`ExitStack` does the same. If Python leaves the block and never runs `__exit__` (an interrupt came before
its first step, or the frame died), the `Exit` is dropped, and its destructor has the lease released.

Other code that calls `__enter__` and `__exit__` by hand looks `__exit__` up later. Its block is found by
the frame of the two calls. If these are two, it is found by the object whose methods made both calls and
by the thread or task, last in first out, or because no other is left. If several are, none is guessed:
the block ends with an error, and all of those leases are released when the last of those blocks has
ended.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from sys import _getframe
from types import FrameType
from typing import Any

from fencelock.errors import ConfigurationError

__all__ = ["Block", "Blocks", "Exits", "Last", "caller", "entering"]

NEAR = 16
"""A `with` statement calls `__enter__` within so many bytes of code from its lookup of `__exit__`: at once up
to Python 3.13, and from 3.14 on after a few instructions. Code that calls by hand has more between them."""

Entry = tuple[Any, object]
"""The lease, and the thread or task that entered."""
Placed = tuple[FrameType | None, Entry]


class Block:
    """A block that has looked up its `__exit__`; from `__enter__` on it has a lease."""

    __slots__ = ("at", "by_hand", "frame", "lease", "owner")

    def __init__(self, owner: object, frame: FrameType | None) -> None:
        self.owner = owner  # of `__exit__`
        self.by_hand = owner is None  # looked up on the class, as `ExitStack` does
        self.frame = frame
        self.at = -1 if frame is None else frame.f_lasti
        self.lease: Any = None


class Last:
    """What the coroutine of `__aexit__` keeps: if that never runs, the lease is released all the same."""

    __slots__ = ("_by_hand", "_lease")

    def __init__(self, block: Block) -> None:
        self._by_hand = block.by_hand
        self._lease = block.lease
        block.lease = None

    def __del__(self) -> None:
        self._lease._drop(by_hand=self._by_hand)


class Exit(functools.partial[Any]):
    """The `__exit__` of one block.

    It is written in C, so no frame of ours refers to it: it dies when the block's frame drops it, even while
    an exception that was raised in `__exit__` is still being handled.
    """

    __slots__ = ()

    def __del__(self) -> None:
        block: Block = self.args[0]
        block.frame = block.owner = None
        if block.lease is not None:
            block.lease._drop(by_hand=block.by_hand)


class Exits:
    """A method that each block has for itself. It calls `function(block, owner, ...)`."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __get__(self, owner: object, kind: type) -> Exit:
        try:
            block = Block(owner, _getframe(1))
        except ValueError:  # a thread began with this
            block = Block(owner, None)
        found = Exit(self._function, block) if owner is None else Exit(self._function, block, owner)
        _latest.block = block
        return found


class _Latest(threading.local):
    block = Block(None, None)


_latest = _Latest()
"""The block for which this thread has looked up `__exit__` last."""


def entering(owner: object) -> Block | None:
    """Return the block for which the caller of this is called as `__enter__`; none if by hand."""
    block = _latest.block
    frame = block.frame
    if frame is None or frame is not _getframe(2):
        return None
    if not (block.by_hand or (block.owner is owner and 0 <= frame.f_lasti - block.at <= NEAR)):
        return None
    block.frame = block.owner = None
    return block


def caller() -> FrameType | None:
    """Return the frame that called the caller of this; none if a thread began with that call."""
    try:
        return _getframe(2)
    except ValueError:
        return None


class Blocks:
    """The blocks of one lock that have been entered by hand and not left."""

    __slots__ = ("_astray", "_open")

    def __init__(self) -> None:
        self._open: dict[FrameType | None, list[Entry]] = {}
        self._astray = 0  # blocks that have ended, and could not be told from others that had not

    def enter(self, frame: FrameType | None, caller: object, lease: Any) -> None:
        """This frame has entered a block with this lease."""
        self._open.setdefault(frame, []).append((lease, caller))

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
        return [(frame, block) for frame, blocks in list(self._open.items()) for block in blocks]

    def _take(self, frame: FrameType | None, block: Entry) -> Any:
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
