"""docs/explanation/safety.md names tests that exist, for every promise and every rule."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from fencelock.testing import checks
from fencelock.testing.conformance import NUMBERED

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "explanation" / "safety.md").read_text(encoding="utf-8")
RULES = 7
SECTIONS = dict(re.findall(r"^### ((?:Rule|Promise) \d+): .*\n((?:(?!^##).*\n)*)", PAGE, flags=re.MULTILINE))
TESTS = sorted(set(re.findall(r"`(tests/[^`\s]+)`", PAGE)))
CHECKS = re.compile(r"\*conform\* `(\w+)`")


def test_every_rule_and_every_promise_has_a_section() -> None:
    rules = [f"Rule {number}" for number in range(1, RULES + 1)]
    assert list(SECTIONS) == [*rules, *(f"Promise {number}" for number in sorted(NUMBERED.values()))]


@pytest.mark.parametrize("section", SECTIONS)
def test_each_names_what_would_fail(section: str) -> None:
    _, _, named = SECTIONS[section].partition("*Would fail:*")
    assert CHECKS.findall(named) or re.findall(r"`tests/", named), "no test is named"


@pytest.mark.parametrize("named", TESTS)
def test_a_test_that_is_named_exists(named: str) -> None:
    path, _, test = named.partition("::")
    functions = [
        node.name
        for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    assert functions
    assert not test or test in functions


def test_checks_that_are_named_exist() -> None:
    named = set(CHECKS.findall(PAGE))
    assert len(named) > 30
    assert named <= {check.name for check in checks()}
