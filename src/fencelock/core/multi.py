"""Several locks as one: all of them or none, within one deadline.

They are taken one after the other in the order of their names. Every client uses that same
order, so no two can wait for each other in a circle. To try all of them takes no longer than
to try one. Once the backend has answered for one of them, a last step that has no time left for
an answer is a timeout, and no outage. Whatever goes wrong half-way, those already taken are
released before the error travels on; the caller waits for that, and for the cleanup of the one
that failed, no longer than for the cleanup of a single lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from fencelock.core.acquire import TRY_LIMIT, acquire
from fencelock.core.cleanup import UNDO_LIMIT
from fencelock.core.hold import Hold, Terms
from fencelock.core.session import Session
from fencelock.errors import AcquireTimeout, BackendUnavailable

__all__ = ["acquire_all"]

L = TypeVar("L")


async def acquire_all(
    session: Session, wanted: Sequence[tuple[Terms, Callable[[Hold], L]]], timeout: float
) -> list[L]:
    """Acquire every lock of `wanted`, in the order given, and return the leases."""
    runtime = session.runtime
    started = last = runtime.now()
    answer_by = started + timeout + TRY_LIMIT
    holds: list[Hold] = []
    leases: list[L] = []
    is_well = False

    def answered() -> None:
        nonlocal is_well
        is_well = True

    def keep(make: Callable[[Hold], L]) -> Callable[[Hold], L]:
        def lease(hold: Hold) -> L:
            holds.append(hold)
            return make(hold)

        return lease

    try:
        for terms, make in wanted:
            last = runtime.now()
            left = max(0.0, started + timeout - last) if timeout else 0.0
            lease = await acquire(session, terms, left, keep(make), answered, answer_by, is_well and left > 0)
            leases.append(lease)
        return leases
    except BaseException as error:
        limit = UNDO_LIMIT - max(0.0, runtime.now() - max(last, started + timeout))
        await _give_back(session, holds, error, limit)
        if isinstance(error, AcquireTimeout):
            waited = runtime.now() - started
            raise AcquireTimeout(name=error.name, waited=waited, holder=error.holder) from None
        raise


async def _give_back(session: Session, holds: Sequence[Hold], error: BaseException, limit: float) -> None:
    """Release those already taken, the last one first, within `limit` seconds."""
    # What was entered again is given back by its lease's destructor, one level.
    ended = [hold.request for hold in reversed(holds) if hold.depth == 1 and session.holds.end(hold)]
    answers = not isinstance(error, BackendUnavailable) and all(
        cleanup.was_answered for cleanup in session.cleanups.all()
    )
    if answers and limit > 0:
        await session.cleanups.undo(*ended, limit=limit)
        return
    for request in ended:  # the backend does not answer: the caller need not wait for that
        session.cleanups.add(request, request.ttl)
