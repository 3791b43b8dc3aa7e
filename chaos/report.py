"""The report: one HTML file with nothing from outside, and the same as JSON.

`python -m chaos.report FOLDER [MORE.json …]` makes one report of several runs: later outcomes of the same
backend, fault and subject take the place of earlier ones.
"""

from __future__ import annotations

import html
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from chaos.backends import BACKENDS
from chaos.faults import FAULTS
from chaos.machine import commit, description
from chaos.table import summary
from chaos.verdict import Outcome

__all__ = ["write"]

STYLE = """
:root { color-scheme: light dark; --line: #8884; --good: #2a7d2e; --bad: #c62828; --dim: #888; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 82rem; padding: 0 1rem; }
table { border-collapse: collapse; font-size: 13px; }
.wide { overflow-x: auto; }
th, td { border: 1px solid var(--line); padding: .35rem .5rem; text-align: left; vertical-align: top; }
.passed b { color: var(--good); } .failed b { color: var(--bad); } .not, .does { color: var(--dim); }
small, .why { color: var(--dim); } pre { overflow-x: auto; font-size: 12px; }
summary { cursor: pointer; }
"""


def write(folder: Path, outcomes: Sequence[Outcome], facts: dict[str, Any] | None = None) -> Path:
    """Write `report.html` and `report.json` into the folder; return the former."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = facts or {"commit": commit(), "machine": description(), "date": f"{datetime.now(UTC):%Y-%m-%d}"}
    told = {**facts, "outcomes": [one.as_dict() for one in outcomes]}
    (folder / "report.json").write_text(json.dumps(told, indent=1) + "\n")
    page = folder / "report.html"
    page.write_text(_page(outcomes, facts))
    return page


def _page(outcomes: Sequence[Outcome], facts: dict[str, Any]) -> str:
    seeds = ", ".join(sorted({str(one.seed) for one in outcomes if one.seed}))
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width, initial-scale=1'>",
        f"<title>holdfast under faults</title><style>{STYLE}</style><h1>holdfast under faults</h1>",
        f"<p>{_text(summary(outcomes))}.<br><small>commit {_text(facts['commit'])}, seeds {_text(seeds)}, "
        f"{_text(facts['machine'])}, {_text(facts['date'])}</small></p>",
    ]
    for subject in dict.fromkeys(one.subject for one in outcomes):
        mine = [one for one in outcomes if one.subject == subject]
        parts += [f"<h2>{_text(subject)}</h2>", _table(mine), _teeth(mine)]
    parts += ["<h2>The faults</h2><dl>", *(_about(word) for word in FAULTS), "</dl>"]
    parts += [
        "<h2>Every run</h2>",
        *(_details(one) for one in outcomes if one.status in {"passed", "failed"}),
    ]
    parts += ["<h2>What was not run, and what does not apply</h2><ul>"]
    parts += [
        f"<li>{_text(one.subject)}: {one.backend} × {one.fault}: {_text(one.status)}: {_text(one.why)}"
        for one in outcomes
        if one.why
    ]
    return "\n".join([*parts, "</ul></html>", ""])


def _table(outcomes: Sequence[Outcome]) -> str:
    backends = [word for word in BACKENDS if any(one.backend == word for one in outcomes)]
    rows = [f"<tr><th>fault{''.join(f'<th>{word}' for word in backends)}"]
    for fault in FAULTS:
        cells = [next((o for o in outcomes if (o.backend, o.fault) == (b, fault)), None) for b in backends]
        if any(cells):
            rows.append(f"<tr><th>{fault}" + "".join(map(_cell, cells)))
    caption = "<caption>injections / grants / leases lost / updates that the plain resource lost</caption>"
    return f"<div class=wide><table>{caption}{''.join(rows)}</table></div>"


def _cell(one: Outcome | None) -> str:
    if one is None:
        return "<td>"
    if one.status in {"not run", "does not apply"}:
        mark = "not run" if one.status == "not run" else "–"
        return f"<td class={one.status.split()[0]} title='{_text(one.why)}'>{mark}"
    declared = sum(one.declared.values())
    more = (
        f"<br><small>{declared} declared: {declared / max(1, one.grants):.2%} of grants</small>"
        if declared
        else ""
    )
    figures = f"{one.injections} / {one.grants:,} / {one.losses} / {one.lost_updates}"
    link = f"<a href='#{one.subject}-{one.backend}-{one.fault}'>{figures}</a>"
    return f"<td class={one.status}><b>{len(one.violations)} violations</b><br>{link}{more}"


def _teeth(outcomes: Sequence[Outcome]) -> str:
    """The control: where the plain resource must lose updates, and did."""
    sharp = [one for one in outcomes if FAULTS[one.fault].teeth and one.status in {"passed", "failed"}]
    if not sharp:
        return ""
    told = "; ".join(f"{one.backend} × {one.fault}: {one.lost_updates}" for one in sharp)
    return f"<p><small>Updates lost by the plain resource where it must lose some: {told}.</small></p>"


def _about(word: str) -> str:
    fault = FAULTS[word]
    return f"<dt><b>{word}</b> <small>({fault.number})</small><dd>{_text(fault.about)}"


def _details(one: Outcome) -> str:
    counts = ", ".join(f"{name} {count}" for name, count in one.counts.items())
    back = "never" if one.recovery is None else f"{one.recovery:.2f}s"
    lines = [
        f"<details id='{one.subject}-{one.backend}-{one.fault}'><summary>{_text(one.subject)}: {one.backend} "
        f"{_text(one.version)} × {one.fault}: {one.status}</summary>",
        f"<p>seed {one.seed}, {one.seconds:.0f}s; {one.injections} injections, {one.grants} grants, "
        f"{one.losses} losses, {one.rejected} stale writes refused, {one.lost_updates} updates lost by "
        f"the plain resource; every name granted again after {back} (the machine's slack was "
        f"{one.slack:g}s); {counts}.</p>",
    ]
    for rule, count in one.declared.items():
        lines.append(f"<p>{rule} broken {count} times, as declared: <q>{_text(one.declaration)}</q></p>")
    if one.violations:
        lines.append(f"<pre>{_text(chr(10).join(one.violations[:20]))}</pre>")
    return "".join([*lines, one.picture, "</details>"])


def _text(words: str) -> str:
    return html.escape(str(words), quote=True)


def main(arguments: Sequence[str]) -> int:
    """Make one report of several."""
    if len(arguments) < 2:
        print("chaos.report: give a folder, and the report.json of each run", file=sys.stderr)
        return 64
    folder, *sources = map(Path, arguments)
    found: dict[tuple[str, str, str], Outcome] = {}
    facts: dict[str, Any] = {}
    for source in sources:
        told = json.loads(source.read_text())
        for fields in told.pop("outcomes"):
            one = Outcome(**fields)
            found[one.subject, one.backend, one.fault] = one
        facts = told
    print(f"report: {write(folder, [*found.values()], facts)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
