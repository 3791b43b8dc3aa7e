"""The measured part of `docs/explanation/speed.md`: targets with what became of them, and all figures."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.show import amount
from bench.speed.rows import SECTIONS, Section
from bench.verdict import Verdict

__all__ = ["REASONS", "block", "judged", "missed", "reasons"]

REASONS = Path(__file__).with_name("reasons.toml")

Data = Mapping[str, Any]


def reasons(path: Path = REASONS) -> dict[str, dict[str, str]]:
    """Return what is written by hand of targets that are missed: `reason` and `tried`, by key."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def judged(data: Data) -> dict[str, tuple[Data, Verdict]]:
    """Return all verdicts with a target by their keys, each with its result."""
    return {
        f"{result['key']}/{verdict['key']}": (result, Verdict.from_dict(verdict))
        for suite in data["suites"].values()
        for result in suite["results"]
        for verdict in result["verdicts"]
    }


def missed(data: Data, sections: Sequence[Section] = SECTIONS) -> list[str]:
    """Return the keys of the targets that are missed."""
    found = judged(data)
    return [row for section in sections for row in section.rows if row in found and not found[row][1].met]


def block(data: Data, why: Mapping[str, Mapping[str, str]], pictures: Mapping[str, Sequence[str]]) -> str:
    """Return what stands between the marks of the page."""
    found = judged(data)
    rows = [row for section in SECTIONS for row in section.rows]
    met = sum(1 for row in rows if row in found and found[row][1].met)
    absent = sum(1 for row in rows if row not in found)
    summary = f"Of {len(rows)} targets {met} are met and {len(rows) - met - absent} are missed"
    summary += f"; {absent} are not measured yet." if absent else "."
    lines = [summary]
    for section in SECTIONS:
        lines += ["", f"### {section.title}", "", section.about, ""]
        lines += [line for picture in pictures.get(section.title, ()) for line in (picture, "")]
        lines += _section(section, data, found)
    return "\n".join([*lines, "", *_why(data, found, why)])


def _section(section: Section, data: Data, found: Mapping[str, tuple[Data, Verdict]]) -> Iterator[str]:
    suites = [data["suites"][name] for name in section.suites if name in data["suites"]]
    if section.rows:
        yield "| measurement | limit | figure | measured | target | |"
        yield "|---|---|---|---|---|---|"
        yield from _rows(section.rows, found)
        yield ""
    if not suites:
        yield "Not measured yet."
        return
    yield taken(suites)
    yield ""
    results = [result for suite in suites for result in suite["results"]]
    if section.rows:
        yield f"<details><summary>All figures: {', '.join(section.suites)}</summary>"
        yield ""
    for result in results:
        yield from figures(result)
    if section.rows:
        yield "</details>"


def _rows(keys: Sequence[str], found: Mapping[str, tuple[Data, Verdict]]) -> Iterator[str]:
    before = ""
    for key in keys:
        if key not in found:
            yield f"| `{key}` | | | not measured yet | | |"
            continue
        result, verdict = found[key]
        is_first = result["title"] != before
        before = result["title"]
        title, limit = (before, _limit(result)) if is_first else ("", "")
        word = verdict.word if verdict.met else f"**{verdict.word}**"
        yield f"| {title} | {limit} | {verdict.what} | {verdict.shown} | {verdict.wanted} | {word} |"


def _limit(result: Data) -> str:
    limit = next((one for one in result["figures"] if one["role"] == "limit"), None)
    return "" if limit is None else f"{limit['name']}: {_amount(limit, result)}"


def _amount(figure: Data, result: Data) -> str:
    return amount(figure["median"], result["unit"], result["rate"])


def taken(suites: Sequence[Data]) -> str:
    """Say when, where and of what these were taken."""
    days = sorted({suite["when"][:10] for suite in suites})
    commits = ", ".join(sorted({f"`{suite['commit']}`" for suite in suites}))
    loads = [suite["load"] for suite in suites]
    pythons = ", ".join(sorted({suite["python"] for suite in suites}))
    return (
        f"Taken on {' to '.join(dict.fromkeys((days[0], days[-1])))} at commit {commits}, Python {pythons}, "
        f"{suites[0]['processors']} processors, load before it began at most {max(loads):.1f}."
    )


def figures(result: Data) -> Iterator[str]:
    """Tell all figures of a result, the best first."""
    better = "more" if result["rate"] else "less"
    yield f"**{result['title']}** ({better} is better)"
    yield ""
    yield "| | median | quartiles | to limit | to best peer |"
    yield "|---|---|---|---|---|"
    for one in sorted(result["figures"], key=lambda one: float(one["median"])):
        quartiles = sorted(one["quartiles"], reverse=result["rate"])
        ends = [amount(end, result["unit"], result["rate"]) for end in quartiles]
        spread = " – ".join(ends) if one["rounds"] > 1 else ""
        ratios = ["" if one[key] is None else f"{one[key]:.2f}" for key in ("to_limit", "to_best_peer")]
        yield f"| {one['name']} | {_amount(one, result)} | {spread} | {' | '.join(ratios)} |"
    yield ""
    for note in result["missing"]:
        yield f"{note[0].upper()}{note[1:]}."
        yield ""


def _why(
    data: Data, found: Mapping[str, tuple[Data, Verdict]], why: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    yield "### Missed, and why"
    yield ""
    keys = missed(data)
    if not keys:
        yield "Nothing that was measured."
    for key in keys:
        result, verdict = found[key]
        said = why.get(key, {})
        yield f"- **{result['title']}: {verdict.what}**: {verdict.shown}, wanted {verdict.wanted}."
        yield f"  {said.get('reason', 'The reason is not known yet.')}"
        if "tried" in said:
            yield f"  Tried: {said['tried']}"
