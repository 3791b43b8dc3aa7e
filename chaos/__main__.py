"""`python -m chaos`: run backends through faults, and say what became of it.

    make chaos                                              every backend, every fault, briefly
    make chaos BACKEND=sqlite FAULT=pause MINUTES=0.3 SEED=7
    make chaos BACKEND="redis etcd" FAULT="pause kill" REPORT=report

Exit status: 0 if no run failed, 1 if one did, 64 for usage.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from pathlib import Path

from rich.console import Console

from chaos.backends import BACKENDS
from chaos.faults import FAULTS
from chaos.machine import lacks
from chaos.progress import View
from chaos.report import write
from chaos.run import Plan, forget, run
from chaos.subjects import SUBJECTS
from chaos.table import details, summary, table
from chaos.verdict import Outcome

USAGE = 64
MINUTES = 0.2
LAST_WORDS = 3
"""Lines of a log that tell why a server has died."""


class Misuse(Exception):
    """Bad input: one line that says what is wrong."""


def main(arguments: list[str]) -> int:
    """Run what was asked for."""
    console = Console(soft_wrap=False)
    try:
        plans = _plans(_parse(arguments))
    except Misuse as error:
        print(f"chaos: {error}", file=sys.stderr)
        return USAGE
    options = _parse(arguments)
    with View(console, len(plans)) as view:
        for plan in plans:
            view.begin(plan)
            view.end(_one(plan, view, console))
            if options.report:  # each time: a long table that is broken off has what it had
                page = write(Path(options.report), view.outcomes)
    _tell(console, view.outcomes, plans)
    if options.report:
        console.print(f"report: {page}")
    return int(any(one.status == "failed" for one in view.outcomes))


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="chaos", description="breaks what locks stand on, on purpose")
    parser.add_argument("--backend", default="", help="one or more of: " + " ".join(BACKENDS))
    parser.add_argument("--fault", default="", help="one or more of: " + " ".join(FAULTS))
    parser.add_argument("--minutes", default="", help=f"of faults in each run (default {MINUTES})")
    parser.add_argument("--injections", default="", help="go on until there are so many")
    parser.add_argument("--seed", default="", help="a number; the same seed throws the same dice")
    parser.add_argument("--subject", default="fencelock", help="one of: " + " ".join(SUBJECTS))
    parser.add_argument("--report", default="", help="a folder to write the report to")
    parser.add_argument("--ease", default="", help="seconds that a lane rests between two turns (default 0)")
    parser.add_argument("--keep", action="store_true", help="keep the histories of runs that passed too")
    return parser.parse_args(arguments)


def _plans(options: argparse.Namespace) -> list[Plan]:
    backends = _chosen("backend", options.backend, list(BACKENDS))
    faults = _chosen("fault", options.fault, list(FAULTS))
    minutes = _number("MINUTES", options.minutes, MINUTES)
    seed = int(_number("SEED", options.seed, random.SystemRandom().randrange(1, 100_000)))
    injections = int(_number("INJECTIONS", options.injections, 0))
    (subject,) = _chosen("subject", options.subject, list(SUBJECTS))[:1]
    return [
        Plan(
            backend,
            fault,
            minutes * 60,
            seed,
            SUBJECTS[subject].factories,
            subject,
            injections,
            keep=options.keep or bool(options.report),
            ease=_number("EASE", options.ease, 0),
        )
        for backend in backends
        for fault in faults
    ]


def _chosen(what: str, words: str, known: list[str]) -> list[str]:
    chosen = words.replace(",", " ").split() or known
    for word in chosen:
        if word not in known:
            raise Misuse(f"no {what} is called {word!r}; there are: {' '.join(known)}")
    return chosen


def _number(name: str, text: str, default: float) -> float:
    try:
        number = float(text or default)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise Misuse(f"{name}={text!r} is no number of 0 or more")
    return number


def _one(plan: Plan, view: View, console: Console) -> Outcome:
    store, fault = BACKENDS[plan.backend], FAULTS[plan.fault]
    if why := store.spared.get(plan.fault, ""):
        return Outcome(plan.backend, plan.fault, "does not apply", why, plan.subject)
    if why := SUBJECTS[plan.subject].cannot(plan.backend, plan.fault):
        return Outcome(plan.backend, plan.fault, "does not apply", why, plan.subject)
    if why := lacks(fault.needs):
        return Outcome(plan.backend, plan.fault, "not run", why, plan.subject)
    try:
        outcome = run(plan, view)
    except Exception as error:
        text = str(error).splitlines() or [""]
        outcome = Outcome(plan.backend, plan.fault, "failed", subject=plan.subject, seed=plan.seed)
        # A server that died leaves the end of its log below the first line: that tells why.
        why = " | ".join([text[0], *(line.strip() for line in text[1:][-LAST_WORDS:])])
        outcome.violations = [f"the run broke off: {type(error).__name__}: {why}"]
    if outcome.status == "failed":
        console.print(f"{plan.backend} × {plan.fault} failed; again: {plan.command}", soft_wrap=True)
        if outcome.folder:
            console.print(f"  its history: {outcome.folder}/history", soft_wrap=True)
        for violation in outcome.violations[:5]:
            console.print(f"  {violation}", soft_wrap=True, markup=False)
    elif not plan.keep:
        forget(outcome)
    return outcome


def _tell(console: Console, outcomes: list[Outcome], plans: list[Plan]) -> None:
    console.print(table(outcomes))
    for line in details(outcomes):
        console.print(line, soft_wrap=True, markup=False)
    console.print(f"{summary(outcomes)}; seed {plans[0].seed}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
