"""The two rules about time passing: losses are told (rule 5), and locks come free again (rule 7)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from fencelock.testing.history import History, Instant, Operation
from fencelock.testing.holds import Disturbances, claimed_hold
from fencelock.testing.verdict import Violation


def check_loss(history: History, *, exact: bool = False, loss_within: float | None = None) -> list[Violation]:
    """Rule 5: a loss is reported once, and a lost lease is never revived.

    ``exact`` adds what only a recorder that misses nothing and records each instant exactly (the
    simulator) can be held to: ``extended`` or ``held`` past the deadline or after the loss counts
    even if the call was invoked before it.

    ``loss_within`` adds that the loss of every lease that ran out, unless its client had crashed,
    is signalled within so many seconds of the deadline or, if the client stood still then, of its
    waking. It needs every renewal to be recorded.
    """
    end = max((event.at for event in history), default=0.0)
    disturbances = Disturbances(history)
    violations = []
    for operation in history.operations():
        if operation.outcome == "granted":
            faults = [*_loss_faults(operation, exact=exact)]
            if loss_within is not None:
                faults += _late_loss(operation, disturbances, loss_within, end)
            violations += [Violation("loss", operation.name, fault, (operation,)) for fault in faults]
    return violations


def _loss_faults(operation: Operation, *, exact: bool) -> Iterator[str]:
    if len(operation.losses) > 1:
        yield f"the loss was signalled {len(operation.losses)} times"
    lost = operation.losses[0] if operation.losses else None
    over = operation.deadline or 0.0  # no recorded word puts the deadline later than this
    invoked: list[Instant] = []
    for move in operation.moves:
        if move.kind == "extend":
            invoked.append(move.when)
            continue
        # Of several extends on their way, the oldest is the most innocent.
        began = invoked.pop(0) if move.kind == "extended" and invoked else move.when
        when = move.when if exact else began
        expired = Instant.deadline(over) <= move.when
        if lost is not None and lost < when:
            yield f"{move.kind} after the loss was signalled"
        elif expired and (move.kind == "renewed" or exact):
            yield f"{move.kind} at {move.when.at:.6f}, after the deadline {over:.6f}"
        elif move.kind == "held":
            yield from _empty_claim(operation, move.when, move.deadline or 0.0)
        deadline = move.deadline or 0.0
        over = max(over, deadline) if move.kind == "held" else deadline


def _empty_claim(operation: Operation, when: Instant, deadline: float) -> Iterator[str]:
    if operation.released is not None and operation.released < when:
        yield "held after it was released"
    elif deadline <= when.at:
        yield "said to be held with nothing remaining"


def _late_loss(operation: Operation, disturbances: Disturbances, within: float, end: float) -> Iterator[str]:
    over = operation.deadline or 0.0
    for move in operation.moves:
        if move.deadline is not None:
            # Whoever was stalled while it asked was told less than is left: that ends nothing.
            over = max(over, move.deadline) if move.kind == "held" else move.deadline
    due = over + within
    for start, wake in disturbances.pauses.get(operation.client, ()):
        if start.at < due and over < wake.at:
            due = max(due, wake.at + within)
    left = [when.at for when in (operation.release, operation.crashed) if when is not None]
    if min([*left, end]) < due or (operation.losses and operation.losses[0].at <= due):
        return
    yield f"ran out at {over:.6f}, and its loss was not signalled by {due:.6f}"


def check_available(
    history: History,
    *,
    healed: float,
    bound: float,
    until: float | None = None,
    names: Iterable[str] | None = None,
) -> list[Violation]:
    """Rule 7: once the faults are over, a lock that somebody waits for is not idle beyond ``bound``.

    Judged is the time from ``healed`` to ``until`` (the next fault; else the end of the history).
    A request is a violation if it waited for more than ``bound`` seconds of that time while nobody
    was granted the lock and nobody claimed to hold it. For each of ``names``, if given, there must
    be evidence too: a grant or a hold within ``bound`` after ``healed``, or after somebody asked for it.
    """
    end = max((event.at for event in history), default=healed)
    end = end if until is None else min(end, until)
    busy = _busy_times(history)
    operations = history.operations()
    names_seen = {operation.name for operation in operations}
    idle = {name: _idle_times(busy.get(name, []), healed, end, bound) for name in names_seen}
    violations = []
    for operation in operations:
        stop = min((w.at for w in (operation.returned, operation.crashed) if w), default=end)
        # Few: only the times that are too long in themselves.
        if any(
            min(stop, last) - max(operation.invoked.at, first) > bound for first, last in idle[operation.name]
        ):
            detail = f"not granted for more than {bound:g}s, though nobody held it"
            violations.append(Violation("available", operation.name, detail, (operation,)))
    blamed = {violation.name for violation in violations}
    for name in names or ():
        asked = _first_asked(operations, name, healed, end)
        seen = any(first <= asked + bound and healed <= last for first, last in busy.get(name, ()))
        if name not in blamed and not seen:
            violations.append(Violation("available", name, f"nobody had it within {bound:g}s of healing"))
    return violations


def _first_asked(operations: Iterable[Operation], name: str, healed: float, end: float) -> float:
    """When somebody first wanted it after healing; ``healed`` if nobody did at all."""
    times = [
        max(healed, operation.invoked.at)
        for operation in operations
        if operation.name == name and (operation.returned is None or operation.returned.at >= healed)
    ]
    return min((at for at in times if at <= end), default=healed)


def _busy_times(history: History) -> dict[str, list[tuple[float, float]]]:
    """The times at which each name was granted or held, by whoever claimed it, in order of their start."""
    busy: dict[str, list[tuple[float, float]]] = defaultdict(list)
    disturbances = Disturbances(history)
    for operation in history.operations():
        if operation.outcome == "granted" and operation.returned is not None:
            hold = claimed_hold(operation, disturbances)
            end = hold.end if hold is not None else operation.returned
            busy[operation.name].append((operation.returned.at, end.at))
    for spans in busy.values():
        spans.sort()
    return busy


def _idle_times(
    busy: list[tuple[float, float]], begin: float, end: float, bound: float
) -> list[tuple[float, float]]:
    """The times between ``begin`` and ``end`` that are longer than ``bound`` and not busy."""
    idle = []
    free_since = begin
    for first, last in [*busy, (end, end)]:
        if min(first, end) - free_since > bound:
            idle.append((free_since, min(first, end)))
        free_since = max(free_since, last)
    return idle
