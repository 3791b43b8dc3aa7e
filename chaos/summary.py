"""The report in Markdown, for whoever looks at the folder: what was run, and what became of it.

`python -m chaos.report` writes it beside the HTML, from the same data; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from chaos.backends import BACKENDS
from chaos.faults import FAULTS
from chaos.table import summary
from chaos.verdict import Outcome, total

__all__ = ["markdown"]

HEAD = """# fencelock under faults

What `make chaos`, `make mutants`, `make model` and `make soak` found:
[how they work](../../docs/howto/chaos.md), [why it should be so](../../docs/explanation/safety.md).
[report.html](report.html) has the picture of every run, the list of mutants and every figure;
[report.json](report.json) has the same for programs.
"""
OURS = """## fencelock

Injections / grants; violations and declared breaks where there are any. A dash: does not apply.
"""
PEERS = """## Other libraries, in the same machine

Injections / grants / updates that the resource lost; violations of what the library itself offers, with the
settings that its documentation recommends. None gives a token, so no resource can refuse a late write. Where
a clock is set or a server forgets, no lock on it can exclude: fencelock declares that, others do not.
"""
Column = tuple[str, str]


def markdown(outcomes: Sequence[Outcome], facts: dict[str, Any], more: Sequence[dict[str, Any]]) -> str:
    """Return the whole page."""
    ran = [one for one in outcomes if one.status in {"passed", "failed"}]
    subjects = [*dict.fromkeys(one.subject for one in ran)]
    ours = [one for one in outcomes if one.subject == "fencelock"]
    commits = ", ".join(sorted({one.commit for one in ran if one.commit}))
    seeds = ", ".join(map(str, sorted({one.seed for one in ran})))
    parts = [
        HEAD,
        f"{summary(ours)}. Commit {commits}; seed {seeds}; {facts['machine']}; {facts['date']}.\n",
        OURS,
        *_table(outcomes, [("fencelock", backend) for backend in BACKENDS], with_totals=True),
        *_declared(ours),
    ]
    others = [(subject, backend) for subject in subjects if subject != "fencelock" for backend in BACKENDS]
    if others:
        parts += [PEERS, *_table(outcomes, others, with_totals=False)]
    parts += ["## Beside it\n", *filter(None, map(_further, more))]
    return "\n".join(parts) + "\n"


def _table(outcomes: Sequence[Outcome], columns: Sequence[Column], *, with_totals: bool) -> Iterator[str]:
    seen = {(one.subject, one.backend) for one in outcomes}
    columns = [column for column in columns if column in seen]
    heads = [backend if subject == "fencelock" else f"{subject}, {backend}" for subject, backend in columns]
    yield f"| fault | {' | '.join(heads)} |\n|---|{'---|' * len(columns)}"
    for fault in FAULTS:
        runs = [
            [one for one in outcomes if (one.subject, one.backend, one.fault) == (*column, fault)]
            for column in columns
        ]
        if any(runs):
            yield f"| `{fault}` | {' | '.join(map(_cell, runs))} |"
    if with_totals:
        sums = [[one for one in outcomes if (one.subject, one.backend) == column] for column in columns]
        yield f"| all | {' | '.join(map(_cell, sums))} |"
    yield ""


def _cell(runs: Sequence[Outcome]) -> str:
    ran = [one for one in runs if one.status in {"passed", "failed"}]
    if not ran:
        return "not run" if any(one.status == "not run" for one in runs) else "–"
    whole = total(ran)
    lost = "" if whole.subject == "fencelock" else f" / {whole.lost_updates:,}"
    bad = len(whole.violations)
    told = f" **{bad} violation{'' if bad == 1 else 's'}**" if bad else ""
    told += f", {declared:,} declared" if (declared := sum(whole.declared.values())) else ""
    return f"{whole.injections:,} / {whole.grants:,}{lost}{told}"


def _declared(outcomes: Sequence[Outcome]) -> Iterator[str]:
    cells: dict[Column, list[Outcome]] = {}
    for one in outcomes:
        if one.status in {"passed", "failed"}:
            cells.setdefault((one.backend, one.fault), []).append(one)
    wholes = {cell: total(runs) for cell, runs in cells.items()}
    if not any(whole.declared for whole in wholes.values()):
        return
    yield "What the guarantees declare for a fault, and how often it was seen:\n"
    yield "| where | seen | declared |\n|---|---|---|"
    for (backend, fault), whole in wholes.items():
        if not whole.declared:
            continue
        seen = ", ".join(f"{rule} broken in {count:,}" for rule, count in whole.declared.items())
        yield f"| {backend}, `{fault}` | {seen} of {whole.grants:,} grants | {whole.declaration} |"
    yield ""


def _further(told: dict[str, Any]) -> str:
    if "mutants" in told:
        return f"- Mutants: {told['caught']} of {len(told['mutants'])} caught, commit {told['commit']}."
    if "schedules" in told:
        return (
            f"- Model, {told['machine']}: {told['schedules']:,} schedules, {told['grants']:,} grants, "
            f"{told['violations']:,} violations, commit {told['commit']}."
        )
    if "command" in told:
        backends = ", ".join(
            f"{one['backend']} {'grew' if one['failures'] else 'flat'}" for one in told["outcomes"]
        )
        return f"- Soak, {told['seconds'] / 60:.3g} minutes: {backends}, commit {told['commit']}."
    return ""
