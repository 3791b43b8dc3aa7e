"""Election: the head of a queue leads.

A candidate stands in the queue of the election's name like anyone who wants a lock; to lead
is to hold it. There is nothing more to the protocol. What this module adds is the watching:
who leads now, and who leads next.
"""

from __future__ import annotations

from holdfast.core.session import STEP_LIMIT, Session
from holdfast.errors import Unsupported
from holdfast.state import Entry, LockState

__all__ = ["change_of_leader", "leader"]

LOOK_AGAIN = 30.0


async def leader(session: Session, name: str) -> Entry | None:
    """Return who leads, or `None`."""
    _check(session)
    return head(await session.backend.inspect(name, deadline=session.runtime.now() + STEP_LIMIT))


async def change_of_leader(session: Session, name: str, seen: LockState | None) -> LockState:
    """Return the state of the election once its leader is not the one in `seen`."""
    while True:
        _check(session)
        state = await session.backend.observe(name, seen, deadline=session.runtime.now() + LOOK_AGAIN)
        if seen is None or _who(state) != _who(seen):
            return state


def _check(session: Session) -> None:
    session.check_open()
    if "inspect" not in session.backend.capabilities:
        raise Unsupported(capability="inspect", backend=session.backend.name)


def head(state: LockState) -> Entry | None:
    """Return the leader in a state."""
    return state.holders[0] if state.holders else None


def _who(state: LockState) -> tuple[str, int] | None:
    entry = head(state)
    return None if entry is None else (entry.owner, entry.token)
