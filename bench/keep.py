"""What a suite has shown, as JSON in bench/results: what the docs are made of."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.effort import QUICK
from bench.measure import Figure, Result

__all__ = ["RESULTS", "about", "commit", "save", "told"]

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"


def about() -> dict[str, Any]:
    """Return where and when; the load is what the machine had to do before it began."""
    return {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": commit(),
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "quick": QUICK,
    }


def commit() -> str:
    """Return the commit that is measured, with a + if something was changed since; '' outside of a clone."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", "src")
        return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except FileNotFoundError:
        return ""


def save(name: str, before: Mapping[str, Any], results: Sequence[Result]) -> None:
    """Write the JSON of a suite."""
    RESULTS.mkdir(exist_ok=True)
    data = {"suite": name, **before, "results": [told(result) for result in results]}
    (RESULTS / f"{name}.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def told(result: Result) -> dict[str, Any]:
    """Return a result as JSON keeps it."""
    series = result.series
    return {
        "title": result.title,
        "key": result.key,
        "unit": result.unit,
        "rate": result.rate,
        "distribution": result.distribution,
        "series": None if series is None else {"name": series.name, "axis": series.axis, "x": series.x},
        "notes": list(result.notes),
        "verdicts": [verdict.as_dict() for verdict in result.verdicts],
        "figures": [_figure(result, figure) for figure in result.figures],
    }


def _figure(result: Result, figure: Figure) -> dict[str, Any]:
    low, high = figure.quartiles
    return {
        "name": figure.name,
        "role": figure.role,
        "median": figure.median,
        "quartiles": [low, high],
        "to_limit": result.ratio(figure, result.limit()),
        "to_best_peer": result.ratio(figure, result.best_peer()),
        "extra": dict(figure.extra),
        "rounds": [float(f"{one:.6g}") for one in figure.rounds],
    }
