"""`python -m chaos.soak`: work for an hour with churn and faults, and see that nothing has grown.

    make soak                                                      all that can be soaked, an hour
    make soak BACKEND="redis postgresql etcd" MINUTES=60 SEED=7
    make soak BACKEND=redis MINUTES=3 REPORT=report

The backends are soaked at the same time. Exit status: 0 if all was flat, 1 if not, 64 for usage.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from tools.servers import ServerError

from chaos.__main__ import USAGE, Misuse, _chosen, _number
from chaos.soak.page import write
from chaos.soak.run import Outcome, Plan, Soak
from chaos.soak.stores import STORES
from chaos.soak.view import View, table

MINUTES = 60.0


def main(arguments: list[str]) -> int:
    """Soak what was asked for."""
    console = Console(soft_wrap=False)
    options = _parse(arguments)
    try:
        plan = _plan(options)
        folder = _folder(options.report)
    except Misuse as error:
        print(f"soak: {error}", file=sys.stderr)
        return USAGE
    began = time.monotonic()
    with View(console, plan.seconds) as view:
        soaks, outcomes = soak(plan, folder, view)
    cores = sum(os.times()[:4]) / (time.monotonic() - began)  # all that was started has ended
    samples = [sample for one in soaks for sample in one.samples]
    console.print(table(outcomes))
    failures = [f"{one.backend}: {words}" for one in outcomes for words in one.failures]
    for words in failures:
        console.print(words, soft_wrap=True, markup=False)
    grants = sum(one.counts.get("grants", 0) for one in outcomes)
    faults = sum(sum(one.struck.values()) for one in outcomes)
    told = f"{len(failures)} not flat" if failures else "all flat"
    console.print(f"{told}: {grants} grants, {faults} faults, {cores:.2f} cores; seed {plan.seed}")
    console.print(f"report: {write(folder, plan, outcomes, samples, cores)}", soft_wrap=True)
    if failures:
        console.print(f"again: {plan.command}", soft_wrap=True)
    return int(bool(failures))


def soak(plan: Plan, folder: Path, view: View) -> tuple[list[Soak], list[Outcome]]:
    """Run all backends of the plan at the same time."""
    diary = folder / "samples.jsonl"
    diary.unlink(missing_ok=True)
    with ExitStack() as stack:
        soaks = []
        for backend in plan.backends:
            one = Soak(plan, backend, diary, view)
            stack.callback(one.stop)
            one.start()
            soaks.append(one)
        threads = [threading.Thread(target=one.run, name=one.outcome.backend) for one in soaks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return soaks, [one.outcome for one in soaks]


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="soak", description="works for long, and sees that nothing grows")
    parser.add_argument("--backend", default="", help="one or more of: " + " ".join(STORES))
    parser.add_argument("--minutes", default="", help=f"of work (default {MINUTES:g})")
    parser.add_argument("--seed", default="", help="a number; the same seed throws the same dice")
    parser.add_argument("--report", default="", help="a folder for the report (default: a temporary one)")
    return parser.parse_args(arguments)


def _plan(options: argparse.Namespace) -> Plan:
    backends = _chosen("backend", options.backend, list(STORES))
    minutes = _number("MINUTES", options.minutes, MINUTES)
    seed = int(_number("SEED", options.seed, random.SystemRandom().randrange(1, 100_000)))
    return Plan(tuple(dict.fromkeys(backends)), minutes * 60, seed)


def _folder(words: str) -> Path:
    folder = Path(words) if words else Path(tempfile.mkdtemp(prefix="soak-"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Misuse(f"REPORT={words!r} is no folder: {error.strerror}") from None
    return folder


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ServerError as error:
        print(f"soak: {error}", file=sys.stderr)
        sys.exit(1)
