"""What the docs say of optimistic updates and locks is what was measured, and says it rightly."""

from __future__ import annotations

import json
import re
from typing import Any
from xml.etree import ElementTree

import pytest
from bench import crossover
from bench.crossover import KEPT, PAGE, PICTURE, crossing, page_with, picture, sentences

WRITERS = [1, 2, 4]


@pytest.fixture
def measured() -> Any:
    return json.loads(KEPT.read_text(encoding="utf-8"))


def test_the_page_and_the_picture_are_those_of_the_figures(measured: Any) -> None:
    assert crossover.main(["--check"]) == 0
    assert PICTURE.read_text(encoding="utf-8") == picture(measured)
    assert sentences(measured) in PAGE.read_text(encoding="utf-8")
    rates = measured["ways"]["optimistic"]["rates"]
    rates[0] = [5000.0 for _ in rates[0]]
    assert PICTURE.read_text(encoding="utf-8") != picture(measured)
    assert sentences(measured) not in PAGE.read_text(encoding="utf-8")


def test_the_picture_is_small_and_has_both_sorts_of_page(measured: Any) -> None:
    text = picture(measured)
    ElementTree.fromstring(text)
    assert len(text) < 10_000
    assert "prefers-color-scheme:dark" in text
    heights = [float(y) for y in re.findall(r'cy="([\d.]+)"', text)]
    assert min(heights) > 0 and max(heights) <= crossover.BOTTOM


def rounds(*values: float) -> list[list[float]]:
    """Four rounds that differ as much in what else the machine had to do."""
    return [
        [value * busy * each for busy, each in zip((1, 3, 2, 5), (0.9, 1, 1, 1.1), strict=True)]
        for value in values
    ]


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        ((20, 20, 20), "is faster with 1 to 4: it is ahead all the way"),
        ((5, 20, 20), "is slower with 1, faster with 2 to 4: they cross between 1 and 2 writers"),
        ((5, 10, 20), "is slower with 1, level with 2, faster with 4: they cross between 2 and 4 writers"),
        (
            (10, 20, 20),
            "is level with 1, faster with 2 to 4: it is never behind, and ahead for good from 2 writers on",
        ),
        ((10, 5, 5), "is level with 1, slower with 2 to 4: it is not ahead for good up to 4 writers"),
        ((10, 10, 10), "is level with 1 to 4: it is not ahead for good up to 4 writers"),
        ((20, 20, 5), "is faster with 1 to 2, slower with 4: it is not ahead for good up to 4 writers"),
    ],
)
def test_where_they_cross(theirs: tuple[float, ...], said: str) -> None:
    ours = [[10.0 * busy for busy in (1, 3, 2, 5)]] * 3
    assert crossing(WRITERS, ours, rounds(*theirs)) == said


def test_a_page_without_its_marks() -> None:
    with pytest.raises(ValueError, match="has no <!-- measured"):
        page_with("nothing", "x")
