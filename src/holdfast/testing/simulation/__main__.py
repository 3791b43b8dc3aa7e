"""Run seeds of the simulation: one of them in detail, or many.

python -m holdfast.testing.simulation --seed 42 --flavour asyncio
python -m holdfast.testing.simulation --seeds 0:20000
"""

from __future__ import annotations

import argparse
import sys
import time

from holdfast.runtime.simulated.world import Flavour
from holdfast.testing.simulation.plan import FAULTS
from holdfast.testing.simulation.run import Result, simulate

FLAVOURS: tuple[Flavour, ...] = ("blocking", "asyncio")


def main(arguments: list[str] | None = None) -> int:
    """Run what the arguments ask for; return the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    flavours: tuple[Flavour, ...] = (options.flavour,) if options.flavour else FLAVOURS
    kinds = tuple(options.faults.split(",")) if options.faults else None
    unknown = [kind for kind in kinds or () if kind not in FAULTS]
    if unknown:
        parser.error(f"unknown fault {unknown[0]!r}: there are {', '.join(FAULTS)}")
    if options.seed is not None:
        results = [_show(options.seed, flavour, kinds) for flavour in flavours]
        failed = sum(not result.ok for result in results)
        print(f"{len(results) - failed} passed, {failed} failed")
        return 1 if failed else 0
    return _sweep(options.seeds, flavours, kinds)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m holdfast.testing.simulation", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seed", type=int, help="run this one seed and show everything that happens")
    which.add_argument(
        "--seeds", type=_range, default=range(1000), metavar="FROM:TO", help="run these (0:1000)"
    )
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


def _sweep(seeds: range, flavours: tuple[Flavour, ...], kinds: tuple[str, ...] | None) -> int:
    passed = failed = 0
    began = time.monotonic()
    for seed in seeds:
        for flavour in flavours:
            result = simulate(seed, flavour, kinds)
            passed += result.ok
            failed += not result.ok
            if not result.ok:
                print(f"\r{result}")
        if sys.stderr.isatty() and seed % 50 == 0:
            rate = (passed + failed) / max(time.monotonic() - began, 1e-9)
            print(f"\rseed {seed}, {rate:.0f} runs/s, {failed} failed ", end="", file=sys.stderr, flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
