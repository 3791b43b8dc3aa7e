"""What the checks answer with: violations, and a report that counts."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from fencelock.testing.events import Event
from fencelock.testing.history import Operation

Rule = Literal["unique-token", "token-order", "exclusion", "guard", "loss", "fifo", "available"]


@dataclass(frozen=True, slots=True)
class Violation:
    """``rule`` was broken on the lock (or resource) ``name``, as ``operations`` show."""

    rule: Rule
    name: str
    detail: str
    operations: tuple[Operation | Event, ...] = ()

    def __str__(self) -> str:
        items = (item.render() if isinstance(item, Event) else item for item in self.operations)
        return "\n    ".join([f"{self.rule}: {self.name!r}: {self.detail}", *map(str, items)])


@dataclass(frozen=True, slots=True)
class Report:
    """What ``check`` found, and how much it had to look at."""

    violations: tuple[Violation, ...]
    acquires: int = 0
    grants: int = 0
    timeouts: int = 0
    cancelled: int = 0
    failed: int = 0
    pending: int = 0
    queued: int = 0
    releases: int = 0
    renewals: int = 0
    losses: int = 0
    crashes: int = 0
    writes: int = 0
    rejected: int = 0
    lost_updates: int = 0  # on plain resources: the teeth, not a violation

    @property
    def ok(self) -> bool:
        """Whether no rule was broken."""
        return not self.violations

    def __str__(self) -> str:
        counts = {item.name: getattr(self, item.name) for item in fields(self)[1:]}
        line = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in counts.items())
        return "\n".join([line, f"violations {len(self.violations)}", *map(str, self.violations)])
