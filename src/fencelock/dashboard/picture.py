"""What a backend said, and what has changed since it last said something. No I/O.

`take` is given the whole list at each poll and goes through it once. A lock whose holders and waiters are the
same as before costs a comparison and nothing is sent of it; if its lease was renewed, three numbers are.
Everything else is sent whole. The text of a lock is made once and kept until the lock changes, so that a new
browser gets 10,000 of them at the price of joining strings.

Times are seconds on the dashboard's own line, which is monotonic. A lease's end is known only as well as a
poll is quick, so it counts as moved when it has moved by a part of the lease that no renewal is smaller than.

Not promised: what begins and ends between two polls is not seen, so grants and waits are those that were
seen.
"""

from __future__ import annotations

import json
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from typing import Any

from fencelock.backends.checkup import quantile
from fencelock.changes import longest_rests, of_lock, who
from fencelock.state import Entry, LockState

__all__ = ["KINDS", "Picture", "to_json"]

KINDS = frozenset({"leader", "job", "schedule", "flight"})
POINTS = 900
POINT = 1.0
"""Seconds between two points of the series."""
RATE = 10.0
"""Seconds over which changes are counted for the rate."""
EVENTS = 200
HISTORY = 200
REMEMBERED = 20_000
"""Names whose history is kept."""
WAITERS = 500
LOOKED_AT = 100
"""So many of a queue are asked for their kind."""
GRAIN, PART = 0.05, 0.05
"""A lease was renewed if its end moved by more than this: seconds, and a part of the lease."""

Row = dict[str, Any]


def to_json(value: Any) -> str:
    """Return a value as compact JSON, on one line and in ASCII."""
    return json.dumps(value, separators=(",", ":"))


