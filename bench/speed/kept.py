"""What the docs keep of the measurements: medians, quartiles, verdicts, some points of distributions.

Suites that were not measured here since are kept as they were, so a page may be of several days and
commits: it tells which. Measurements with FENCELOCK_QUICK are refused.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bench.keep import RESULTS, ROOT

__all__ = ["KEPT", "PLACES", "condensed", "load", "save", "take"]

KEPT = ROOT / "docs" / "pictures" / "speed.json"
PLACES = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999)
"""The parts of a distribution at which it is kept."""
ABOUT = ("when", "commit", "python", "processors", "load")
EXTRA = ("share", "calls", "rss", "threads")


def load(path: Path = KEPT) -> dict[str, Any]:
    """Return what is kept; no suites, if nothing is."""
    if not path.exists():
        return {"suites": {}}
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return data


def take(kept: Mapping[str, Any], names: Iterable[str], folder: Path = RESULTS) -> dict[str, Any]:
    """Return what is kept, with all that was measured here since."""
    suites = dict(kept["suites"])
    for name in names:
        path = folder / f"{name}.json"
        if path.exists():
            suites[name] = condensed(json.loads(path.read_text(encoding="utf-8")))
    return {"suites": {name: suites[name] for name in names if name in suites}}


def save(data: Mapping[str, Any], path: Path = KEPT) -> None:
    """Write it, a line for each result: small, and a change can be seen."""
    lines = []
    for name, suite in data["suites"].items():
        results = ",\n".join("   " + json.dumps(result, ensure_ascii=False) for result in suite["results"])
        about = json.dumps({key: suite[key] for key in ABOUT})[1:-1]
        lines.append(f' {json.dumps(name)}: {{{about}, "results": [\n{results}\n ]}}')
    path.write_text('{"suites": {\n' + ",\n".join(lines) + "\n}}\n", encoding="utf-8")


def condensed(suite: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the docs need of one suite."""
    if suite["quick"]:
        raise SystemExit(f"bench: FENCELOCK_QUICK was set when {suite['suite']} was measured: measure again")
    about = {key: suite[key] for key in ABOUT}
    return {**about, "results": [_result(result) for result in suite["results"]]}


def _result(result: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: result[key] for key in ("title", "key", "unit", "rate", "distribution", "series")}
    return {
        **kept,
        "missing": [note for note in result["notes"] if note.startswith("left out")],
        "verdicts": [
            {key: _short(value) for key, value in verdict.items()}
            for verdict in result["verdicts"]
            if verdict["key"] and verdict["target"] is not None
        ],
        "figures": [_figure(figure, result["distribution"]) for figure in result["figures"]],
    }


def _figure(figure: Mapping[str, Any], is_distribution: bool) -> dict[str, Any]:
    rounds = figure["rounds"]
    kept = {key: figure[key] for key in ("name", "role")}
    kept |= {key: _short(figure[key]) for key in ("median", "to_limit", "to_best_peer")}
    kept |= {"rounds": len(rounds), "quartiles": [_short(one) for one in figure["quartiles"]]}
    kept |= {key: _short(value) for key, value in figure["extra"].items() if key in EXTRA}
    if is_distribution:
        parts = statistics.quantiles(rounds, n=1000, method="inclusive")
        kept["points"] = [_short(parts[round(place * 1000) - 1]) for place in PLACES]
    return kept


def _short(value: Any) -> Any:
    """Return a number with the digits that are worth keeping."""
    return float(f"{value:.5g}") if isinstance(value, float) else value
