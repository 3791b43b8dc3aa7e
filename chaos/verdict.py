"""The judgement of a run: the checker's report, what the guarantees allow, what was left, and the teeth.

Rules 1 to 6 are `fencelock.testing.check`; rule 7 is `check_available` on the time after healing, and a look
at what is left in the store and in the processes.

A violation fails the run, unless it is *declared*; then it is counted apart. It is declared if

1. the backend's `guarantees`, as `fencelock doctor` refines them for these servers, say so, by the value of
   one field and never by words (`declared`);
2. it has a cause. A fault says when it makes servers forget leases, or take them for expired (`Stage.cause`).
   There must be such a time between the request for the lease with the lower token and the grant of the
   other. Tokens tell the order of grants; clients may hear of them in another.

A lane holds one lease at a time, or asks for one. So a cause takes one lease from each lane at most, and
those that are asked for while it lasts. If one cause breaks more, the run has failed.

*Teeth*: in a fault that must make an unguarded resource lose updates, and did not, the fault was not real:
that is a failure of the run, though nobody's lock is to blame.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from chaos.stage import Cause
from fencelock.guarantees import Guarantees
from fencelock.testing import Event, History, Operation, Report, Rule, Violation, check, check_available

__all__ = ["FIELDS", "SLACK", "Outcome", "Status", "declared", "judge", "total"]

SLACK = 1.0
"""Seconds that are the machine's, beside those by which the harness itself woke up late."""
TOKENS: tuple[Rule, ...] = ("unique-token", "token-order", "guard")
FIELDS: Mapping[str, str] = {
    "clock": "clock",
    "failover": "failover",
    "leader": "failover",
    "restart": "restart",
    "powerloss": "restart",
}
"""The field of the guarantees that says what a fault may break; any other fault may break nothing."""
RULES: Mapping[str, tuple[Rule, ...]] = {
    "nothing": (),
    "exclusion": ("exclusion",),
    "exclusion-and-tokens": ("exclusion", *TOKENS),
}
"""What the values of these fields mean."""
Status = Literal["passed", "failed", "not run", "does not apply"]


@dataclass
class Outcome:
    """What became of one run: a cell of the table."""

    backend: str
    fault: str
    status: Status
    why: str = ""
    """Why it was not run, or does not apply."""
    subject: str = "fencelock"
    seed: int = 0
    seconds: float = 0.0
    version: str = ""
    commit: str = ""
    injections: int = 0
    grants: int = 0
    losses: int = 0
    rejected: int = 0
    lost_updates: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    declared: dict[str, int] = field(default_factory=dict)
    declaration: str = ""
    broken: int = 0
    """Leases beside which another was granted, as declared."""
    most: int = 0
    """As many of them as one cause has broken."""
    lanes: int = 0
    """Those of all clients: each holds one lease at a time."""
    recovery: float | None = None
    """Seconds from healing until every name was granted again."""
    slack: float = SLACK
    """Seconds that the machine was allowed beyond each bound."""
    notes: list[str] = field(default_factory=list)
    """What may help to find a cause."""
    folder: str = ""
    picture: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def total(runs: Sequence[Outcome]) -> Outcome:
    """What became of several runs of the same: a cell that was filled in more than one go."""
    first = runs[0]
    if len(runs) == 1:
        return first
    whole = Outcome(first.backend, first.fault, "passed", subject=first.subject, version=first.version)
    whole.status = "failed" if any(one.status == "failed" for one in runs) else "passed"
    for name in ("seconds", "injections", "grants", "losses", "rejected", "lost_updates", "broken"):
        setattr(whole, name, sum(getattr(one, name) for one in runs))
    whole.most, whole.lanes = max(one.most for one in runs), max(one.lanes for one in runs)
    whole.violations = [violation for one in runs for violation in one.violations]
    whole.declared = dict(sum((Counter(one.declared) for one in runs), Counter()))
    whole.counts = dict(sum((Counter(one.counts) for one in runs), Counter()))
    whole.declaration = first.declaration
    return whole


def declared(fault: str, guarantees: Guarantees) -> dict[Rule, str]:
    """The rules that may be broken by this fault, each with the field that says so, and its value.

    The guarantees are those of this set-up, as `fencelock doctor` refines them.
    """
    if fault not in FIELDS:
        return {}
    field = FIELDS[fault]
    value = getattr(guarantees, field)
    return dict.fromkeys(RULES[value], f"{field}: {value}")