class Known:
    """A lock as it was last seen."""

    __slots__ = ("id", "owners", "row", "state", "text")

    def __init__(self, id_: int, state: LockState, owners: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
        self.id = id_
        self.state = state
        self.owners = owners
        self.row: Row = {}
        self.text: str | None = None


class Picture:
    """The locks of one backend, with what has happened to them since the first look."""

    def __init__(self, backend: str, ids: Iterator[int]) -> None:
        self._backend = backend
        self._ids = ids
        self._locks: dict[str, Known] = {}
        self._full: dict[str, float] = {}
        self._history: OrderedDict[str, deque[list[Any]]] = OrderedDict()
        self._series: deque[list[Any]] = deque(maxlen=POINTS)
        self._rates: deque[tuple[float, int]] = deque()
        self._grants = 0
        self._waits: list[float] = []
        self._last_point: float | None = None
        self._breaking: set[str] = set()
        self.at = 0.0
        self.taken = False
        """Whether there was a look at all."""
        self.totals: dict[str, Any] = {}

    @property
    def states(self) -> list[LockState]:
        """The locks as they were last seen."""
        return [known.state for known in self._locks.values()]

    # Looking ----------------------------------------------------------------------------

    def take(self, states: Sequence[LockState], at: float, took: float) -> dict[str, Any]:
        """Take in a whole list; return the fields of the frame `change`."""
        before, self._locks = self._locks, {}
        self._full = longest_rests(self._full, states)
        self.at = at
        put: list[Row] = []
        renewed: list[list[Any]] = []
        events: list[list[Any]] = []
        for state in states:
            owners = _owners(state)
            known = before.pop(state.name, None)
            if known is None or known.owners != owners:
                events += self._happened(known.state if known else None, state)
                known = self._placed(state, owners, known)
                put.append(known.row)
            else:
                known.state = state
                if self._is_renewed(known):
                    renewed.append([known.id, known.row["expires"], known.row["full"]])
            self._locks[state.name] = known
        for known in before.values():
            events += self._happened(known.state, None)
        self._count(at, took, len(events))
        change = {
            "put": put,
            "gone": [known.id for known in before.values()],
            "renewed": renewed,
            "events": events[-EVENTS:],
            "missed": max(0, len(events) - EVENTS),
            "totals": self.totals,
            "point": self._point(at),
        }
        self.taken = True
        return change

    def _placed(self, state: LockState, owners: Any, known: Known | None) -> Known:
        placed = Known(known.id if known else next(self._ids), state, owners)
        placed.row = self._row(placed.id, state)
        return placed

    def _row(self, id_: int, state: LockState) -> Row:
        holders, waiters = state.holders, state.waiters
        first = holders[0] if holders else None
        soonest = min(holders, key=_rest) if holders else None
        return {
            "id": id_,
            "name": state.name,
            "kind": _kind(state),
            "mode": first.mode if first else None,
            "limit": (first or waiters[0]).limit if first or waiters else 1,
            "held": len(holders),
            "waiting": len(waiters),
            "token": max(entry.token for entry in holders) if holders else None,
            "who": who(first) if first else "",
            "since": self._when(-max(entry.age for entry in holders)) if holders else None,
            "expires": self._when(soonest.expires_in) if soonest else None,
            "full": round(self._full[soonest.owner], 3) if soonest else 0.0,
            "waited": self._when(-waiters[0].age) if waiters else None,
        }

    def _is_renewed(self, known: Known) -> bool:
        """Whether the lease that ends first ends at another time now; then the row says so."""
        holders, row = known.state.holders, known.row
        if not holders:
            return False
        soonest = holders[0] if len(holders) == 1 else min(holders, key=_rest)
        expires, full = self.at + soonest.expires_in, self._full[soonest.owner]
        if abs(expires - row["expires"]) <= GRAIN + PART * full:
            return False
        row["expires"], row["full"] = round(expires, 3), round(full, 3)
        known.text = None
        return True

    def _happened(self, before: LockState | None, after: LockState | None) -> list[list[Any]]:
        if not self.taken:
            return []
        state = after or before
        assert state is not None
        waited = {entry.owner: entry.since for entry in before.waiters} if before else {}
        told = []
        for event, entry in of_lock(before, after):
            kind, at = event, self.at
            if event in {"taken", "queued"}:
                at = self._when(-entry.age)
            elif entry.owner in self._breaking:
                kind = "broken"
                self._breaking.discard(entry.owner)
            if event == "taken":
                self._grants += 1
                if entry.owner in waited:
                    self._waits.append(max(0.0, entry.since - waited[entry.owner]))
            told.append([kind, state.name, who(entry), entry.token, round(at, 3)])
            self._remember(state.name, [kind, who(entry), entry.token, round(at, 3), entry.owner])
        return told

    def _remember(self, name: str, event: list[Any]) -> None:
        past = self._history.get(name)
        if past is None:
            past = self._history[name] = deque(maxlen=HISTORY)
            if len(self._history) > REMEMBERED:
                self._history.popitem(last=False)
        past.append(event)
        self._history.move_to_end(name)

    def breaking(self, owner: str) -> None:
        """Know that this owner goes because somebody breaks it here."""
        self._breaking.add(owner)

    def spared(self, owner: str) -> None:
        """Know that it was not broken after all."""
        self._breaking.discard(owner)

    # Figures ----------------------------------------------------------------------------

    def _count(self, at: float, took: float, events: int) -> None:
        self._rates.append((at, events))
        while self._rates[0][0] < at - RATE:
            self._rates.popleft()
        # What came with the first of these looks happened before it.
        span = at - self._rates[0][0]
        seen = sum(count for _, count in self._rates) - self._rates[0][1]
        queues = [known for known in self._locks.values() if known.state.waiters]
        self.totals = {
            "locks": len(self._locks),
            "held": sum(1 for known in self._locks.values() if known.state.holders),
            "waiting": sum(len(known.state.waiters) for known in queues),
            # Whoever stands by to lead is where it should be.
            "contended": sum(1 for known in queues if known.row["kind"] != "leader"),
            "rate": round(seen / span, 2) if span > 0 else 0.0,
            "poll": round(took, 4),
        }

    def _point(self, at: float) -> list[Any] | None:
        if self._last_point is not None and at - self._last_point < POINT:
            return None
        waits = self._waits
        point = [
            round(at, 3),
            *(self.totals[key] for key in ("held", "waiting", "contended")),
            self._grants,
            round(quantile(waits, 0.5), 4) if waits else None,
            round(quantile(waits, 0.95), 4) if waits else None,
        ]
        self._series.append(point)
        self._last_point, self._grants, self._waits = at, 0, []
        return point

    # Showing ----------------------------------------------------------------------------

    def whole(self, at: float, trouble: str | None) -> str:
        """Return the data of the frame `picture`, as JSON."""
        for known in self._locks.values():
            if known.text is None:
                known.text = to_json(known.row)
        fields = to_json(
            {
                "b": self._backend,
                "at": round(at, 3),
                "trouble": trouble,
                "totals": self.totals,
                "series": list(self._series),
            }
        )
        locks = ",".join([known.text or "" for known in self._locks.values()])
        return f'{fields[:-1]},"locks":[{locks}]}}'

    def detail(self, name: str) -> dict[str, Any] | None:
        """Return everything about one lock; `None` for one that was never seen."""
        known, past = self._locks.get(name), self._history.get(name)
        if known is None and past is None:
            return None
        state = known.state if known else LockState(name=name)
        return {
            "name": name,
            "id": known.id if known else None,
            "kind": known.row["kind"] if known else "lock",
            "holders": [self._entry(entry) for entry in state.holders],
            "waiters": [self._entry(entry) for entry in state.waiters[:WAITERS]],
            "waiting": len(state.waiters),
            "history": list(past or ()),
            "at": round(self.at, 3),
        }

    def _entry(self, entry: Entry) -> dict[str, Any]:
        return {
            "owner": entry.owner,
            "token": entry.token,
            "mode": entry.mode,
            "limit": entry.limit,
            "client": entry.client,
            "host": entry.host,
            "pid": entry.pid,
            "since": self._when(-entry.age),
            "expires": self._when(entry.expires_in),
            "full": round(self._full.get(entry.owner, entry.expires_in), 3),
            "metadata": entry.metadata,
        }

    def _when(self, later: float) -> float:
        return round(self.at + later, 3)


def _owners(state: LockState) -> tuple[tuple[str, ...], tuple[str, ...]]:
    waiters = state.waiters
    return (
        tuple([entry.owner for entry in state.holders]),
        tuple([entry.owner for entry in waiters]) if waiters else (),
    )


def _kind(state: LockState) -> str:
    everyone = (*state.holders[:LOOKED_AT], *state.waiters[:LOOKED_AT])
    if everyone and everyone[0].kind in KINDS:
        return everyone[0].kind
    modes = {entry.mode for entry in everyone}
    if "permit" in modes:
        return "semaphore"
    return "readers" if "shared" in modes else "lock"


def _rest(entry: Entry) -> float:
    return entry.expires_in
