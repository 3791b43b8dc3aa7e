"""Instructions for one acquire-release pair, and how many there were before.

    python -m bench instructions           count them, and show the change against bench/instructions.json
    python -m bench.instructions --take    keep what was counted last as what the next count is compared with
    python -m bench.instructions           show what is kept

Take them along with a change that is meant to change them, so that the file has the figures of the commit
before. What is kept tells the commit, the Python and the kind of machine that it was counted on.

Not promised: that other Pythons or machines run as many. Compared with those of another one, the change is
told all the same, with that reservation.
"""

from __future__ import annotations

import json
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.keep import RESULTS
from bench.measure import Figure
from bench.verdict import Verdict

__all__ = ["KEPT", "changes", "collected", "load", "main", "place", "reservation", "taken"]

KEPT = Path(__file__).with_name("instructions.json")


def collected(text: str) -> int:
    """Return how many instructions a file of callgrind tells of.

    Example:
        >>> collected("events: Ir\\nsummary: 405944962\\n\\nfn=(1) main\\n")
        405944962
    """
    found = re.search(r"^(?:summary|totals): (\d+)$", text, re.MULTILINE)
    if found is None:
        raise ValueError("callgrind has not told how many instructions there were")
    return int(found[1])


def load() -> dict[str, Any]:
    """Return what is kept; nothing, if nothing is."""
    return json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}


def place() -> dict[str, str]:
    """Return on what instructions can be compared."""
    return {"python": platform.python_version(), "machine": platform.machine()}


def changes(figures: Sequence[Figure], where: str, kept: Mapping[str, Any]) -> list[Verdict]:
    """Say by how many percent ours have changed; nothing of what was not counted before."""
    said = []
    for figure in figures:
        before = kept.get("pairs", {}).get(f"{where} {figure.name}")
        if figure.role == "fencelock" and before:
            percent = (figure.median / before - 1) * 100
            what = f"{figure.name}: more than the {before:,.0f} of {kept['commit']}"
            said.append(Verdict(what, percent, unit="%"))
    return said


def reservation(kept: Mapping[str, Any]) -> list[str]:
    """Say so if what is kept was counted on something else."""
    differ = [f"{key} {kept.get(key)}" for key, value in place().items() if kept and kept.get(key) != value]
    return [f"what is kept was counted on {', '.join(differ)}: not comparable"] if differ else []


def taken(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is to be kept of what `python -m bench instructions` has written."""
    if results["quick"]:
        raise SystemExit("bench: FENCELOCK_QUICK was set when these were counted: count again")
    pairs = {
        f"{result['key'].partition('.')[2]} {figure['name']}": round(figure["median"])
        for result in results["results"]
        for figure in result["figures"]
    }
    machine = place()["machine"]
    return {"commit": results["commit"], "python": results["python"], "machine": machine, "pairs": pairs}


def main(arguments: Sequence[str]) -> int:
    if "--take" in arguments:
        measured = json.loads((RESULTS / "instructions.json").read_text(encoding="utf-8"))
        KEPT.write_text(json.dumps(taken(measured), indent=1) + "\n", encoding="utf-8")
    kept = load()
    for name, count in kept.get("pairs", {}).items():
        print(f"{count:>12,}  {name}")
    print(f"of {kept.get('commit', 'nothing')}, Python {kept.get('python', '')}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
