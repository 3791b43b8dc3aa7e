"""Places: what a client knows of its own records, and what it reads of everybody's.

A *record* is what the store has of a request; a *place* is the same seen from the client whose request
it is. The value of a record is JSON, and is for people: the store itself keeps the order, the token
and the session that the record lives and dies with.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fencelock.core.ports import Busy, Request
from fencelock.core.queue import PERMIT, SHARED, Mode, admitted
from fencelock.errors import ConfigurationError
from fencelock.state import Entry, LockState

if TYPE_CHECKING:
    from fencelock.backends.ordered.tenures import Tenure
    from fencelock.runtime.base import Signal

__all__ = ["Eye", "Place", "Queue", "Record", "blockers", "check_limit", "entry", "state", "told"]


class Record(NamedTuple):
    """A request as the store has it."""

    key: Any
    """How the store finds it."""
    owner: str
    token: int
    mode: Mode
    limit: int
    session: Any
    """Which of the store's sessions it lives in."""
    value: bytes
    """What `told` made of the request."""


class Queue(NamedTuple):
    """All records of one name, in order, as they stood at one moment."""

    records: Sequence[Record]
    moment: Any = None
    """The store's number of that moment, for a watch that begins right after it."""

    def find(self, owner: str) -> int | None:
        """Return where the owner stands; `None` if nowhere.

        The last, where there are several: those before were left behind in sessions that have ended.
        """
        for position in range(len(self.records) - 1, -1, -1):
            if self.records[position].owner == owner:
                return position
        return None


class Eye:
    """Somebody who is told when something changes in the store."""

    __slots__ = ("called", "signal", "stirred", "watched")

    def __init__(self) -> None:
        self.signal: Signal | None = None
        self.watched: Any = None
        """The store's handle of what it watches."""
        self.called = False
        """Something that it watched has gone: its turn may have come."""
        self.stirred = False
        """Something has happened: it is to look."""

    def wake(self, *, gone: bool) -> None:
        """What it watches has gone, or moved. From any thread."""
        if gone:
            self.called = True
        self.stirred = True
        if self.signal is not None:
            self.signal.notify()


class Place(Eye):
    """A request of this client, and where it stands."""

    __slots__ = (
        "asked",
        "asks_who",
        "busy",
        "deadline",
        "key",
        "looked",
        "moves",
        "request",
        "since",
        "tenure",
        "token",
    )

    def __init__(self, request: Request) -> None:
        super().__init__()
        self.request = request
        self.key: Any = None
        self.token = 0
        self.tenure: Tenure | None = None
        self.deadline = 0.0
        """When it counts as gone though its record may lie there: nobody has renewed it."""
        self.asked = 0.0
        """When the latest step for it began."""
        self.looked = 0.0
        """When it last read the queue to wait, and what it answered."""
        self.busy: Busy | None = None
        self.asks_who = False
        """Whether that answer still lacks who holds."""
        self.since = time.time()
        """For people: when it began to wait, or to hold."""
        self.moves = 0
        """How often its lease was moved, twice; odd while it is not known which tenure the record is in."""

    def stood_still(self, moves: int) -> bool:
        """Whether its lease was not being moved when there were so many `moves`, and was not moved since."""
        return self.moves == moves and moves % 2 == 0


def told(request: Request, since: float, ttl: float | None = None) -> bytes:
    """Return the value of a request's record; `ttl` is that of its lease, if it was given another one."""
    said: dict[str, Any] = {
        "name": request.name,
        **request.origin._asdict(),
        "since": round(since, 3),
        "ttl": request.ttl if ttl is None else ttl,
    }
    text = json.dumps(said)
    if request.metadata is not None:
        text = f'{text[:-1]}, "metadata": {request.metadata}}}'
    return text.encode("utf-8", "surrogateescape")


def entry(record: Record, expires_in: float | None) -> Entry:
    """Return a record as people read it; `expires_in` is `None` where the store does not tell."""
    said = _read(record.value)
    since = _number(said.get("since"))
    return Entry(
        owner=record.owner,
        token=record.token,
        mode=record.mode,
        client=str(said.get("client", "")),
        host=str(said.get("host", "")),
        pid=int(_number(said.get("pid"))),
        since=since,
        age=max(0.0, time.time() - since),
        expires_in=max(0.0, _number(said.get("ttl")) if expires_in is None else expires_in),
        metadata=said.get("metadata"),
        limit=record.limit,
    )


def _read(value: bytes) -> dict[str, Any]:
    """Return what `told` wrote; nothing where somebody wrote it by hand."""
    try:
        said = json.loads(value)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _number(said: Any) -> float:
    return float(said) if isinstance(said, int | float) and math.isfinite(said) else 0.0


def state(name: str, records: Sequence[Record], left: dict[Any, float]) -> LockState:
    """Return a lock as people read it; `left` has the seconds that each session has left."""
    entries = [entry(record, left.get(record.session)) for record in records]
    holders = admitted(records)
    return LockState(name=name, holders=tuple(entries[:holders]), waiters=tuple(entries[holders:]))


def check_limit(records: Sequence[Record], request: Request) -> None:
    """Refuse a permit whose limit is not the one in use."""
    if request.mode != PERMIT:
        return
    for record in records:
        if record.mode == PERMIT and record.owner != request.owner and record.limit != request.limit:
            raise ConfigurationError(
                f"limit={request.limit} for semaphore {request.name!r}: it is in use with limit "
                f"{record.limit}, give the same one everywhere"
            )


def blockers(records: Sequence[Record], position: int) -> tuple[Sequence[Record], bool]:
    """Return which records to watch for the one at `position`, and whether any change of them counts.

    As few as will do: with two hundred waiters a release is to wake one. Whoever wants the lock alone
    waits for the one right before it to leave. A reader waits for the last that is no reader. A permit
    behind others waits for any holder to leave if it is the next, else for its predecessor to move
    up or leave: only then is there anything to see for it.
    """
    mine = records[position]
    before = records[:position]
    if mine.mode == SHARED:
        return [next(record for record in reversed(before) if record.mode != SHARED)], False
    if mine.mode == PERMIT:
        others = [record for record in before if record.mode != PERMIT]
        if others:
            return [others[-1]], False
        if position == mine.limit:
            return before, False
        return [before[-1]], True
    return [before[-1]], False
