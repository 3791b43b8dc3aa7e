"""Each promise broken in turn: `fencelock conform` ends with 1, whatever the machine is like meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from .scheme import package
from .troubles import LOAD, SPIN, STALL, beside

BREAKS = {
    "two holders": ("GrantsToEverybody", "lock_has_one_holder"),
    "a lost update": ("GrantsToEverybody", "no_increment_is_lost"),
    "a token that falls": ("StartsTokensAgain", "tokens_rise_across_releases"),
    "a token that repeats": ("SharesTokens", "tokens_of_readers_are_unique_and_ordered"),
    "a revived lease": ("RevivesOnRenewal", "the_backend_does_not_revive"),
    "residue": ("LeavesWaitersBehind", "failed_attempts_leave_nothing"),
    "a body without the lock": ("GrantsWhenTheWaitIsOver", "the_body_does_not_run_without_the_lock"),
    "a wrong order": ("ServesTheLastFirst", "waiters_of_one_client_are_served_in_order"),
}


def conform(folder: Path, broken: str, check: str, trouble: str) -> tuple[int, str]:
    """Return what `fencelock conform` says of one check on a broken backend, and its status."""
    url = f"broken://{broken}{'?silent' if trouble == 'silent' else ''}"
    with ExitStack() as stack:
        path = stack.enter_context(package(folder))
        if trouble == "loaded":
            stack.enter_context(beside(SPIN, LOAD))
        command = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-m", "fencelock", "conform", url, "--only", check],
                env={**os.environ, "PYTHONPATH": path},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
        stack.callback(command.kill)
        if trouble == "stalled":
            stack.enter_context(beside(STALL, 1, str(command.pid)))
        said, _ = command.communicate(timeout=240)
    return command.returncode, said


@pytest.mark.parametrize("trouble", ["stalled", "silent", pytest.param("loaded", marks=pytest.mark.timing)])
@pytest.mark.parametrize(("broken", "check"), BREAKS.values(), ids=BREAKS)
def test_a_broken_promise_ends_in_status_1(broken: str, check: str, trouble: str, tmp_path: Path) -> None:
    """At the first time. The load would be in the way of other tests, so the tests with it run alone."""
    status, said = conform(tmp_path, broken, check, trouble)
    assert status == 1, said
    assert (
        said.endswith("\n0 passed, 2 failed\n") and "2 checks, 0 of them not applicable, 0 repeated" in said
    )


@pytest.mark.parametrize("check", sorted({check for _, check in BREAKS.values()}))
def test_a_backend_that_is_not_broken_ends_in_status_0(check: str, tmp_path: Path) -> None:
    status, said = conform(tmp_path, "Broken", check, "none")
    assert (status, said.endswith("\n2 passed, 0 failed\n")) == (0, True), said
