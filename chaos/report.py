"""The report: one HTML file with nothing from outside, and the same as JSON.

`python -m chaos.report FOLDER [MORE.json …]` makes one report of several: of runs, whose figures are added up
where a cell was filled in more than one go, of mutants (`make mutants`), of model checks (`make model`), and
of a soak (`make soak`). A run that failed stays in its cell, whatever a later one says.
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
from chaos.subjects import SUBJECTS
from chaos.summary import markdown
from chaos.table import summary
from chaos.verdict import Outcome, Status, total

__all__ = ["write"]

STYLE = """
:root { color-scheme: light dark; --line: #8884; --good: #2a7d2e; --bad: #c62828; --dim: #888; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 90rem; padding: 0 1rem; }
table { border-collapse: collapse; font-size: 13px; margin: 1rem 0; }
.wide { overflow-x: auto; } .cells td { white-space: nowrap; }
th, td { border: 1px solid var(--line); padding: .35rem .5rem; text-align: left; vertical-align: top; }
tbody th { position: sticky; left: 0; background: Canvas; } caption { text-align: left; color: var(--dim); }
.passed b { color: var(--good); } .failed b { color: var(--bad); } .not, .does { color: var(--dim); }
small, .why { color: var(--dim); } pre { overflow-x: auto; font-size: 12px; }
summary { cursor: pointer; } td a { color: inherit; }
"""
PEERS = """
A library that is not fencelock is judged by what its lease claims, with the settings that its documentation
recommends; what it does not offer (a token, an order, word of a loss) is not judged. Where a Redis forgets,
fails over or has its clock set, no lock on it can exclude by itself: fencelock declares that, and such cells
of others are to be read beside fencelock's own.
"""


def write(
    folder: Path,
    outcomes: Sequence[Outcome],
    facts: dict[str, Any] | None = None,
    more: Sequence[dict[str, Any]] = (),
    gaps: Sequence[Outcome] = (),
) -> Path:
    """Write `report.html` and `report.json` into the folder; return the former. Only the page shows gaps."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = facts or {"machine": description(), "date": f"{datetime.now(UTC):%Y-%m-%d}"}
    told = {**facts, "outcomes": [{**one.as_dict(), "folder": ""} for one in outcomes]}
    (folder / "report.json").write_text(json.dumps(told, indent=1) + "\n")
    page = folder / "report.html"
    page.write_text(_page([*outcomes, *gaps], facts, more))
    return page


def _page(outcomes: Sequence[Outcome], facts: dict[str, Any], more: Sequence[dict[str, Any]]) -> str:
    seeds = ", ".join(map(str, sorted({one.seed for one in outcomes if one.seed})))
    commits = ", ".join(sorted({one.commit for one in outcomes if one.commit})) or commit()
    subjects = [*dict.fromkeys(one.subject for one in outcomes)]
    ours = [one for one in outcomes if one.subject == subjects[0]] if subjects else []
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width, initial-scale=1'>",
        f"<title>fencelock under faults</title><style>{STYLE}</style><h1>fencelock under faults</h1>",
        f"<p>{_text(summary(ours))}.<br><small>commit {_text(commits)}, seeds {_text(seeds)}, "
        f"{_text(facts['machine'])}, {_text(facts['date'])}</small></p>",
        _table(outcomes, subjects),
        *(_teeth([one for one in outcomes if one.subject == subject], subject) for subject in subjects[:1]),
        f"<p><small>{_text(PEERS)}</small></p>" if subjects[1:] else "",
        _rates(ours),
        *map(_further, more),
        "<h2>The faults</h2><dl>",
        *(_about(word) for word in FAULTS),
        "</dl><h2>Every run</h2>",
        *(_details(one) for one in outcomes if _ran(one)),
        "<h2>What was not run, and what does not apply</h2><ul>",
        *(
            f"<li>{_text(one.subject)}: {one.backend} × {one.fault}: {_text(one.status)}: {_text(one.why)}"
            for one in outcomes
            if one.why
        ),
    ]
    return "\n".join([*filter(None, parts), "</ul></html>", ""])


