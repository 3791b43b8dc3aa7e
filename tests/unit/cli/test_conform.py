"""How the results of conformance checks are shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from fencelock.cli import main


@dataclass
class Check:
    name: str
    promise: str = "tokens"
    doc: str = "Tokens rise."


@dataclass
class Result:
    check: Check
    flavour: str
    outcome: str
    seconds: float = 0.5
    detail: str = ""
    traceback: str = ""
    at_first: str = ""


@dataclass
class Summary:
    results: Sequence[Result]

    def count(self, outcome: str) -> int:
        return sum(result.outcome == outcome for result in self.results)

    passed = property(lambda self: self.count("passed"))
    failed = property(lambda self: self.count("failed"))
    not_applicable = property(lambda self: self.count("not applicable"))
    repeated = property(lambda self: sum(bool(result.at_first) for result in self.results))


GOOD = Result(Check("a"), "blocking", "passed")
WHERE = "Traceback:\n  backend.py\n"
BAD = Result(Check("b"), "asyncio", "failed", detail="expected 2\nfound \x1b[31m1", traceback=WHERE)
AGAIN = Result(Check("d"), "asyncio", "passed", at_first="no answer in time")
OUT = Result(Check("c"), "asyncio", "not applicable", detail="no failover here")


@pytest.fixture
def suite(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[dict[str, Any]]]:
    """Put results in the place of the real suite; returns how it was called."""
    calls: list[dict[str, Any]] = []

    def install(*results: Result) -> list[dict[str, Any]]:
        def run(url: str, *, on_result: Callable[[Result], None], **options: Any) -> Summary:
            calls.append({"url": url, **options})
            for result in results:
                on_result(result)
            return Summary(results)

        module: Any = type(sys)("fencelock.testing.conformance")
        module.run = run
        module.checks = lambda: [result.check for result in results]
        package: Any = type(sys)("fencelock.testing")
        package.conformance = module
        monkeypatch.setitem(sys.modules, "fencelock.testing", package)
        monkeypatch.setitem(sys.modules, "fencelock.testing.conformance", module)
        return calls

    return install


def test_all_is_well(suite: Callable[..., list[dict[str, Any]]], capsys: pytest.CaptureFixture[str]) -> None:
    calls = suite(GOOD)
    assert main(["conform", "memory://"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 0 failed"
    assert calls == [{"url": "memory://", "flavours": ("blocking", "asyncio"), "only": None}]


def test_failures_and_reasons(
    suite: Callable[..., list[dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    calls = suite(GOOD, BAD, OUT)
    assert main(["conform", "memory://", "--only", "a", "--only", "b", "--flavour", "asyncio"]) == 1
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "    expected 2\n    found \\x1b[31m1\n    Traceback:\n      backend.py\n" in out
    assert "    no failover here\n" in out
    assert out.splitlines()[-1] == "1 passed, 1 failed"
    assert calls[0]["flavours"] == ("asyncio",) and calls[0]["only"] == ["a", "b"]


def test_a_repetition_is_told(
    suite: Callable[..., list[dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    suite(GOOD, AGAIN)
    assert main(["conform", "memory://"]) == 0
    out = capsys.readouterr().out
    assert "  d (asyncio, about tokens)\n    Tokens rise.\n    no answer in time\n" in out
    assert out.splitlines()[-2:] == [
        "2 checks, 0 of them not applicable, 1 repeated",
        "2 passed, 0 failed",
    ]


def test_json(suite: Callable[..., list[dict[str, Any]]], capsys: pytest.CaptureFixture[str]) -> None:
    suite(GOOD, BAD, OUT, AGAIN)
    assert main(["conform", "--url", "memory://", "--json"]) == 1
    out, err = capsys.readouterr()
    data = json.loads(out)
    assert (data["passed"], data["failed"], data["not_applicable"], data["repeated"]) == (2, 1, 1, 1)
    assert data["results"][1]["check"] == "b" and data["results"][1]["detail"] == BAD.detail
    assert data["results"][1]["traceback"] == BAD.traceback
    assert data["results"][3]["at_first"] == AGAIN.at_first
    assert err == "2 passed, 1 failed\n"
