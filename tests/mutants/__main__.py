"""`python tests/mutants [WORD …]`: every mutant against the check that must catch it, as a table.

With words, only those whose name has one of them. `--json FILE` writes the list for the report, `--jobs N`
runs so many at a time. The exit status is 0 if all were caught, else 1.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path

import clients  # noqa: F401 (each adds its patches to the list)
import ensembles  # noqa: F401
import queues  # noqa: F401
from judge import Passes, Verdict, judge
from patch import PATCHES, Patch
from rich.console import Console
from rich.table import Table

from fencelock.testing.simulation.many import commit
from suites import SUITES, Suite


def main() -> int:
    """Judge, show, and say how it went."""
    options = _options()
    chosen = [patch for patch in PATCHES if _is_chosen(patch.name, options.words)]
    suites = [suite for suite in SUITES if suite.chosen(lambda name: _is_chosen(name, options.words))]
    if not chosen and not suites:
        print(f"no mutant has {' or '.join(map(repr, options.words))} in its name", file=sys.stderr)
        return 64
    at = commit()  # what is judged is what was there in the beginning
    console = Console(width=None if sys.stdout.isatty() else 160)
    verdicts = []
    for verdict in _judge_all(chosen, suites, options):
        verdicts.append(verdict)
        word = "[green]caught[/]" if verdict.caught else "[bold red]NOT CAUGHT[/]"
        console.print(f"{word} {verdict.seconds:6.1f} s  {verdict.name}", highlight=False)
        if verdict.why:
            console.print(f"    {verdict.why}", style="red", markup=False, highlight=False)
    verdicts.sort(key=lambda verdict: (verdict.check.partition(":")[0], verdict.name))
    console.print(_table(verdicts))
    caught = sum(verdict.caught for verdict in verdicts)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        told = {"commit": at, "caught": caught, "mutants": [asdict(verdict) for verdict in verdicts]}
        options.json.write_text(json.dumps(told, indent=2) + "\n")
    print(f"{caught} caught, {len(verdicts) - caught} not")
    return 0 if caught == len(verdicts) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python tests/mutants", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    return parser.parse_args()


def _is_chosen(name: str, words: list[str]) -> bool:
    return not words or any(word in name for word in words)


def _judge_all(chosen: list[Patch], suites: list[Suite], options: argparse.Namespace) -> Iterator[Verdict]:
    """Judge them side by side, and yield each when it is known."""
    passes = Passes()
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(options.jobs) as pool:
        folder = Path(name)
        judging = [pool.submit(suite.judge, folder) for suite in suites]
        judging += [pool.submit(lambda one: [judge(one, folder, passes)], patch) for patch in chosen]
        for one in as_completed(judging):
            yield from (verdict for verdict in one.result() if _is_chosen(verdict.name, options.words))


def _table(verdicts: list[Verdict]) -> Table:
    table = Table("mutant", "what it breaks", "the check that must catch it", "caught", "s", show_lines=False)
    table.columns[4].justify = "right"
    for verdict in verdicts:
        caught = "yes" if verdict.caught else "[bold red]NO[/]"
        table.add_row(verdict.name, verdict.breaks, verdict.check, caught, f"{verdict.seconds:.1f}")
    return table


if __name__ == "__main__":
    sys.exit(main())