def _table(outcomes: Sequence[Outcome], subjects: Sequence[str]) -> str:
    columns = [
        (subject, backend)
        for subject in subjects
        for backend in BACKENDS
        if any((one.subject, one.backend) == (subject, backend) and _ran(one) for one in outcomes)
    ]
    heads = "".join(f"<th>{_text(subject)}<br>{backend}" for subject, backend in columns)
    rows = [f"<thead><tr><th>fault{heads}<tbody>"]
    for fault in FAULTS:
        cells = [
            [one for one in outcomes if (one.subject, one.backend, one.fault) == (*column, fault)]
            for column in columns
        ]
        if any(cells):
            rows.append(f"<tr><th>{fault}" + "".join(map(_cell, cells)))
    sums = [
        total([one for one in outcomes if (one.subject, one.backend) == column and _ran(one)])
        for column in columns
    ]
    rows.append("<tr><th>all" + "".join(map(_figures, sums)))
    caption = "<caption>injections / grants / leases lost / updates that the plain resource lost</caption>"
    return f"<div class=wide><table class=cells>{caption}{''.join(rows)}</table></div>"


def _cell(runs: Sequence[Outcome]) -> str:
    if any(map(_ran, runs)):
        ran = [*filter(_ran, runs)]
        return _figures(total(ran), f"#{_ident(ran[0])}")
    if not runs:
        return "<td>"
    mark = "not run" if runs[0].status == "not run" else "–"
    return f"<td class={runs[0].status.split()[0]} title='{_text(runs[0].why)}'>{mark}"


def _ran(one: Outcome) -> bool:
    return one.status in {"passed", "failed"}


def _ident(one: Outcome) -> str:
    return f"{one.subject}-{one.backend}-{one.fault}-{one.seed}"


def _figures(one: Outcome, link: str = "") -> str:
    figures = f"{one.injections:,} / {one.grants:,} / {one.losses:,} / {one.lost_updates:,}"
    declared = sum(one.declared.values())
    rate = f"{declared / max(1, one.grants):.2%} of grants"
    more = f"<br><small>{declared:,} declared: {rate}</small>" if declared else ""
    shown = f"<a href='{link}'>{figures}</a>" if link else figures
    return f"<td class={one.status}><b>{_count(len(one.violations), 'violation')}</b><br>{shown}{more}"


def _teeth(outcomes: Sequence[Outcome], subject: str) -> str:
    """The control: where the plain resource must lose updates, and did."""
    cells: dict[tuple[str, str], list[Outcome]] = {}
    for one in outcomes:
        if FAULTS[one.fault].teeth and _ran(one):
            cells.setdefault((one.backend, one.fault), []).append(one)
    sharp = [total(runs) for runs in cells.values()]
    told = "; ".join(f"{one.backend} × {one.fault}: {one.lost_updates:,}" for one in sharp if _decides(one))
    if not told:
        return ""
    blunt = ", ".join(one.backend for one in sharp if not _decides(one))
    none = f" On {blunt} no clock decides, so setting it takes nothing away." if blunt else ""
    return (
        f"<p><small>The control: updates lost by the plain resource under {_text(subject)}, where it must "
        f"lose some: {told}. The guarded resource beside it lost none, or it would be a violation.{none}"
        "</small></p>"
    )


def _decides(one: Outcome) -> bool:
    """Whether the fault can take a lease from its holder: a clock that decides nothing breaks nothing."""
    return one.fault != "clock" or bool(one.declaration)


def _rates(outcomes: Sequence[Outcome]) -> str:
    """What the guarantees declare, with the rate at which it was seen."""
    said = [one for one in outcomes if one.declared]
    if not said:
        return ""
    rows = "".join(
        f"<tr><th>{one.backend} × {one.fault}<td>{rule}<td>{count:,} in {one.grants:,} grants, "
        f"{one.injections:,} injections<td>{_text(one.declaration)}"
        for one in said
        for rule, count in one.declared.items()
    )
    return f"<h2>What is declared, and how often it was seen</h2><div class=wide><table>{rows}</table></div>"


def _further(told: dict[str, Any]) -> str:
    """Mutants, model checks, soaks: each says what it is by what it has."""
    if "mutants" in told:
        rows = "".join(
            f"<tr class={'passed' if one['caught'] else 'failed'}><th>{_text(one['name'])}"
            f"<td>{_text(one['breaks'])}<td>{_text(one['check'])}"
            f"<td><b>{'caught' if one['caught'] else 'missed'}</b>"
            for one in told["mutants"]
        )
        head = f"{told['caught']} of {len(told['mutants'])} mutants caught, commit {told['commit']}"
        table = f"<div class=wide><table>{rows}</table></div>"
        return f"<h2>Mutants</h2><details><summary>{_text(head)}</summary>{table}</details>"
    if "schedules" in told:
        faults = ", ".join(f"{count:,} × {word}" for word, count in told["faults"].items())
        return (
            f"<h2>Model: {_text(told['machine'])}</h2><p>{told['schedules']:,} schedules, "
            f"{told['grants']:,} grants, {told['violations']:,} violations; {_text(faults)}; "
            f"commit {_text(told['commit'])}.</p>"
        )
    if "command" in told:
        return _soaked(told)
    return ""


