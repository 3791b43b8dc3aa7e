"""Who may hold a lock together, and who did though they may not.

The compatibility rule is written here a second time, apart from the library's own, on purpose: a
checker that shares the code it checks shares its mistakes.

``conflicts`` sweeps the holds of one name in time order, keeping the crowd that is inside; a set of
holds is incompatible exactly if some hold conflicts at its start with those that are there.

``implied_holds`` moves the starts of holds back to where FIFO proves them to have begun; the head
of ``fencelock.testing.checker`` has the argument (rule 6).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from fencelock.testing.events import Mode
from fencelock.testing.history import Instant, Operation
from fencelock.testing.holds import Disturbances, Hold


def compatible(requests: Sequence[tuple[Mode, int | None]]) -> bool:
    """Return whether all these (mode, limit) may be admitted together."""
    modes = {mode for mode, _ in requests}
    if len(modes) > 1:
        return False
    if modes == {"permit"}:
        return len(requests) <= min(limit for _, limit in requests if limit is not None)
    return modes != {"exclusive"} or len(requests) == 1


class _Crowd:
    """Who holds one name at the sweep's instant, kept so that asking costs no scan."""

    def __init__(self) -> None:
        self._holders: dict[Mode, dict[str, Hold]] = {"exclusive": {}, "shared": {}, "permit": {}}
        self._limits: Counter[int] = Counter()

    def enter(self, hold: Hold) -> list[Hold]:
        """Let it in, and return those it conflicts with."""
        rivals = self._rivals(hold.operation)
        self._holders[hold.operation.mode][hold.operation.request] = hold
        if hold.operation.limit is not None:
            self._limits[hold.operation.limit] += 1
        return rivals

    def leave(self, hold: Hold) -> None:
        del self._holders[hold.operation.mode][hold.operation.request]
        if hold.operation.limit is not None:
            self._limits[hold.operation.limit] -= 1
            if not self._limits[hold.operation.limit]:
                del self._limits[hold.operation.limit]

    def _rivals(self, operation: Operation) -> list[Hold]:
        others = [mode for mode in self._holders if mode != operation.mode or mode == "exclusive"]
        rivals = [next(iter(self._holders[mode].values())) for mode in others if self._holders[mode]]
        permits = self._holders["permit"]
        if operation.limit is not None and len(permits) >= min([operation.limit, *self._limits]):
            rivals += permits.values()
        return rivals


def conflicts(holds: Iterable[Hold]) -> Iterator[tuple[Hold, list[Hold]]]:
    """Yield each hold of one name that conflicts, when it starts, with those that are there."""
    steps: list[tuple[Instant, int, Hold]] = []
    for hold in holds:
        steps += [(hold.start, 1, hold), (hold.end, 0, hold)]
    steps.sort(key=lambda step: step[:2])  # ends first: holds are half open
    crowd = _Crowd()
    for _, starts, hold in steps:
        if not starts:
            crowd.leave(hold)
        elif rivals := crowd.enter(hold):
            yield hold, rivals


def implied_holds(holds: list[Hold], disturbances: Disturbances) -> tuple[list[Hold], dict[str, Operation]]:
    """Move each start back to the first grant that proves it; also return that grant, by request."""
    by_invocation = sorted(holds, key=lambda hold: hold.operation.invoked)
    invocations = [hold.operation.invoked for hold in by_invocation]
    first = list(by_invocation)  # first[i]: the earliest to start, of all invoked at or after i
    for index in range(len(first) - 2, -1, -1):
        first[index] = min(first[index], first[index + 1], key=lambda hold: hold.start)
    implied, witnesses = [], {}
    for hold in holds:
        place = _place(hold, disturbances)
        later = len(first) if place is None else bisect_right(invocations, place)
        if later < len(first) and first[later].start < hold.start:
            witnesses[hold.operation.request] = first[later].operation
            implied.append(replace(hold, start=first[later].start))
        else:
            implied.append(hold)
    return implied, witnesses


def _place(hold: Hold, disturbances: Disturbances) -> Instant | None:
    operation = hold.operation
    if operation.place is None or disturbances.paused_between(operation.client, operation.place, hold.start):
        return None
    # A break during the wait leaves no definite hold, so none needs to be looked for here.
    return operation.place
