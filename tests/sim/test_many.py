"""Many schedules at once: all are counted, wherever they ran, and what fails is told with its seed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fencelock.testing.simulation import quorum
from fencelock.testing.simulation.__main__ import main
from fencelock.testing.simulation.many import MOST_FAILURES, Job, sweep
from mutants import MUTANTS


@pytest.mark.parametrize("job", [Job("lease"), Job("quorum")], ids=lambda job: job.machine)
def test_the_counts_do_not_depend_on_who_ran_them(job: Job) -> None:
    one, two = sweep(job, range(40), 1), sweep(job, range(40), 2)
    assert one == two
    assert one.schedules == (80 if job.machine == "lease" else 40)
    assert one.grants > one.schedules
    assert len(one.faults) >= 5


def test_a_failure_is_told_with_its_seed() -> None:
    broken = next(mutant for mutant in MUTANTS if mutant.name == "counter_is_deleted_with_the_lock")
    with broken.patch():
        tally = sweep(Job("lease", ("asyncio",)), range(30))
    assert 0 < len(tally.failures) <= MOST_FAILURES
    assert tally.failed >= len(tally.failures)
    assert "--seed " in tally.failures[0]


def test_a_failure_of_the_quorum_is_told_with_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum, "FLAWLESS", quorum.MUTANTS[0])
    monkeypatch.setattr(quorum.simulate, "__defaults__", (quorum.MUTANTS[0],))
    tally = sweep(Job("quorum"), range(100))
    assert tally.failed
    assert tally.failures[0].startswith("simulate(")


def test_the_summary_is_written_for_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "results" / "quorum.json"
    assert main(["--machine", "quorum", "--seeds", "0:100", "--json", str(file)]) == 0
    summary = json.loads(file.read_text())
    assert (summary["machine"], summary["schedules"], summary["violations"]) == ("quorum", 100, 0)
    assert {"lost", "died", "expired", "cut", "wiped"} == set(summary["faults"])
    assert summary["commit"]
    assert capsys.readouterr().out.splitlines()[-1] == "100 passed, 0 failed"
