"""The queue is the lock: one rule for mutexes, read-write locks, semaphores and elections.

A lock name owns a queue of requests, ordered by token. The holders are the queue's
*admitted prefix*: the longest run of requests from the head that are compatible with each
other. Everything else waits. The rule is FIFO by construction, and a writer cannot starve:
a reader that comes after it stands behind it.

    mode        compatible
    exclusive   alone
    shared      with other shared requests
    permit      with other permits, while at most `limit` are admitted

Where a backend runs code (SQL, Lua) this same rule is written there again; the conformance
suite and the simulator compare the two. The rule knows nothing of time: expired requests
are to be taken out of the queue before it is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

__all__ = ["EXCLUSIVE", "PERMIT", "SHARED", "UNLIMITED", "Mode", "Queued", "admitted"]

Mode = Literal["exclusive", "shared", "permit"]

EXCLUSIVE: Mode = "exclusive"
SHARED: Mode = "shared"
PERMIT: Mode = "permit"

UNLIMITED = 0
"""The `limit` of shared requests. An exclusive request has the limit 1."""


class Queued(Protocol):
    """What the rule looks at."""

    @property
    def mode(self) -> Mode: ...
    @property
    def limit(self) -> int: ...


def admitted(queue: Sequence[Queued]) -> int:
    """Return how many requests at the head of `queue` hold the lock.

    Postconditions: 0 only for an empty queue; the first `n` requests are pairwise
    compatible; the request after them, if any, is not compatible with them.
    """
    if not queue:
        return 0
    head = queue[0]
    count = 0
    for request in queue:
        if request.mode != head.mode or count == head.limit != UNLIMITED:
            break
        count += 1
    return count
