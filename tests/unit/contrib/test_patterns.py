"""Labels: a bounded number of them, whatever names there are."""

from __future__ import annotations

import logging

import pytest

from fencelock import ConfigurationError
from fencelock.contrib import patterns
from fencelock.contrib.patterns import Labels, default_pattern


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("invoice:42", "invoice:*"),
        ("invoices", "invoices"),
        ("job-0B54A7D2-7d4e-4f0f-9c2e-93f4b2a51c11#send_email", "job-*#send_email"),
        ("report/2024-01-31/daily", "report/*-*-*/daily"),
        ("cache:deadbeef01", "cache:*"),
        ("cache:deadbeefdeadbeef", "cache:*"),
        ("decade:facade", "decade:facade"),
        ("order:01ARZ3NDEKTSV4RRFFQ69G5FAV", "order:*"),
        ("a-very-long-name-of-words-and-nothing-else", "a-very-long-name-of-words-and-nothing-else"),
        ("worker7", "worker*"),
        ("42", "*"),
        ("größe:٣", "größe:٣"),
    ],
)
def test_what_looks_like_a_value_becomes_a_star(name: str, pattern: str) -> None:
    assert default_pattern(name) == pattern


def test_there_are_at_most_so_many_labels() -> None:
    labels = Labels(lambda name: name)
    assert [labels(f"n{number}") for number in range(100)] == [f"n{number}" for number in range(100)]
    assert {labels(f"n{number}") for number in range(100, 1000)} == {"other"}
    assert labels("n0") == "n0"


def test_many_names_are_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "REMEMBERED", 10)
    labels = Labels()
    assert {labels(f"job:{number}") for number in range(1000)} == {"job:*"}
    assert len(labels._known) <= 10


def test_templates_are_labels_and_the_rest_is_other() -> None:
    labels = Labels(["invoice:{id}", "report:{day}:{kind}", "sweep", "a.b:{x}"])
    names = ["invoice:42", "report:1:a", "sweep", "sweeper", "invoice:", "azb:1", "a.b:1\n2"]
    expected = ["invoice:{id}", "report:{day}:{kind}", "sweep", "other", "other", "other", "a.b:{x}"]
    assert [labels(name) for name in names] == expected


def test_a_function_that_fails_is_said_once_and_counts_as_other(caplog: pytest.LogCaptureFixture) -> None:
    labels = Labels(lambda name: name.split(":")[1])
    assert [labels("a"), labels("b"), labels("c:d")] == ["other", "other", "d"]
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


@pytest.mark.parametrize("wrong", ["invoice:{id}", 3])
def test_what_is_no_pattern_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigurationError, match="pattern="):
        Labels(wrong)  # type: ignore[arg-type]


def test_a_template_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="pattern="):
        Labels(["invoice:{"])
