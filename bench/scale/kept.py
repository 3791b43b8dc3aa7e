"""What the page on scale keeps: what was measured, in short; what was simulated from it; sizes of locks.

Of the times of a window the middle and the 99th of a hundred are kept; of one task alone all that were told,
for simulations draw from them. Sizes of a lock and a waiter are those of the page on sizing, as they were
when this was taken. Measurements with FENCELOCK_QUICK are refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.keep import RESULTS, ROOT
from bench.scale.model import simulated
from bench.scale.sharding import spread

__all__ = ["KEPT", "MEASURED", "load", "save", "taken"]

MEASURED = RESULTS / "scales.json"
KEPT = ROOT / "docs" / "pictures" / "scale.json"
SIZES = ROOT / "docs" / "pictures" / "sizing.json"


def load(path: Path = KEPT) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return data


def taken(path: Path = MEASURED) -> dict[str, Any]:
    """Return what was measured here, with all that is simulated from it."""
    data = load(path)
    if data["quick"]:
        raise SystemExit("bench: FENCELOCK_QUICK was set when scale was measured: measure again")
    data["backends"] = [condensed(one) for one in data["backends"]]
    sizes = {
        one["kind"]: {"lock": one["server_lock"], "waiter": one["server_waiter"]}
        for one in load(SIZES)["backends"]
    }
    return {**data, "sizes": short(sizes), "spread": short(spread()), "simulated": simulated(data)}


def condensed(one: Mapping[str, Any]) -> dict[str, Any]:
    """Return one backend, in short."""
    loads = [_window(load, keep=number == 0) for number, load in enumerate(one["loads"])]
    hot, kept = [_window(load) for load in one["hot"]], _window(one["kept"])
    told: dict[str, Any] = short({**one, "loads": loads, "hot": hot, "kept": kept})
    return told


def _window(window: Mapping[str, Any], *, keep: bool = False) -> dict[str, Any]:
    times = window["times"]
    last = len(times) - 1
    told = {**window, "p50": times[round(last * 0.5)], "p99": times[round(last * 0.99)]}
    if not keep:
        del told["times"]
    return told


def short(value: Any) -> Any:
    """Return figures with the digits that are worth keeping."""
    match value:
        case float():
            return float(f"{value:.4g}")
        case dict():
            return {key: short(each) for key, each in value.items()}
        case list() | tuple():
            return [short(each) for each in value]
    return value


def save(data: Mapping[str, Any], path: Path = KEPT) -> None:
    """Write it, a line for each backend: small, and a change can be seen."""
    lines = [f" {json.dumps(key)}: {_text(key, value)}" for key, value in data.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _text(key: str, value: Any) -> str:
    if key != "backends":
        return json.dumps(value)
    return "[\n" + ",\n".join("  " + json.dumps(one) for one in value) + "\n ]"
