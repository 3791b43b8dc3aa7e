"""Moves: one transaction takes a request's znodes from one session to another, or does nothing at all."""

from __future__ import annotations

from typing import Any

from fencelock.backends.ordered.places import Place
from fencelock.backends.ordered.tenures import Tenure
from fencelock.backends.zookeeper.names import holding, is_waiting, waiting
from fencelock.core.queue import PERMIT

__all__ = ["ANY", "change_for"]

ANY = -1
"""Any version of a znode."""


def change_for(
    place: Place, tenure: Tenure, client: Any, value: bytes, *, to_wait: bool
) -> tuple[Any, tuple[str, ...]]:
    """Return the transaction that moves a place, and its znodes afterwards; `None` if they are so now.

    The znode that holds comes first, the one that waits last. Whoever is behind watches the last, which is
    why it stays when its owner comes to hold, and when that was a false alarm.
    """
    paths: tuple[str, ...] = place.key
    main = paths[0]
    change = client.transaction()
    if place.tenure is tenure:
        change.check(main, ANY)
        return change, paths
    if to_wait:
        target = waiting(main, tenure.ident)
        if paths == (target,):
            return None, paths
        for path in paths:
            if path == target:
                change.check(path, ANY)
            else:
                change.delete(path)
        if target not in paths:
            change.create(target, value, ephemeral=True)
        return change, (target,)
    target = holding(main, tenure.ident)
    if main == target:
        return None, paths
    if not is_waiting(main):
        change.delete(main)
        paths = paths[1:]
    elif place.request.mode == PERMIT:
        change.set_data(main, value)  # the permit behind it wants to know, see `blockers`
    else:
        change.check(main, ANY)
    change.create(target, value, ephemeral=True)
    return change, (target, *paths)
