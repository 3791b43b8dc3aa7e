"""What `doctor` says, in one shape for every backend, and what follows from it for the guarantees.

Everything here is pure: settings in, findings out. Who asks the servers is `doctor` and `pulse` of a
backend (see `core/ports.py`), and `backends/checkup.py` puts it together.

A finding may *refine* the guarantees: it names fields of `Guarantees` and the value that this set-up has.
Where several findings name the same field the weakest value counts, so a good word about one setting
never outweighs a bad one about another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from fencelock.guarantees import Guarantees

__all__ = ["SEVERITIES", "Finding", "Pulse", "Severity", "by_severity", "refined", "worst"]

Severity = Literal["critical", "warning", "notice", "ok"]
SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "notice", "ok")
"""Worst first."""

WEAKEST_FIRST: dict[str, tuple[str, ...]] = {
    "use_for": ("efficiency", "correctness"),
    "fencing": ("best-effort", "until-restart", "durable"),
    "clock": ("exclusion", "nothing"),
    "failover": ("exclusion-and-tokens", "exclusion", "nothing"),
    "restart": ("exclusion", "nothing"),
    "wakeup": ("poll", "push"),
}
"""The guarantees that a finding may refine, and their values."""

FORGETFUL = (("use_for", "efficiency"), ("fencing", "best-effort"))
"""What becomes of the guarantees where the latest grants and tokens can be forgotten."""
FORGETS_AT_RESTART = (*FORGETFUL, ("restart", "exclusion"))
"""The same where a restart or a power loss is what they are forgotten by."""
NO_FAILOVER = (("failover", "nothing"),)
"""What becomes of them where no server could take over."""
LASTING = (("use_for", "correctness"), ("fencing", "durable"), ("restart", "nothing"))
"""What a server that forgets nothing is good for."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing `doctor` has to say about a set-up."""

    severity: Severity
    """`critical`: locks do not work, or do not do what they should. `warning`: sooner or later they will
    not. `notice`: worth knowing. `ok`: looked at, and well."""
    subject: str
    """What it is about, in a word or two: the title."""
    detail: str
    """What was found, and what it means for a lock."""
    advice: str = ""
    """What to change."""
    setting: str = ""
    """The setting with its value, as the server writes it: `appendfsync everysec`."""
    refines: tuple[tuple[str, str], ...] = ()
    """Fields of `Guarantees`, each with what this set-up makes of it."""

    def as_dict(self) -> dict[str, Any]:
        """Return the finding as plain data, for JSON."""
        return {**asdict(self), "refines": dict(self.refines)}


class Pulse(NamedTuple):
    """One round trip to one server."""

    server: str
    trip: float
    """Seconds from the question to the answer."""
    offset: float | None = None
    """Seconds by which the server's clock is ahead of this machine's; `None` where it does not tell."""
    uncertainty: float = 0.0
    """Seconds by which `offset` may be wrong: half the trip, and what the server rounds off."""


def worst(findings: Iterable[Finding]) -> Severity:
    """Return the worst severity of all; `ok` for none."""
    return min((finding.severity for finding in findings), key=SEVERITIES.index, default="ok")


def by_severity(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings with the worst first, and otherwise in their order."""
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def refined(guarantees: Guarantees, findings: Sequence[Finding]) -> Guarantees:
    """Return what a set-up promises, given what was found there."""
    named: dict[str, list[str]] = {}
    for finding in findings:
        for field, value in finding.refines:
            named.setdefault(field, []).append(value)
    weakest: dict[str, Any] = {
        field: min(values, key=WEAKEST_FIRST[field].index) for field, values in named.items()
    }
    return replace(guarantees, **weakest)
