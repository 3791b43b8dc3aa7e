"""The judgement of a run: the checker's report, what the guarantees allow, what was left, and the teeth.

A violation counts unless the backend's own `guarantees` declare it for this fault: then it is counted apart,
with the words that declare it, and its rate is told. Rules 1 to 6 are `fencelock.testing.check`; rule 7 is
`check_available` on the time after healing, and a look at what is left in the store and in the processes.

*Teeth*: in a fault that must make an unguarded resource lose updates, and did not, the fault was not real:
that is a failure of the run, though nobody's lock is to blame.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from fencelock.guarantees import Guarantees
from fencelock.testing import History, Report, Rule, Violation, check, check_available

__all__ = ["SLACK", "Outcome", "Status", "declared", "judge", "total"]

SLACK = 1.0
"""Seconds that are the machine's, beside those by which the harness itself woke up late."""
TOKENS: tuple[Rule, ...] = ("unique-token", "token-order", "guard")
FORGETS = "loses its data"
ENDS_EARLY = "a leader that stood still and comes back may end leases"
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
    for name in ("seconds", "injections", "grants", "losses", "rejected", "lost_updates"):
        setattr(whole, name, sum(getattr(one, name) for one in runs))
    whole.violations = [violation for one in runs for violation in one.violations]
    whole.declared = dict(sum((Counter(one.declared) for one in runs), Counter()))
    whole.counts = dict(sum((Counter(one.counts) for one in runs), Counter()))
    whole.declaration = first.declaration
    return whole


def declared(fault: str, guarantees: Guarantees) -> dict[Rule, str]:
    """The rules that may be broken by this fault, each with the words that say so.

    The guarantees are those of this set-up, as `fencelock doctor` refines them.
    """
    words: dict[Rule, str] = {}
    if fault == "clock" and not guarantees.clock.startswith("nothing"):
        words["exclusion"] = guarantees.clock
    forgets = [caveat for caveat in guarantees.caveats if FORGETS in caveat]
    if fault in {"restart", "powerloss"} and forgets:
        words["exclusion"] = forgets[0]
    early = [caveat for caveat in guarantees.caveats if ENDS_EARLY in caveat]
    if fault == "leader" and early and guarantees.use_for == "efficiency":  # this version is one of those
        words["exclusion"] = early[0]
    if fault == "failover" and not guarantees.failover.startswith("nothing"):
        words |= dict.fromkeys(("exclusion", *TOKENS), guarantees.failover)
    return words


def judge(
    outcome: Outcome,
    history: History,
    *,
    traits: set[str],
    allowed: Mapping[Rule, str],
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
    outcome.violations += [str(violation) for violation in found if violation.rule not in allowed]
    _declare(outcome, [violation for violation in found if violation.rule in allowed], allowed)
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


def _declare(outcome: Outcome, found: list[Violation], allowed: Mapping[Rule, str]) -> None:
    outcome.declared = dict(Counter(violation.rule for violation in found))
    outcome.declaration = "; ".join(dict.fromkeys(allowed.values()))


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
