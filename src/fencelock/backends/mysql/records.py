"""Records: what the table keeps of a request, and how it is shown. See sql/schema.sql for the layout."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, cast

from fencelock.backends.mysql.places import Places, literal
from fencelock.core.ports import Busy, Origin, Request
from fencelock.core.queue import UNLIMITED, Queued, admitted
from fencelock.state import Entry, LockState

__all__ = ["Row", "Waiting", "details", "entry", "glance", "state", "states"]

Row = Sequence[Any]


def details(request: Request) -> str:
    """Return what people want to know of a request, as JSON and as it is written in a statement."""
    return _details(request.origin, request.metadata)


@lru_cache(256)
def _details(origin: Origin, metadata: str | None) -> str:
    told = json.dumps(origin._asdict())
    if metadata is not None:  # which is ASCII, as json.dumps makes it
        told = f'{told[:-1]}, "metadata": {metadata}}}'
    return literal(told.encode("ascii", "backslashreplace"))


def entry(
    owner: bytes, token: int, mode: bytes, slots: int, times: tuple[int, int, int], told: bytes
) -> Entry:
    """Return a record as people read it; `times` are its deadline, its beginning and now, in microseconds."""
    deadline, since, now = times
    said: dict[str, Any] = json.loads(told)
    return Entry(
        owner=owner.decode(),
        token=token,
        mode=mode.decode(),
        client=said["client"],
        host=said["host"],
        pid=said["pid"],
        since=since / 1e6,
        age=max(0.0, (now - since) / 1e6),
        expires_in=max(0.0, (deadline - now) / 1e6),
        metadata=said.get("metadata"),
        limit=slots,
    )


def _entry(row: Row) -> Entry:
    now, _, owner, token, mode, slots, deadline, since, told = row
    return entry(owner, token, mode, slots, (deadline, since, now), told)


def state(name: str, rows: Iterable[Row]) -> LockState:
    """Return a lock as `look` found it."""
    live = [_entry(row) for row in rows]
    holders = admitted(cast(Sequence[Queued], live))
    return LockState(name=name, holders=tuple(live[:holders]), waiters=tuple(live[holders:]))


def states(places: Places, rows: Iterable[Row]) -> list[LockState]:
    """Return every lock that `look` found, sorted by name."""
    found = [
        state(places.name_of(raw), list(group)) for raw, group in groupby(rows, key=lambda row: bytes(row[1]))
    ]
    return sorted(found, key=lambda one: one.name)


def glance(found: LockState, request: Request) -> Busy | None:
    """Return that a lock is busy for a request that does not stand in line yet, if it is."""
    before = [*found.holders, *found.waiters]
    if not before or any(one.owner == request.owner for one in before):
        return None
    alike = all(one.mode == request.mode for one in before)
    if alike and (request.limit == UNLIMITED or len(before) < request.limit):
        return None
    return Busy(min(one.expires_in for one in before), before[0])


class Waiting(Busy):
    """`Busy`, with the holder read from the answer only if somebody asks: most waiters never do."""

    __slots__ = ("_row", "before", "token")

    def __init__(self, row: Row) -> None:
        self.token: int = row[1]
        self.recheck = max(0, row[2] or 0) / 1e6
        self.before: int = row[4]
        self._row = row

    @property
    def holder(self) -> Entry | None:  # type: ignore[override]
        """Who holds the lock; `None` if it has just left."""
        _, _, _, now, _, owner, token, mode, slots, deadline, since, told = self._row
        if owner is None:
            return None
        return entry(owner, token, mode, slots, (deadline, since, now), told)
