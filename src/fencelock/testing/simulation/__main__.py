"""Run seeds of the simulation: one of them in detail, or many on all cores.

python -m fencelock.testing.simulation --seed 42 --flavour asyncio
python -m fencelock.testing.simulation --seeds 0:20000
python -m fencelock.testing.simulation --machine quorum --seeds 0:1000000 --json quorum.json
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from fencelock.runtime.simulated.world import Flavour
from fencelock.testing.simulation import quorum
from fencelock.testing.simulation.many import Job, Tally, commit, cores, save, sweep
from fencelock.testing.simulation.plan import FAULTS
from fencelock.testing.simulation.run import Result, simulate

FLAVOURS: tuple[Flavour, ...] = ("blocking", "asyncio")
END = "\r" if sys.stderr.isatty() else "\n"


def main(arguments: list[str] | None = None) -> int:
    """Run what the arguments ask for; return the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    flavours: tuple[Flavour, ...] = (options.flavour,) if options.flavour else FLAVOURS
    kinds = tuple(options.faults.split(",")) if options.faults else None
    unknown = [kind for kind in kinds or () if kind not in FAULTS]
    if unknown:
        parser.error(f"unknown fault {unknown[0]!r}: there are {', '.join(FAULTS)}")
    if options.seed is not None and options.machine == "quorum":
        outcome = quorum.simulate(options.seed)
        print("\n".join([*map(str, outcome.grants), str(outcome)]))
        return 1 if outcome.duplicates or outcome.disorders else 0
    if options.seed is not None:
        results = [_show(options.seed, flavour, kinds) for flavour in flavours]
        failed = sum(not result.ok for result in results)
        print(f"{len(results) - failed} passed, {failed} failed")
        return 1 if failed else 0
    job = Job(options.machine, flavours, kinds)
    return _sweep(job, options.seeds, options.processes, options.json)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fencelock.testing.simulation", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seed", type=int, help="run this one seed and show everything that happens")
    which.add_argument(
        "--seeds", type=_range, default=range(1000), metavar="FROM:TO", help="run these (0:1000)"
    )
    parser.add_argument(
        "--machine",
        choices=("lease", "quorum"),
        default="lease",
        help="the core that keeps leases, or the votes and tokens of the quorum (lease)",
    )
    parser.add_argument(
        "--processes", type=int, default=cores(), metavar="N", help="as many as there are cores, unless given"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the summary of many seeds there")
    parser.add_argument("--flavour", choices=FLAVOURS, help="both, unless given")
    parser.add_argument("--faults", help=f"instead of those of the seed, of: {','.join(FAULTS)}")
    return parser


def _range(text: str) -> range:
    first, _, last = text.rpartition(":")
    return range(int(first or 0), int(last))


def _show(seed: int, flavour: Flavour, kinds: tuple[str, ...] | None) -> Result:
    lines: list[str] = []
    result = simulate(seed, flavour, kinds, trace=lines.append)
    print(f"seed {seed}, {flavour}, faults: {', '.join(result.plan.kinds) or 'none'}")
    for fault in result.plan.faults:
        print(f"  {fault}")
    print("\n".join(lines))
    print(result.report)
    for failure in result.failures:
        print(f"FAILED {failure}")
    return result


def _sweep(job: Job, seeds: range, processes: int, json: Path | None) -> int:
    at, began = commit(), time.monotonic()
    told, shown = began, 0

    def progress(tally: Tally) -> None:
        nonlocal told, shown
        for failure in tally.failures[shown:]:
            print(failure, flush=True)
        shown = len(tally.failures)
        now = time.monotonic()
        if now - told >= (0.2 if sys.stderr.isatty() else 60.0):
            told = now
            print(_progress(tally, now - began), end=END, file=sys.stderr, flush=True)

    tally = sweep(job, seeds, processes, progress)
    seconds = time.monotonic() - began
    summary = tally.summary(job, seeds, seconds, at)
    if json is not None:
        save(json, summary)
    for word in ("machine", "grants", "faults", "counts", "seconds", "schedules_per_second", "commit"):
        value = summary[word]
        told_value = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
        print(f"{word.replace('_', ' '):20} {told_value}")
    print(f"{tally.schedules - tally.failed} passed, {tally.failed} failed")
    if tally.counts["interrupted"]:
        return 130
    return 1 if tally.failed else 0


def _progress(tally: Tally, seconds: float) -> str:
    rate = tally.schedules / max(seconds, 1e-9)
    return f"{tally.schedules} schedules, {rate:.0f}/s, {tally.grants} grants, {tally.failed} failed "


if __name__ == "__main__":
    sys.exit(main())
