"""The fault harness itself, in its short form: real runs, and proof that it sees what is broken.

Each run must have struck, must have granted, and must have found nothing that is not declared; where the
specification says so, the unguarded resource must have lost updates. Locks that are broken on purpose must
be caught. `make chaos` is the long form.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from chaos.backends import BACKENDS
from chaos.faults import FAULTS
from chaos.report import write
from chaos.resources import Guarded, Plain
from chaos.run import Plan, forget, run
from chaos.subjects import SUBJECTS
from chaos.table import cell, summary
from chaos.timeline import picture
from chaos.verdict import Outcome
from rich.console import Console
from tools.servers import ServerError

from fencelock import StaleToken
from fencelock.testing import History

ROOT = Path(__file__).resolve().parents[2]
SECONDS = float(os.environ.get("FENCELOCK_SECONDS", "2"))
RUNS = [
    ("sqlite", "pause"),
    ("redis", "kill"),
    ("redis", "clock"),
    ("redis", "swallow"),
    ("postgresql", "cut"),
    ("mariadb", "reply"),
    ("zookeeper", "session"),
    ("zookeeper", "cut"),
    ("etcd", "session"),
]


def chaos(backend: str, fault: str, subject: str = "fencelock", seed: int = 5) -> Outcome:
    return run(Plan(backend, fault, SECONDS, seed, SUBJECTS[subject].factories, subject, injections=3))


def rules(outcome: Outcome) -> set[str]:
    return {violation.partition(":")[0] for violation in outcome.violations}


@pytest.mark.parametrize(("backend", "fault"), RUNS)
def test_fencelock(backend: str, fault: str, record_property: Any) -> None:
    outcome = chaos(backend, fault)
    words = cell(outcome).replace("\n", ", ")
    record_property("outcome", words)
    print(f"{backend} × {fault}: {words}")
    assert outcome.status == "passed", "\n".join(outcome.violations)
    assert outcome.injections > 0
    assert outcome.grants > 100
    assert outcome.recovery is not None
    if FAULTS[fault].teeth:
        assert outcome.lost_updates > 0
    if (backend, fault) == ("redis", "clock"):
        assert outcome.declaration == "clock: exclusion"
        assert 0 < outcome.most <= outcome.lanes
    assert outcome.picture.startswith("<svg")
    forget(outcome)


def test_no_lock_at_all_is_caught() -> None:
    outcome = chaos("sqlite", "pause", "nolock")
    assert outcome.status == "failed"
    assert {"exclusion", "unique-token", "guard"} <= rules(outcome)
    assert outcome.lost_updates > 0
    # What is needed to look into it is kept.
    folder = Path(outcome.folder)
    assert History.load(folder / "history").operations()
    assert json.loads((folder / "verdict.json").read_text())["seed"] == 5
    assert "<svg" in (folder / "picture.svg").read_text()
    forget(outcome)
    assert not folder.exists()


def test_believing_in_the_wall_clock_is_caught() -> None:
    outcome = chaos("sqlite", "clientclock", "wallclock")
    assert outcome.status == "failed"
    assert "exclusion" in rules(outcome) or "loss" in rules(outcome), outcome.violations
    forget(outcome)


def test_a_peer_is_struck_by_what_chooses_its_request() -> None:
    """kazoo asks in its own words, and the reply to its acquire is found all the same."""
    outcome = chaos("zookeeper", "reply", "kazoo")
    assert outcome.injections > 0
    assert outcome.grants > 0
    assert not rules(outcome) & {"teeth", "the run broke off", "unique-token", "token-order", "guard"}
    forget(outcome)


def test_every_cell_has_a_run_or_a_reason() -> None:
    for word, store in BACKENDS.items():
        assert set(store.spared) <= set(FAULTS), word
        assert all(store.spared.values()), word
        assert len(set(FAULTS) - set(store.spared)) >= 10, f"{word} goes through too few faults"


def make(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "chaos", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--backend", "nosuch"], "no backend is called 'nosuch'; there are: sqlite redis"),
        (["--fault", "pause nosuch"], "no fault is called 'nosuch'; there are: pause reply"),
        (["--subject", "nosuch"], "no subject is called 'nosuch'; there are: fencelock"),
        (["--minutes", "soon"], "MINUTES='soon' is no number"),
        (["--seed", "-1"], "SEED='-1' is no number"),
    ],
)
def test_bad_input_is_one_line(words: list[str], told: str) -> None:
    done = make(*words)
    assert done.returncode == 64
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert told in done.stderr


def test_what_cannot_be_run_here_is_not_called_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    from chaos import __main__ as door

    monkeypatch.setattr(door, "lacks", lambda needs: "namespaces: they need root" if needs else "")
    assert door.main(["--backend", "redis", "--fault", "cut"]) == 0
    outcome = door._one(Plan("redis", "cut", 1.0, 1), None, None)  # type: ignore[arg-type]
    assert (outcome.status, outcome.why) == ("not run", "namespaces: they need root")
    assert cell(outcome) == "not run"
    assert summary([outcome]).startswith("0 passed, 0 failed, 1 not run")


def test_a_server_that_died_leaves_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    from chaos import __main__ as door

    def die(plan: Plan, view: Any) -> Outcome:
        raise ServerError("redis-1 ended with status 1\n  starting\n  no room on the disk")

    monkeypatch.setattr(door, "run", die)
    heard = io.StringIO()
    outcome = door._one(Plan("redis", "kill", 1.0, 1), None, Console(file=heard))  # type: ignore[arg-type]
    told = "the run broke off: ServerError: redis-1 ended with status 1 | starting | no room on the disk"
    assert (outcome.status, outcome.violations) == ("failed", [told])
    assert told in heard.getvalue()


def test_a_report_is_one_file_with_nothing_from_outside(tmp_path: Path) -> None:
    history = History()
    attempt = history.acquire("c1.1", "job", at=1.0)
    attempt.granted(token=1, deadline=3.0, at=1.1)
    attempt.release(at=1.5)
    drawn = picture(history, [], "a <title>")
    outcomes = [
        Outcome("redis", "clock", "passed", seed=3, injections=7, grants=9, declared={"exclusion": 2},
                declaration="the server's: set <forward>", picture=drawn),
        Outcome("redis", "cut", "not run", "namespaces: they need root"),
        Outcome("sqlite", "pause", "failed", violations=["exclusion: <b>"]),
    ]  # fmt: skip
    page = write(tmp_path / "report", outcomes).read_text()
    assert "7 / 9 / 0 / 0" in page
    assert "2 declared: 22.22% of grants" in page
    assert "not run: namespaces: they need root" in page
    assert "exclusion: &lt;b&gt;" in page
    assert "a &lt;title&gt;" in page
    for outside in ("src=", "<script", "@import", "url(", "<link"):
        assert outside not in page
    assert [
        one["status"] for one in json.loads((tmp_path / "report" / "report.json").read_text())["outcomes"]
    ]


def test_the_guarded_resource_is_one_log_with_one_rule(tmp_path: Path) -> None:
    """Two processes' views of it agree on every entry, and an old token is refused on reading and writing."""
    one, other = Guarded(tmp_path / "log"), Guarded(tmp_path / "log")
    assert one.read(5) == 0
    assert other.write(5) == 1
    assert other.read(7) == 1
    with pytest.raises(StaleToken) as caught:
        one.write(5)
    assert (caught.value.token, caught.value.newest) == (5, 7)
    with pytest.raises(StaleToken):
        one.read(6)
    assert other.write(7) == 2
    assert one.write(7) == 3
    plain = Plain(tmp_path / "plain")
    plain.write(plain.read() + 1)
    assert plain.read() == 1
    for resource in (one, other, plain):
        resource.close()
