"""The table: a row for each fault, a column for each backend."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from chaos.backends import BACKENDS
from chaos.faults import FAULTS
from chaos.verdict import Outcome

__all__ = ["cell", "details", "summary", "table"]

STYLES = {"passed": "green", "failed": "bold red", "not run": "yellow", "does not apply": "dim"}


def cell(outcome: Outcome) -> str:
    """One run in a few words."""
    if outcome.status == "does not apply":
        return "–"
    if outcome.status == "not run":
        return "not run"
    declared = sum(outcome.declared.values())
    words = f"{outcome.injections} × / {outcome.grants} grants / {outcome.losses} lost"
    bad = len(outcome.violations)
    words += f"\n{bad} violation{'' if bad == 1 else 's'}"
    return words + (f", {declared} declared" if declared else "")


def table(outcomes: Sequence[Outcome]) -> Table:
    """All runs."""
    backends = [word for word in BACKENDS if any(one.backend == word for one in outcomes)]
    faults = [word for word in FAULTS if any(one.fault == word for one in outcomes)]
    shown = Table("fault", *backends, caption="injections × / grants / leases lost")
    for fault in faults:
        row = []
        for backend in backends:
            found = [one for one in outcomes if (one.backend, one.fault) == (backend, fault)]
            row.append(Text("\n").join(Text(cell(one), STYLES[one.status]) for one in found))
        shown.add_row(fault, *row)
    return shown


def details(outcomes: Sequence[Outcome]) -> list[str]:
    """What the table has no room for: why not, what was declared, and at which rate."""
    lines = []
    for one in outcomes:
        where = f"{one.backend} × {one.fault}"
        if one.status == "not run":
            lines.append(f"{where}: not run: {one.why}")
        for rule, count in one.declared.items():
            rate = f"{count} in {one.grants} grants"
            lines.append(f"{where}: {rule} broken {rate}, as declared: {one.declaration}")
        if one.broken:
            lines.append(f"{where}: {one.broken} leases broken, {one.most} by one cause; {one.lanes} lanes")
    return lines


def summary(outcomes: Sequence[Outcome]) -> str:
    """The last line."""
    ran = [one for one in outcomes if one.status in {"passed", "failed"}]
    bad = sum(one.status == "failed" for one in ran)
    idle = sum(one.status == "not run" for one in outcomes)
    total = f"{sum(one.injections for one in ran)} injections, {sum(one.grants for one in ran)} grants"
    return f"{len(ran) - bad} passed, {bad} failed, {idle} not run: {total}"
