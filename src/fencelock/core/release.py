"""Release: how a lease is given back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencelock.core import events
from fencelock.core.hold import LOST, RELEASED, Hold
from fencelock.core.ports import STEP_LIMIT
from fencelock.errors import BackendError

if TYPE_CHECKING:
    from fencelock.core.session import Session

__all__ = ["release"]


async def release(session: Session, hold: Hold) -> bool:
    """Give the lock back; say whether it was held until now.

    Whatever happens on the way, the hold is over and the record is gone, or its cleanup is pending.
    Called again after an error, it tries again.
    """
    request, holds = hold.request, session.holds
    if hold.depth > 1:
        held = holds.is_held(hold)
        hold.depth -= 1
        return held
    now = session.runtime.now()
    if not holds.is_held(hold, now):
        await _release_again(session, hold)
        return False
    try:
        if not holds.end(hold, tell=False):
            return False
        hold.depth = 0
        there = await session.backend.release(request, hold.token, deadline=now + STEP_LIMIT)
    except BackendError as error:
        session.cleanups.add(request, hold.ttl)
        events.failed(session.source, "release", error)
        if events.to_released:
            events.tell(events.Released, events.to_released, session.source, hold, now - hold.since)
        raise
    except BaseException:
        try:
            await session.cleanups.undo(request)
        finally:
            if events.to_released and hold.state is RELEASED:
                events.tell(events.Released, events.to_released, session.source, hold, now - hold.since)
        raise
    if not there:
        holds.mark_lost(hold, "the backend had no record of it when it was released")
    elif events.to_released:
        events.tell(events.Released, events.to_released, session.source, hold, now - hold.since)
    return there


async def _release_again(session: Session, hold: Hold) -> None:
    cleanup = session.cleanups.get(hold.request)
    if cleanup is not None and hold.state is not LOST:  # the cleanups of the lost are the renewer's business
        await session.cleanups.run(cleanup)
