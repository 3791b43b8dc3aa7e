"""The tail of a replica's file: a frame for each change since the whole state that the file begins with.

    mark 16 | number 8 | size 8 | check 16 | body

The *mark* is the check sum of that whole state, so a frame of another file never fits. Frames are numbered
from 1; the check is over all the rest of the frame.

A frame is synced before the next one is begun, and before anybody is told that the change is kept. So a
crash can tear only the last frame. What is wrong and has no good frame behind it is taken for torn, and
left out. A wrong frame with a good one behind it, or a number that is missing, is damage: refused.

Not promised: to tell a last frame that was damaged later from one that was torn.
"""

from __future__ import annotations

import struct

from fencelock.crdt.messages import CHECK, seal
from fencelock.crdt.packing import Wrong

__all__ = ["bodies", "frame"]

HEAD = struct.Struct(f">{CHECK}sQQ{CHECK}s")


def frame(mark: bytes, number: int, body: bytes) -> bytes:
    """Return the frame of a body."""
    return HEAD.pack(mark, number, len(body), _check(mark, number, body)) + body


def bodies(mark: bytes, data: bytes) -> list[bytes]:
    """Return the bodies of all frames but a torn one; raise `Wrong` for damage."""
    found: list[bytes] = []
    place = 0
    while (read := _frame_at(place, mark, data)) is not None and read[0] == len(found) + 1:
        found.append(read[1])
        place += HEAD.size + len(read[1])
    while (place := data.find(mark, place)) >= 0:
        if _frame_at(place, mark, data) is not None:
            raise Wrong("it is damaged: a change in the middle cannot be read")
        place += 1
    return found


def _frame_at(place: int, mark: bytes, data: bytes) -> tuple[int, bytes] | None:
    head = data[place : place + HEAD.size]
    if len(head) < HEAD.size:
        return None
    marked, number, size, check = HEAD.unpack(head)
    body = data[place + HEAD.size : place + HEAD.size + size]
    good = marked == mark and len(body) == size and check == _check(mark, number, body)
    return (number, body) if good else None


def _check(mark: bytes, number: int, body: bytes) -> bytes:
    return seal(struct.pack(f">{CHECK}sQQ", mark, number, len(body)) + body)
