"""`python -m bench [SUITE…]`: measure, show tables, write JSON and plots to bench/results/.

`consensus` is short for several suites, which have that tag. `FENCELOCK_QUICK=1` only shows that a suite
works.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console

from bench.effort import QUICK
from bench.keep import RESULTS, about, save
from bench.plots import plot
from bench.show import table
from bench.suites import SUITES


def main(arguments: Sequence[str]) -> int:
    tags = {tag: None for suite in SUITES.values() for tag in sorted(suite.tags)}
    unknown = [name for name in arguments if name not in SUITES and name not in tags]
    if unknown:
        known = ", ".join([*SUITES, *tags])
        print(f"bench: no suite {', '.join(unknown)}: known are {known}", file=sys.stderr)
        return 64
    console = Console()
    for name in [suite for wanted in arguments for suite in meant(wanted)] or SUITES:
        before = about()
        with console.status(SUITES[name].about) as status:
            results = SUITES[name].run(lambda text, name=name: status.update(f"{name}: {text}"))  # type: ignore[misc]
        for result in results:
            console.print(table(result))
        save(name, before, results)
        plot(RESULTS / f"{name}.png", results)
    console.print(f"JSON and plots are in {RESULTS}")
    if QUICK:
        console.print("FENCELOCK_QUICK is set: these figures mean nothing")
    return 0


def meant(wanted: str) -> list[str]:
    """Return the suite of that name, or else all that have it as a tag."""
    return [wanted] if wanted in SUITES else [name for name, suite in SUITES.items() if wanted in suite.tags]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
