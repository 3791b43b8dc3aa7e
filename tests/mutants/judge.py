"""Judging: each check is shown to pass on fencelock as it is, and to fail, with its words, on the mutant."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from patch import ROOT, Check, Conform, Patch, copied

__all__ = ["Answer", "Passes", "Verdict", "judge", "run"]

LIMIT = 240.0
"""Seconds after which a check is ended: a mutant may well hang, and then no check has caught it."""
FAILED = 1
"""pytest's exit status when tests failed; all others are no verdict."""


@dataclass(frozen=True)
class Answer:
    """What became of a check."""

    failed: bool
    said: str
    seconds: float


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant."""

    name: str
    breaks: str
    check: str
    caught: bool
    seconds: float
    why: str = ""
    """If it was not caught."""


def judge(mistake: Patch, folder: Path, passes: Callable[[Check, Path], bool]) -> Verdict:
    """Run the check on fencelock with the mistake; `passes` says whether it passes on fencelock as it is."""
    began = time.monotonic()
    why = ""
    with copied(folder, mistake) as home:
        broken = run(mistake.check, home)
    if not broken.failed:
        why = "the check passed: " + _last(broken.said)
    elif mistake.sign not in broken.said:
        why = f"the check failed without {mistake.sign!r}: " + _last(broken.said)
    elif not passes(mistake.check, folder):
        why = "the check fails on fencelock as it is"
    seconds = time.monotonic() - began
    return Verdict(mistake.name, mistake.breaks, str(mistake.check), not why, round(seconds, 1), why)


class Passes:
    """Whether checks pass on fencelock as it is: each is run once."""

    def __init__(self) -> None:
        self._latch = threading.Lock()
        self._latches: dict[Check, threading.Lock] = {}
        self._known: dict[Check, bool] = {}

    def __call__(self, check: Check, folder: Path) -> bool:
        with self._latch:
            latch = self._latches.setdefault(check, threading.Lock())
        with latch:
            if check not in self._known:
                with copied(folder / f"of-{threading.get_ident()}", None) as home:
                    self._known[check] = not run(check, home).failed
            return self._known[check]


def run(check: Check, home: Path) -> Answer:
    """Run a check in a process that imports fencelock from that folder."""
    began = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= getattr(check, "environment", ())
    command = _command(check)
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
            said += f"\nnot done after {LIMIT:.0f} s"
            process.returncode = -1
    failed, said = _read(check, process.returncode, said)
    return Answer(failed, said, time.monotonic() - began)


def _command(check: Check) -> list[str]:
    if isinstance(check, Conform):
        program = str(Path(__file__).with_name("conform.py"))
        return [sys.executable, "-P", program, check.scheme, ",".join(check.flavours), ",".join(check.names)]
    options = ["-p", "no:xdist", "-p", "no:cacheprovider", "-q", "--tb=short", "--timeout", "120"]
    return [sys.executable, "-P", "-m", "pytest", *options, *check.node.split()]


def _read(check: Check, status: int, said: str) -> tuple[bool, str]:
    if not isinstance(check, Conform):
        return status == FAILED, said
    if status != 0:
        return False, f"the checks could not be run: {said}"
    results = json.loads(said.strip().splitlines()[-1])
    failures = [
        f"{name} ({flavour}): {detail}" for name, flavour, outcome, detail in results if outcome == "failed"
    ]
    return bool(failures), "\n".join(failures) or f"{len(results)} passed"


def _last(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    return " | ".join(lines[-3:])[-400:]
