"""The doctor's figures, sentence and status."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from fencelock.backends.base import Finding
from fencelock.backends.checkup import quantiles
from fencelock.backends.memory import MemoryBackend
from fencelock.cli import main
from fencelock.cli.doctor import verdict
from fencelock.errors import BackendUnavailable
from fencelock.findings import SEVERITIES, Severity
from fencelock.guarantees import VALUES, Guarantees
from fencelock.promise import promise

DOCS = Path(__file__).resolve().parents[3] / "docs"
REST: dict[str, Any] = {
    "clock": "nothing",
    "failover": "nothing",
    "restart": "nothing",
    "wakeup": "push",
    "min_ttl": 1,
    "max_ttl": 60,
}
CHOICES = ("scope", "use_for", "fencing", "crash_release", "fairness")


def test_quantiles() -> None:
    figures = quantiles([0.003, 0.001, 0.002])
    assert figures == {"min": 0.001, "median": 0.002, "p95": 0.003, "p99": 0.003, "rounds": 3}
    assert quantiles([0.5]) == {"min": 0.5, "median": 0.5, "p95": 0.5, "p99": 0.5, "rounds": 1}


def test_sentence_for_whatever_a_backend_can_promise() -> None:
    sentences = set()
    for values in itertools.product(*(VALUES[choice] for choice in CHOICES)):
        chosen: dict[str, Any] = dict(zip(CHOICES, values, strict=True))
        sentence = promise(Guarantees(**REST, **chosen))
        assert sentence.startswith("With this set-up fencelock promises ") and sentence.endswith(".")
        assert ("double grant" in sentence) == (chosen["use_for"] == "efficiency")
        sentences.add(sentence)
    assert len(sentences) == len(list(itertools.product(*(VALUES[choice] for choice in CHOICES))))


@pytest.mark.parametrize(
    ("severities", "by_default", "on_warning"),
    [
        ((), 0, 0),
        (("ok", "notice"), 0, 0),
        (("ok", "warning"), 0, 1),
        (("ok", "critical", "warning"), 2, 2),
    ],
)
def test_status_by_severity(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    severities: Sequence[Severity],
    by_default: int,
    on_warning: int,
) -> None:
    async def findings(self: MemoryBackend) -> list[Finding]:
        return [Finding(severity, "subject\x1b", "detail", "advice", "a = 1") for severity in severities]

    monkeypatch.setattr(MemoryBackend, "doctor", findings)
    assert main(["doctor", "memory://"]) == by_default
    text = capsys.readouterr().out
    assert "\x1b" not in text and text.count("subject") == len(severities)
    assert text.strip().splitlines()[-1].startswith("With this set-up fencelock promises ")
    assert main(["doctor", "memory://", "--json", "--fail-on", "warning"]) == on_warning
    data = json.loads(capsys.readouterr().out)
    listed = [finding["severity"] for finding in data["findings"] if finding["subject"] != "latency"]
    assert listed == sorted(severities, key=SEVERITIES.index)
    assert data["worst"] == min(severities, key=SEVERITIES.index, default="ok")
    assert set(data["guarantees"]) == set(get_type_hints(Guarantees))
    assert set(data["latency_seconds"]) == {"round_trip", "acquire_release", "renew"}


def test_the_docs_state_the_status_once_and_as_it_is() -> None:
    page = (DOCS / "howto" / "check-a-set-up.md").read_text()
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (\d) \| (\d) \|$", page, re.MULTILINE)
    told = {
        severity: (int(by_default), int(on_warning))
        for severities, by_default, on_warning in rows
        for severity in re.findall(r"\w+", severities)
    }
    findings = {severity: [Finding(severity, "", "", "", "")] for severity in SEVERITIES}
    assert told == {
        severity: (verdict(found, "critical"), verdict(found, "warning"))
        for severity, found in findings.items()
    }
    elsewhere = re.compile(r"fencelock doctor[^\n|]*\|\| *test|doctor[^\n]*(?:exit )?status (?:is )?\d")
    pages = [path for path in DOCS.rglob("*.md") if path.name not in {"check-a-set-up.md", "cli.md"}]
    assert [path.name for path in pages if elsewhere.search(path.read_text())] == []


def test_where_nothing_can_be_acquired_nothing_is_promised(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Finding("critical", "role", "a replica", "ask the primary")
    may_pass = False

    async def findings(self: MemoryBackend) -> list[Finding]:
        return [found]

    async def refuse(self: MemoryBackend, *args: Any, **options: Any) -> None:
        raise BackendUnavailable(backend="memory", detail="read only", transient=may_pass)

    monkeypatch.setattr(MemoryBackend, "doctor", findings)
    monkeypatch.setattr(MemoryBackend, "acquire", refuse)
    assert main(["doctor", "memory://", "--json"]) == 2
    data = json.loads(capsys.readouterr().out)
    assert data["promise"] == (
        "With this set-up fencelock promises nothing: no lock can be acquired (role: a replica)."
    )
    assert set(data["latency_seconds"]) == {"round_trip"}
    found = Finding("warning", "role", "odd")
    assert main(["doctor", "memory://", "--json"]) == 2
    first, *_ = json.loads(capsys.readouterr().out)["findings"]
    assert (first["subject"], first["detail"]) == ("locks", "none can be taken: read only")
    may_pass = True
    assert main(["doctor", "memory://"]) == 69
    assert "read only" in capsys.readouterr().err


def test_a_wrong_severity_to_fail_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "memory://", "--fail-on", "notice"]) == 64
    assert "warning" in capsys.readouterr().err
