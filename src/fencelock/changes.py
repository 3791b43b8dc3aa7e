"""What has happened between two looks at a backend, as `watch`, `top` and the dashboard tell it. No I/O.

From outside a lock is seen now and then. What begins and ends between two looks is not seen; and a lease that
was given back, lost, expired or broken looks the same: it is gone.

Nobody tells the ttl to those who only look. But a lease that is renewed comes back to nearly its ttl each
time, so the *longest rest* that was seen of it stands for the whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fencelock.state import Entry, LockState

__all__ = ["Change", "changes", "longest_rests", "of_lock", "who"]

ORDER = ("held", "waiting", "released", "left", "taken", "queued")


class Change(NamedTuple):
    """One change: `taken`, `released`, `queued`, `left`; or how it stood at first: `held`, `waiting`."""

    event: str
    name: str
    entry: Entry


def who(entry: Entry) -> str:
    """Return program, host and process of a holder or waiter, as they called themselves."""
    return f"{entry.client} {entry.host}:{entry.pid}"


def of_lock(before: LockState | None, after: LockState | None) -> list[tuple[str, Entry]]:
    """Return what has happened to one lock; `None` is a lock that nobody holds or waits for."""
    held_before, waiting_before = _by_owner(before)
    held, waiting = _by_owner(after)
    return [
        *(("released", held_before[owner]) for owner in held_before if owner not in held),
        *(
            ("left", waiting_before[owner])
            for owner in waiting_before
            if owner not in waiting and owner not in held
        ),
        *(("taken", held[owner]) for owner in held if owner not in held_before),
        *(("queued", waiting[owner]) for owner in waiting if owner not in waiting_before),
    ]


def changes(before: Sequence[LockState] | None, after: Sequence[LockState]) -> list[Change]:
    """Return what has happened between two looks; without a first one, how things stand."""
    if before is None:
        held = [Change("held", state.name, entry) for state in after for entry in state.holders]
        return held + [Change("waiting", state.name, entry) for state in after for entry in state.waiters]
    was, now = {state.name: state for state in before}, {state.name: state for state in after}
    found = [
        Change(event, name, entry)
        for name in {**was, **now}
        for event, entry in of_lock(was.get(name), now.get(name))
    ]
    return sorted(found, key=lambda change: ORDER.index(change.event))


def longest_rests(known: Mapping[str, float], states: Sequence[LockState]) -> dict[str, float]:
    """Return by owner the longest rest that was seen of each lease that is held."""
    return {
        entry.owner: max(entry.expires_in, known.get(entry.owner, 0.0))
        for state in states
        for entry in state.holders
    }


def _by_owner(state: LockState | None) -> tuple[dict[str, Entry], dict[str, Entry]]:
    if state is None:
        return {}, {}
    return {each.owner: each for each in state.holders}, {each.owner: each for each in state.waiters}
