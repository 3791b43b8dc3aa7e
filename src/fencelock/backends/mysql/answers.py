"""The two answers that nearly every step gets, read from their bytes.

The drivers make an object of each packet, and of each column a description that nobody asks for: for the
token of a grant, six packets, that is a third of what the client does for an acquire. So the bytes that
have arrived are looked at first, and taken if they are, to the last one, one of these:

    OK                                        a statement that changed so many rows
    one column, its end, one row, its end, OK a procedure that answered with one whole number

Whatever else it is (an error, more columns, a part of an answer) is left to the driver, untouched.
"""

from __future__ import annotations

__all__ = ["glance_at"]

MORE_RESULTS = 0x08
BIGINT = 8
NULL = 0xFB
END = 0xFE


def glance_at(data: bytes) -> int | None:
    """Return the one number of an answer: rows changed, or what a procedure said; `None` for all others."""
    bodies, at, end = [], 0, len(data)
    while at + 4 <= end:
        bodies.append(at + 4)
        at += 4 + (data[at] | data[at + 1] << 8 | data[at + 2] << 16)
        if data[bodies[-1] - 1] != len(bodies):  # packets are numbered from 1 on
            return None
    if at != end or not bodies or not _is_last(data, bodies[-1], end):
        return None
    if len(bodies) == 1:
        return data[bodies[0] + 1]
    # With or without a packet after the columns: a server may leave it out, if the driver lets it.
    if len(bodies) not in {5, 6} or bodies[1] - bodies[0] != 5 or data[bodies[0]] != 1:
        return None
    row = bodies[-3]
    if (row != bodies[2] and data[bodies[2]] != END) or data[bodies[-2]] != END:
        return None
    size = data[row]
    if data[bodies[2] - 10] != BIGINT or size >= NULL or row + 1 + size + 4 != bodies[-2]:
        return None
    return int(data[row + 1 : row + 1 + size])


def _is_last(data: bytes, body: int, end: int) -> bool:
    """Whether this is an OK packet, of less than 251 rows and without an id, that nothing follows."""
    return (
        end - body >= 7
        and data[body] == 0
        and data[body + 1] < NULL
        and data[body + 2] == 0
        and not data[body + 3] & MORE_RESULTS
    )
