"""What a soak leaves: `soak.json`, and `soak.html` with a plot of each measure and nothing from outside."""

from __future__ import annotations

import html
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from chaos.machine import description
from chaos.soak.run import Outcome, Plan
from chaos.soak.verdict import MEASURES, Finding, Sample
from chaos.timeline import AXIS, COLOURS

__all__ = ["plot", "worst", "write"]

WIDTH, HEIGHT, LEFT, FOOT = 560.0, 150.0, 70.0, 18.0
STYLE = """
:root { color-scheme: light dark; --line: #8884; --good: #2a7d2e; --bad: #c62828; --dim: #888; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 80rem; padding: 0 1rem; }
table { border-collapse: collapse; font-size: 13px; margin: 1rem 0; }
th, td { border: 1px solid var(--line); padding: .3rem .5rem; text-align: left; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
.good { color: var(--good); } .bad { color: var(--bad); font-weight: bold; } small { color: var(--dim); }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(26rem, 1fr)); gap: 1rem; }
figure { margin: 0; border: 1px solid var(--line); padding: .5rem; } svg text { fill: currentColor; }
"""


def worst(findings: Iterable[Finding]) -> list[Finding]:
    """One finding for each measure: of the process that grew most, and any that is wrong first."""
    chosen: dict[str, Finding] = {}
    for one in findings:
        other = chosen.get(one.measure)
        if other is None or (bool(one.why), one.growth) > (bool(other.why), other.growth):
            chosen[one.measure] = one
    return [chosen[word] for word in MEASURES if word in chosen]


def write(
    folder: Path, plan: Plan, outcomes: Sequence[Outcome], samples: Sequence[Sample], cores: float
) -> Path:
    """Write both files; return the page."""
    facts: dict[str, Any] = {
        "commit": outcomes[0].commit,
        "seed": plan.seed,
        "seconds": plan.seconds,
        "machine": description(),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "cores": round(cores, 2),
        "command": plan.command,
    }
    told = {**facts, "outcomes": [one.as_dict() for one in outcomes]}
    (folder / "soak.json").write_text(json.dumps(told, indent=1) + "\n")
    page = folder / "soak.html"
    page.write_text(_page(facts, outcomes, samples))
    return page


def _page(facts: dict[str, Any], outcomes: Sequence[Outcome], samples: Sequence[Sample]) -> str:
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width, initial-scale=1'>",
        f"<title>fencelock, soaked</title><style>{STYLE}</style><h1>fencelock, soaked</h1>",
        f"<p><small>commit {_text(facts['commit'])}, seed {facts['seed']}, "
        f"{facts['seconds'] / 60:.3g} minutes, {_text(facts['machine'])}, "
        f"{facts['cores']} cores used, {facts['date']}</small></p>",
    ]
    for outcome in outcomes:
        parts += _backend(outcome, [one for one in samples if one.backend == outcome.backend])
    return "\n".join([*parts, "</html>", ""])


def _backend(outcome: Outcome, samples: Sequence[Sample]) -> Iterable[str]:
    faults = ", ".join(f"{count:,} × {word}" for word, count in outcome.struck.items())
    bad = len(outcome.failures)
    yield f"<h2>{outcome.backend} {_text(outcome.version)}: "
    yield f"<span class={'bad' if bad else 'good'}>{f'{bad} not flat' if bad else 'flat'}</span></h2>"
    grants = outcome.counts.get("grants", 0)
    yield f"<p>{grants:,} grants in {outcome.rounds} rounds; faults: {_text(faults)}.</p>"
    if bad:
        yield f"<pre>{_text(chr(10).join(outcome.failures))}</pre>"
    yield "<table><tr><th>measure<th>worst<th>start<th>middle<th>end<th>growth<th>allowed<th>verdict"
    for one in worst(outcome.findings):
        figures = (one.start, one.middle, one.end, one.growth, one.allowed)
        cells = "".join(f"<td class=n>{figure:,.6g}" for figure in figures)
        mark = "<td class=bad>" + _text(one.why) if one.why else f"<td>{'flat' if one.is_judged else 'shown'}"
        yield f"<tr><td>{one.measure}<td>{one.who}{cells}{mark}"
    yield "</table><div class=plots>"
    for measure in MEASURES:
        if drawing := plot(samples, measure):
            about = f"<b>{measure}</b> <small>{_text(MEASURES[measure].about)}</small>"
            yield f"<figure>{drawing}<figcaption>{about}</figcaption></figure>"
    yield "</div>"


def plot(samples: Sequence[Sample], measure: str) -> str:
    """One measure over time: a thin line at work, dots in the lulls, a colour for each process."""
    lines: dict[str, list[tuple[float, float, bool]]] = defaultdict(list)
    for one in samples:
        if measure in one.values and one.moment != "closed":
            lines[one.who].append((one.at, one.values[measure], one.moment == "lull"))
    if not lines:
        return ""
    values = [value for points in lines.values() for _, value, _ in points]
    low, high, last = min(values), max(values), max(at for points in lines.values() for at, _, _ in points)
    low, high = (low - 1, high + 1) if low == high else (low, high)

    def x(at: float) -> float:
        return round(LEFT + (WIDTH - LEFT - 6) * at / max(last, 1e-9), 1)

    def y(value: float) -> float:
        return round(6 + (HEIGHT - FOOT - 6) * (high - value) / (high - low), 1)

    parts = [f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" width="100%" role="img"><title>{measure}</title>']
    for number, (who, points) in enumerate(sorted(lines.items())):
        colour = COLOURS[number % len(COLOURS)]
        path = "L".join(f"{x(at)} {y(value)}" for at, value, _ in sorted(points))
        dots = "".join(f"M{x(at)} {y(value)}h.1" for at, value, lull in points if lull)
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width=".6"/>')
        stroke = f'stroke="{colour}" stroke-width="4" stroke-linecap="round"'
        parts.append(f'<path d="{dots}" {stroke}><title>{html.escape(who)}</title></path>')
    parts += [f'<text x="2" y="{y(value) + 8:g}" style="{AXIS}">{value:,.6g}</text>' for value in (low, high)]
    parts.append(f'<text x="{WIDTH - 50:g}" y="{HEIGHT - 4:g}" style="{AXIS}">{last / 60:.3g} min</text>')
    return "".join([*parts, "</svg>"])


def _text(words: object) -> str:
    return html.escape(str(words), quote=True)