def judge(
    outcome: Outcome,
    history: History,
    *,
    traits: set[str],
    allowed: Mapping[Rule, str],
    causes: Sequence[Cause],
    lanes: int,
    line: bool,
    ttl: float,
    healed: float,
    until: float,
    bound: float,
    names: list[str],
    teeth: bool,
) -> None:
    """Fill in the outcome from the history."""
    losses = ttl + 2.0 + outcome.slack if "losses" in traits else None
    report = check(history, fifo=line and "fifo" in traits, loss_within=losses)
    # Of others only what they let somebody wait for: that nobody got round to a name proves nothing.
    sworn = names if outcome.subject == "fencelock" else None
    idle = check_available(history, healed=healed, bound=bound + outcome.slack, until=until, names=sworn)
    found = [*report.violations, *idle]
    if "tokens" not in traits:
        found = [violation for violation in found if violation.rule not in TOKENS]
    explained = [(one, _cause(one, causes) if one.rule in allowed else None) for one in found]
    outcome.violations += [str(one) for one, cause in explained if cause is None]
    as_declared = [(one, cause) for one, cause in explained if cause is not None]
    outcome.declaration = "; ".join(dict.fromkeys(allowed.values()))
    _declare(outcome, as_declared, history, lanes)
    _count(outcome, report, history)
    outcome.recovery = _recovery(history, healed, names)
    if teeth and not outcome.lost_updates:
        outcome.violations.append("teeth: the plain resource has lost no update, so the fault was not real")
    outcome.status = "failed" if outcome.violations else "passed"
    if not outcome.injections:
        _never_struck(outcome)


def _never_struck(outcome: Outcome) -> None:
    """Our own run has failed: it shows nothing. A peer is not blamed for what the harness could not do."""
    if outcome.subject == "fencelock":
        outcome.violations.append("teeth: the fault has never struck")
        outcome.status = "failed"
    else:
        outcome.violations, outcome.status, outcome.why = [], "not run", "the fault has never struck"


def _parties(violation: Violation) -> tuple[Operation | Event, Operation | Event]:
    """The lease that was broken, and the one that was granted beside it or after it."""
    by_token = violation.rule not in TOKENS  # else their order is what is in question
    *older, newest = sorted(violation.operations, key=_token if by_token else _returned)
    return min(older, key=_asked), newest  # of several older ones one stands for all


def _cause(violation: Violation, causes: Sequence[Cause]) -> Cause | None:
    """The last cause between the request for the one and the grant of the other; None if there is none."""
    broken, newest = _parties(violation)
    since, until = _asked(broken), _returned(newest)
    return max((cause for cause in causes if cause.start <= until and cause.end >= since), default=None)


def _token(item: Operation | Event) -> int:
    return item.token or 0


def _asked(item: Operation | Event) -> float:
    return item.at if isinstance(item, Event) else item.invoked.at


def _returned(item: Operation | Event) -> float:
    if isinstance(item, Event):
        return item.at
    assert item.returned is not None, "a violation is about grants"
    return item.returned.at


def _declare(outcome: Outcome, found: list[tuple[Violation, Cause]], history: History, lanes: int) -> None:
    """Count what is declared. More leases, broken by one cause, than it can break are a violation."""
    outcome.declared = dict(Counter(violation.rule for violation, _ in found))
    by_cause: dict[Cause, set[int]] = {}
    for violation, cause in found:
        if violation.rule == "exclusion":
            by_cause.setdefault(cause, set()).add(id(_parties(violation)[0]))
    outcome.broken = len(set().union(*by_cause.values()))
    outcome.most, outcome.lanes = max(map(len, by_cause.values()), default=0), lanes
    asked = sorted(one.invoked.at for one in history.operations() if one.outcome == "granted")
    for cause, broken in by_cause.items():
        limit = lanes + bisect_right(asked, cause.end) - bisect_left(asked, cause.start)
        if len(broken) > limit:
            outcome.violations.append(
                f"exclusion: {len(broken)} leases were broken by one cause, which can break {limit} at most"
            )


def _count(outcome: Outcome, report: Report, history: History) -> None:
    outcome.grants, outcome.losses, outcome.rejected = report.grants, report.losses, report.rejected
    outcome.lost_updates = report.lost_updates
    names = ("acquires", "timeouts", "cancelled", "failed", "pending", "queued", "writes")
    crashed = {event.client for event in history.events if event.kind == "crashed"}
    outcome.counts = {**{name: getattr(report, name) for name in names}, "crashes": len(crashed)}


def _recovery(history: History, healed: float, names: list[str]) -> float | None:
    """Seconds until each name was granted at least once after healing; None if one never was."""
    first: dict[str, float] = {}
    for operation in history.operations():
        if operation.outcome == "granted" and operation.returned and operation.returned.at >= healed:
            at = operation.returned.at - healed
            first[operation.name] = min(first.get(operation.name, at), at)
    return max(first.values()) if set(names) <= set(first) else None
