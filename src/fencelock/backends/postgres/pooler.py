"""Is a pooler in between, and does it keep sessions apart?

A pooler is noticed by the process id: the one in the greeting is the pooler's invention. Whether it gives a
client one server session for good (session mode) or another one for each transaction is found out with
two connections: one leaves a mark in its session, the other opens a transaction and looks for it.
In transaction mode the idle session that was used last is taken first, so the other finds the mark, or
the first has lost it. No answer is proof of session mode; it is asked a few times.
"""

from __future__ import annotations

import os
from typing import Any

from fencelock.backends.postgres.wire import Source

__all__ = ["keeps_sessions"]

TIMES = 3
LOOK = "SELECT coalesce(current_setting('fencelock.mark', true), '')"


async def keeps_sessions(source: Source, first: Any, deadline: float) -> bool:
    """Whether the connection `first` has one session of the server for itself."""
    if not first.is_pooled:
        return True
    second = await source.dial(deadline)
    try:
        for _ in range(TIMES):
            mark = os.urandom(8).hex()
            await source.run(first, f"SELECT set_config('fencelock.mark', '{mark}', false)", deadline)
            await source.run(second, "BEGIN", deadline)
            seen = await _look(source, second, deadline)
            kept = await _look(source, first, deadline)
            await source.run(second, "ROLLBACK", deadline)  # closing it does the same, if it comes to that
            if seen == mark or kept != mark:
                return False
        return True
    finally:
        second.close()


async def _look(source: Source, link: Any, deadline: float) -> str:
    result = await source.run(link, LOOK, deadline)
    return str(result.get_value(0, 0).decode())
