"""The doctor's figures, sentence and status."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any, get_args, get_type_hints

import pytest

from holdfast.backends.base import Finding
from holdfast.backends.memory import MemoryBackend
from holdfast.cli import main
from holdfast.cli.doctor import quantiles
from holdfast.cli.promise import promise
from holdfast.guarantees import Guarantees

OPTIONS = {name: get_args(hint) for name, hint in get_type_hints(Guarantees).items() if get_args(hint)}
CHOICES = ("scope", "use_for", "fencing", "crash_release", "fairness")


def test_quantiles() -> None:
    figures = quantiles([0.003, 0.001, 0.002])
    assert figures == {"min": 0.001, "median": 0.002, "p99": 0.003, "rounds": 3}
    assert quantiles([0.5]) == {"min": 0.5, "median": 0.5, "p99": 0.5, "rounds": 1}


def test_sentence_for_whatever_a_backend_can_promise() -> None:
    sentences = set()
    for values in itertools.product(*(OPTIONS[choice] for choice in CHOICES)):
        chosen: dict[str, Any] = dict(zip(CHOICES, values, strict=True))
        sentence = promise(Guarantees(clock="", failover="", wakeup="push", min_ttl=1, **chosen))
        assert sentence.startswith("With this set-up holdfast promises ") and sentence.endswith(".")
        assert ("double grant" in sentence) == (chosen["use_for"] == "efficiency")
        sentences.add(sentence)
    assert len(sentences) == len(list(itertools.product(*(OPTIONS[choice] for choice in CHOICES))))


@pytest.mark.parametrize(
    ("severities", "expected"),
    [((), 0), (("ok", "note"), 0), (("ok", "warning"), 1), (("danger", "warning", "ok"), 2)],
)
def test_status_by_severity(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    severities: Sequence[str],
    expected: int,
) -> None:
    async def findings(self: MemoryBackend) -> list[Finding]:
        return [Finding(severity, "subject\x1b", "detail", "advice") for severity in severities]

    monkeypatch.setattr(MemoryBackend, "doctor", findings)
    assert main(["doctor", "memory://"]) == expected
    text = capsys.readouterr().out
    assert "\x1b" not in text and text.count("subject") == len(severities)
    assert main(["doctor", "memory://", "--json"]) == expected
    data = json.loads(capsys.readouterr().out)
    assert [finding["severity"] for finding in data["findings"]] == list(severities)
    assert set(data["guarantees"]) == set(get_type_hints(Guarantees))
