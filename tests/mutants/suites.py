"""Mutants with tests of their own: those of the simulator, and the broken backends of the conformance suite.

There a test passes when it has caught its mutant. Each suite runs in one go, with the tests that show that
the same checks pass on fencelock as it is.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from judge import Verdict
from patch import ROOT

sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "sim")]

from conformance.broken import BACKENDS, CLIENTS  # noqa: E402
from fencelock.testing.conformance import FLAVOURS  # noqa: E402
from fencelock.testing.simulation import quorum  # noqa: E402
from mutants import MUTANTS  # noqa: E402

__all__ = ["SUITES", "Suite"]

LIMIT = 1800.0


@dataclass(frozen=True)
class Kind:
    """A mutant of a suite: what it breaks, and what must notice."""

    breaks: str
    check: str


@dataclass(frozen=True)
class Suite:
    """Tests that catch mutants, and tests that show what is whole."""

    name: str
    tests: Sequence[str]
    whole: Sequence[str]
    mutants: dict[str, Kind] = field(repr=False)
    environment: dict[str, str] = field(default_factory=dict)

    def chosen(self, wanted: Callable[[str], bool]) -> bool:
        """Whether any of its mutants is wanted."""
        return any(map(wanted, self.mutants))

    def judge(self, folder: Path) -> list[Verdict]:
        """Run all of it and read what became of each mutant."""
        broken = self._run(folder / f"{self.name}.xml", self.tests)
        wrong = self._wrong(folder) and self._wrong(folder)  # once more: it may have been the machine
        verdicts = []
        for mutant, kind in self.mutants.items():
            mine = [(failure, spent) for test, failure, spent in broken if mutant in _words(test)]
            seconds = sum(spent for _, spent in mine)
            why = next((failure for failure, _ in mine if failure), "" if mine else "no test was run")
            why = why or (wrong and f"on fencelock as it is: {wrong}")
            verdicts.append(Verdict(mutant, kind.breaks, kind.check, not why, round(seconds, 1), why))
        return verdicts

    def _wrong(self, folder: Path) -> str:
        """Why a test fails on fencelock as it is; empty if all pass."""
        whole = [failure for _, failure, _ in self._run(folder / f"{self.name}-whole.xml", self.whole)]
        return next((failure for failure in whole if failure), "" if whole else "no test was run")

    def _run(self, results: Path, tests: Sequence[str]) -> list[tuple[str, str, float]]:
        options = ["-p", "no:xdist", "-p", "no:cacheprovider", "-q", f"--junitxml={results}"]
        subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=ROOT,
            env={**os.environ, **self.environment},
            capture_output=True,
            timeout=LIMIT,
            check=False,
        )
        told = []
        for case in ElementTree.parse(results).iter("testcase"):
            failures = [child for child in case if child.tag in {"failure", "error", "skipped"}]
            why = " ".join((child.get("message") or child.tag).splitlines()[0] for child in failures)
            told.append((case.get("name") or "", why[:300], float(case.get("time") or 0)))
        return told


def _words(test: str) -> set[str]:
    """The parts of what stands between a test's brackets; a mutant's name is one of them, or all of it."""
    inside = re.sub(r"^[^\[]*\[|\]$", "", test)
    return {inside, *inside.split("-")}


def _first(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


def _conform(broken: object, caught_by: Sequence[str]) -> Kind:
    return Kind(_first(broken.__doc__), f"conform: {', '.join(caught_by)}")


WHOLE = sorted(
    f"tests/conformance/test_conformance.py::test_conforms[memory-{flavour}-{check}]"
    for flavour in FLAVOURS
    for caught_by in (*(one.caught_by for one in BACKENDS), *(by for _, by in CLIENTS.values()))
    for check in caught_by
)
"""The checks that catch the broken ones, on the backend that is whole."""

SUITES = (
    Suite(
        "simulator",
        ["tests/sim/test_simulation.py::test_mutant_is_caught"],
        ["tests/sim/test_simulation.py::test_nothing_is_violated"],
        {
            one.name: Kind(_first(one.patch.__doc__), f"simulator: {', '.join(one.caught_by)}")
            for one in MUTANTS
        },
        {"FENCELOCK_SEEDS": "400"},
    ),
    Suite(
        "quorum",
        ["tests/sim/test_quorum.py::test_mutant_is_caught"],
        ["tests/sim/test_quorum.py::test_no_token_is_given_twice_or_out_of_order"],
        {
            one.name: Kind("Votes and tokens: " + one.name, "quorum model: unique tokens, token order")
            for one in quorum.MUTANTS
        },
        {"FENCELOCK_SEEDS": "10000"},
    ),
    Suite(
        "conformance",
        [
            "tests/conformance/test_conformance.py::test_a_broken_backend_is_caught",
            "tests/conformance/test_conformance.py::test_a_broken_client_is_caught",
        ],
        WHOLE,
        {
            **{
                one.__name__: Kind(_first(one.__doc__), f"conform: {', '.join(one.caught_by)}")
                for one in BACKENDS
            },
            **{
                name: Kind(_first(one.__doc__), f"conform: {', '.join(by)}")
                for name, (one, by) in CLIENTS.items()
            },
        },
    ),
)
"""Read from the same lists as the tests."""