def _soaked(told: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr class={'failed' if one['failures'] else 'passed'}><th>{one['backend']} {_text(one['version'])}"
        f"<td>{one['counts']['grants']:,} grants<td>"
        + ", ".join(f"{count:,} × {word}" for word, count in one["struck"].items())
        + f"<td>{_count(len(one['findings']), 'measure')}"
        f"<td><b>{_text('; '.join(one['failures'])) or 'flat'}</b>"
        for one in told["outcomes"]
    )
    return (
        f"<h2>Soak</h2><p>{told['seconds'] / 60:.3g} minutes of churn and faults: memory, threads, sockets, "
        f"and what the server keeps. <code>{_text(told['command'])}</code>; commit {_text(told['commit'])}, "
        f"{_text(told['machine'])}, {_text(told['date'])}.</p><div class=wide><table>{rows}</table></div>"
    )


def _about(word: str) -> str:
    fault = FAULTS[word]
    return f"<dt><b>{word}</b> <small>({fault.number})</small><dd>{_text(fault.about)}"


def _details(one: Outcome) -> str:
    counts = ", ".join(f"{name} {count:,}" for name, count in one.counts.items())
    back = "never" if one.recovery is None else f"{one.recovery:.2f}s"
    lines = [
        f"<details id='{_ident(one)}'><summary>{_text(one.subject)}: {one.backend} "
        f"{_text(one.version)} × {one.fault}: {one.status}</summary>",
        f"<p>commit {_text(one.commit)}, seed {one.seed}, {one.seconds:.0f}s; {one.injections:,} injections, "
        f"{one.grants:,} grants, {one.losses:,} losses, {one.rejected:,} stale writes refused, "
        f"{one.lost_updates:,} updates lost by the plain resource; every name granted again after {back} "
        f"(the machine's slack was {one.slack:g}s); {counts}.</p>",
    ]
    for rule, count in one.declared.items():
        lines.append(f"<p>{rule} broken {count} times, as declared: <q>{_text(one.declaration)}</q></p>")
    if one.violations:
        lines.append(f"<pre>{_text(chr(10).join(one.violations[:20]))}</pre>")
    return "".join([*lines, one.picture, "</details>"])


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _text(words: object) -> str:
    return html.escape(str(words), quote=True)


def main(arguments: Sequence[str]) -> int:
    """Make one report of several."""
    if len(arguments) < 2:
        print("chaos.report: give a folder, and the JSON of each part", file=sys.stderr)
        return 64
    folder, *sources = map(Path, arguments)
    outcomes: list[Outcome] = []
    facts: dict[str, Any] | None = None
    more: list[dict[str, Any]] = []
    for source in sources:
        try:
            told = json.loads(source.read_text())
        except (OSError, ValueError) as error:
            print(f"chaos.report: {source} is no report: {error}", file=sys.stderr)
            return 64
        if "outcomes" in told and "command" not in told:  # a soak has both
            outcomes += [Outcome(**fields) for fields in told.pop("outcomes")]
            facts = told
        else:
            more.append(told)
    gaps = missing(outcomes)
    page = write(folder, outcomes, facts, more, gaps)
    if facts is not None:
        (folder / "README.md").write_text(markdown([*outcomes, *gaps], facts, more))
    print(f"report: {page}")
    return 0


def missing(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The cells that nobody filled, each with the reason: an empty one would look as if it were forgotten."""
    filled = {(one.subject, one.backend, one.fault) for one in outcomes}
    found = []
    for subject, backend in dict.fromkeys((one.subject, one.backend) for one in outcomes):
        for fault in FAULTS:
            if (subject, backend, fault) not in filled:
                why = BACKENDS[backend].spared.get(fault, "") or SUBJECTS[subject].cannot(backend, fault)
                status: Status = "does not apply" if why else "not run"
                found.append(Outcome(backend, fault, status, why or "not yet", subject))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
