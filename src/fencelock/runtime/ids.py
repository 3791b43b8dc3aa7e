"""Random ids, drawn from the kernel by the dozen: a system call for each would be felt.

A forked child starts with an empty stock, so that it does not hand out its parent's ids.
"""

from __future__ import annotations

import os

__all__ = ["new_id"]

DRAWN = 64
_stock: list[str] = []


def new_id() -> str:
    """Return 32 hexadecimal digits that nobody else has."""
    try:
        return _stock.pop()
    except IndexError:
        drawn = os.urandom(16 * (DRAWN + 1)).hex()
        _stock.extend(drawn[at : at + 32] for at in range(32, len(drawn), 32))
        return drawn[:32]


os.register_at_fork(after_in_child=_stock.clear)
