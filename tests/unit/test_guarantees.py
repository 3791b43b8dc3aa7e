"""The guarantees of every backend are enumerations with their values, and the pages have the same."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tools.apidocs import promises

from fencelock import Guarantees
from fencelock.findings import (
    FORGETFUL,
    FORGETS_AT_RESTART,
    LASTING,
    NO_FAILOVER,
    WEAKEST_FIRST,
    Finding,
    refined,
)
from fencelock.guarantees import VALUES

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {"postgresql+advisory": "postgresql-advisory", "mysql+getlock": "mysql-getlock"}
WITHOUT_A_TABLE = {"memory", "sqlite", "redlock", "redis+sentinel", "redis+cluster"}


def test_what_decides_a_verdict_is_an_enumeration() -> None:
    others = {"min_ttl", "max_ttl", "caveats"}
    assert set(VALUES) == set(Guarantees.__dataclass_fields__) - others
    assert set(WEAKEST_FIRST) <= set(VALUES)
    for field, values in WEAKEST_FIRST.items():
        assert set(values) == set(VALUES[field]), field


@pytest.mark.parametrize("scheme", promises())
def test_each_backend_declares_one_of_the_values(scheme: str) -> None:
    promised = promises()[scheme]
    for field, values in VALUES.items():
        assert getattr(promised, field) in values, field


@pytest.mark.parametrize("scheme", sorted(set(promises()) - WITHOUT_A_TABLE))
def test_the_page_of_a_backend_has_its_values_and_its_caveats(scheme: str) -> None:
    text = (DOCS / "backends" / f"{PAGES.get(scheme, scheme)}.md").read_text()
    flat = re.sub(r"\n +", " ", text)
    promised = promises()[scheme].as_dict()
    for caveat in promised.pop("caveats"):
        assert f"- {caveat}\n" in flat
    for field, value in promised.items():
        assert f"| `{field}` | {f'{value:g} s' if isinstance(value, float) else value} |" in text


def test_the_reference_has_every_field_with_its_values() -> None:
    text = (DOCS / "reference" / "guarantees.md").read_text().partition("## The fields")[2].partition("##")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", text, flags=re.MULTILINE))
    assert set(rows) == set(Guarantees.__dataclass_fields__)
    for field, values in VALUES.items():
        assert set(re.findall(r"`([\w-]+)`", rows[field])) == set(values), field


@pytest.mark.parametrize("refines", [FORGETFUL, FORGETS_AT_RESTART, LASTING, NO_FAILOVER])
def test_a_finding_refines_to_one_of_the_values(refines: tuple[tuple[str, str], ...]) -> None:
    for field, value in refines:
        assert value in VALUES[field]


@pytest.mark.parametrize("field", WEAKEST_FIRST)
def test_the_weakest_value_counts(field: str) -> None:
    base = promises()["memory"]
    weakest, *_, strongest = WEAKEST_FIRST[field]
    for order in ((weakest, strongest), (strongest, weakest)):
        findings = [Finding("ok", "", "", refines=((field, value),)) for value in order]
        changed: dict[str, Any] = {field: strongest}
        assert getattr(refined(replace(base, **changed), findings), field) == weakest
