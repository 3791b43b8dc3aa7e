"""The checks of a history: is this what a lock may do?

Each rule is a pure function of a ``History`` that returns its ``Violation`` s, in O(n log n):
tokens are unique, so sorting by token and one scan does for the token rules, and an interval
sweep for the rest. ``check`` runs rules 1 to 6 and counts. ``fencelock.testing.brute`` decides the
same questions for small histories by search, and the two are tested against each other.

1. ``unique-token``: no two grants of a name share a token.
2. ``token-order``: if grant a returned before grant b was invoked, token(a) < token(b). One scan
   from the highest token down, keeping the earliest return so far, finds every b that breaks it.
3. ``exclusion``: definite holds (``fencelock.testing.holds``) of incompatible requests do not
   overlap. Exclusive is alone; shared goes with shared; at most ``limit`` permits are together.
4. ``guard``: of the writes that a guarded resource accepted, in its own order (``seq``), the
   tokens never fall, and no two were made from the same version (``base``): one of those two
   is a lost update. Writes whose answer never came are not counted either way.
5. ``loss``: a loss is signalled at most once; nothing says that the lease is held after its loss
   or its release, and no renewal comes after the deadline. See ``check_loss`` for the rest.
6. ``fifo``: the holders are the longest compatible run from the head of the queue, so an earlier
   request is admitted no later than a later one. Precisely: request a is *in its place* if its
   enqueue was acknowledged ("queued"), it was granted, and between the two its place was not
   taken away. Then a grant of any b that was invoked after that acknowledgement proves, when it
   returns, that a has been admitted; and since a's lease was still valid when a learned of it,
   a has held its lock from then on. The *implied hold* of a runs from the earliest such return
   (or its own, if that is earlier), and implied holds must not conflict either.

   What this does not judge, so that there are no false alarms: requests that timed out, were
   cancelled, crashed or failed; a request that lost its place (``requeued``: only its last place
   counts); one whose client was paused, or whose lock was broken, while it waited; a grant whose
   validity was over when it came back; and the order in which compatible requests *hear* of their
   grants.
7. ``available``: ``check_available``; the remaining half of that rule, that nothing is left in the
   backend, is not in a history.

"Before" is always strict and certain (see ``History``), so clocks and threads cannot cause alarms.

Not promised: that a history without violations came from a correct lock. An empty one has none;
look at the counts of the ``Report``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Literal

from fencelock.testing.events import Event, Value
from fencelock.testing.history import History, Instant, Operation
from fencelock.testing.holds import Disturbances, Hold, definite_holds
from fencelock.testing.liveness import check_available, check_loss
from fencelock.testing.sweep import compatible, conflicts, implied_holds
from fencelock.testing.verdict import Report, Rule, Violation

__all__ = [
    "Report",
    "Rule",
    "Violation",
    "check",
    "check_available",
    "check_exclusion",
    "check_fifo",
    "check_guard",
    "check_loss",
    "check_token_order",
    "check_unique_tokens",
    "compatible",
    "lost_updates",
]


def check(
    history: History, *, fifo: bool = True, exact: bool = False, loss_within: float | None = None
) -> Report:
    """Run rules 1 to 6; ``fifo=False`` for a backend that does not declare it.

    ``exact`` and ``loss_within`` are those of ``check_loss``.
    """
    disturbances = Disturbances(history)
    holds = definite_holds(history, disturbances)
    violations = [
        *check_unique_tokens(history),
        *check_token_order(history),
        *_exclusion(holds),
        *check_guard(history),
        *check_loss(history, exact=exact, loss_within=loss_within),
        *(_fifo(holds, disturbances) if fifo else ()),
    ]
    return _report(history, violations)


def check_unique_tokens(history: History) -> list[Violation]:
    """Rule 1: tokens of one name are unique."""
    violations = []
    for name, grants in _grants_by_name(history).items():
        grants.sort(key=_token)
        for one, other in pairwise(grants):
            if one.token == other.token:
                detail = f"token {one.token} was granted twice"
                violations.append(Violation("unique-token", name, detail, (one, other)))
    return violations


def check_token_order(history: History) -> list[Violation]:
    """Rule 2: a grant that returned before another was invoked has the smaller token."""
    violations = []
    for name, grants in _grants_by_name(history).items():
        grants.sort(key=_token, reverse=True)
        earliest: Operation | None = None  # the first to return, of all with a higher token
        waiting: list[Operation] = []  # those with the same token as the one before: rule 1, not 2
        for grant in grants:
            if waiting and waiting[0].token != grant.token:
                earliest = min([*waiting, earliest] if earliest else waiting, key=_returned)
                waiting.clear()
            waiting.append(grant)
            if earliest and _returned(earliest) < grant.invoked:
                detail = f"token {grant.token} was granted after token {earliest.token} had been"
                violations.append(Violation("token-order", name, detail, (earliest, grant)))
    return violations


def check_exclusion(history: History) -> list[Violation]:
    """Rule 3: definite holds of incompatible requests do not overlap."""
    return _exclusion(definite_holds(history))


def check_fifo(history: History) -> list[Violation]:
    """Rule 6: who is known to have queued first is admitted first."""
    disturbances = Disturbances(history)
    return _fifo(definite_holds(history, disturbances), disturbances)


def check_guard(history: History) -> list[Violation]:
    """Rule 4: a guarded resource shows no lost update and no token that falls."""
    violations = []
    for resource, writes in _accepted(history, "write").items():
        writes.sort(key=lambda write: -1 if write.seq is None else write.seq)
        highest: Event | None = None
        for write in writes:
            if highest and _token(write) < _token(highest):
                detail = f"token fell from {highest.token} to {write.token}"
                violations.append(Violation("guard", resource, detail, (highest, write)))
            else:
                highest = write
        for base, rivals in _by_base(writes).items():
            if len(rivals) > 1:
                detail = f"{len(rivals) - 1} lost update(s): {len(rivals)} writes were made from {base!r}"
                violations.append(Violation("guard", resource, detail, tuple(rivals)))
    return violations


def lost_updates(history: History, resource: str | None = None) -> int:
    """Count the acknowledged writes to plain resources that another one trampled on.

    Two writes made from the same version cannot both have survived. The count is a lower bound,
    and it is 0 exactly if nothing was lost.
    """
    lost = 0
    for name, writes in _accepted(history, "plain").items():
        if resource in {None, name}:
            lost += sum(len(rivals) - 1 for rivals in _by_base(writes).values())
    return lost


def _exclusion(holds: Iterable[Hold]) -> list[Violation]:
    violations = []
    for name, group in _by_name(holds).items():
        for hold, rivals in conflicts(group):
            others = ", ".join(rival.operation.request for rival in rivals[:8])
            detail = f"{hold.operation.request} was granted at {hold.start.at:.6f} while {others} held it"
            operations = tuple(rival.operation for rival in rivals)
            violations.append(Violation("exclusion", name, detail, (*operations, hold.operation)))
    return violations


def _fifo(holds: Iterable[Hold], disturbances: Disturbances) -> list[Violation]:
    violations = []
    for name, group in _by_name(holds).items():
        implied, witnesses = implied_holds(group, disturbances)
        if not witnesses:
            continue
        known = {_parties(hold, rivals) for hold, rivals in conflicts(group)}
        for hold, rivals in conflicts(implied):
            waiters = [h.operation for h in (hold, *rivals) if h.operation.request in witnesses]
            if waiters and _parties(hold, rivals) not in known:
                violations.append(_queue_jump(name, waiters[0], witnesses, hold, rivals))
    return violations


def _queue_jump(
    name: str, waiter: Operation, witnesses: dict[str, Operation], hold: Hold, rivals: list[Hold]
) -> Violation:
    witness = witnesses[waiter.request]
    detail = (
        f"{waiter.request} was queued before {witness.request} was invoked, yet that was granted first"
        f" and {_names(hold, rivals)} conflict"
    )
    parties = {operation.request: operation for operation in (waiter, witness)}
    parties |= {h.operation.request: h.operation for h in (*rivals, hold)}
    return Violation("fifo", name, detail, tuple(parties.values()))


def _parties(hold: Hold, rivals: list[Hold]) -> frozenset[str]:
    return frozenset(h.operation.request for h in (hold, *rivals))


def _names(hold: Hold, rivals: list[Hold]) -> str:
    return ", ".join(sorted(_parties(hold, rivals))[:8])


def _report(history: History, violations: list[Violation]) -> Report:
    operations = history.operations()
    outcomes = Counter(operation.outcome for operation in operations)
    kinds = Counter(event.kind for event in history)
    guarded = Counter(event.accepted for event in history if event.kind == "write")
    return Report(
        violations=tuple(violations),
        acquires=len(operations),
        grants=outcomes["granted"],
        timeouts=outcomes["timeout"],
        cancelled=outcomes["cancelled"],
        failed=outcomes["failed"],
        pending=outcomes["pending"],
        queued=sum(operation.place is not None for operation in operations),
        releases=kinds["release"],
        renewals=kinds["renewed"] + kinds["extended"],
        losses=kinds["lost"],
        crashes=kinds["crashed"],
        writes=guarded[True],
        rejected=guarded[False],
        lost_updates=lost_updates(history),
    )


def _grants_by_name(history: History) -> dict[str, list[Operation]]:
    groups: dict[str, list[Operation]] = defaultdict(list)
    for operation in history.operations():
        if operation.outcome == "granted":
            groups[operation.name].append(operation)
    return groups


def _by_name(holds: Iterable[Hold]) -> dict[str, list[Hold]]:
    groups: dict[str, list[Hold]] = defaultdict(list)
    for hold in holds:
        groups[hold.operation.name].append(hold)
    return groups


def _accepted(history: History, kind: Literal["write", "plain"]) -> dict[str, list[Event]]:
    groups: dict[str, list[Event]] = defaultdict(list)
    for event in history:
        if event.kind == kind and event.accepted:
            groups[event.resource or ""].append(event)
    return groups


def _by_base(writes: Iterable[Event]) -> dict[Value, list[Event]]:
    groups: dict[Value, list[Event]] = defaultdict(list)
    for write in writes:
        if write.base is not None:
            groups[write.base].append(write)
    return groups


def _token(item: Operation | Event) -> int:
    return -1 if item.token is None else item.token


def _returned(operation: Operation) -> Instant:
    return operation.returned or Instant(float("inf"))
