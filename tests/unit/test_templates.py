"""Names that are made of values: none can become another."""

from __future__ import annotations

import datetime
import enum
import itertools
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelock import ConfigurationError
from fencelock.contrib.calls import Call, current_lease
from fencelock.errors import FencelockError
from fencelock.templates import LONGEST, Template, quoted

ODD = [
    "",
    ":",
    "a",
    "a:b",
    "%3A",
    "%253A",
    "~",
    "~a",
    "{x}",
    "a/b",
    "é",
    "e\u0301",
    "\0",
    "\ud800",
    " ",
    "x" * 600,
]


def test_values_that_look_like_names_do_not_meet() -> None:
    template = Template("a:{x}:{y}/z")
    names = {template.filled({"x": x, "y": y}) for x, y in itertools.product(ODD, ODD)}
    assert len(names) == len(ODD) ** 2
    assert all(len(name.encode()) <= 512 for name in names)


@given(st.lists(st.tuples(st.text(), st.text()), min_size=2, max_size=2, unique=True))
def test_no_two_pairs_of_texts_meet(pairs: list[tuple[str, str]]) -> None:
    template = Template("{x}-:-{y}")
    one, other = (template.filled({"x": x, "y": y}) for x, y in pairs)
    assert one != other


def test_a_long_value_is_hashed_and_cannot_be_written_by_hand() -> None:
    long = quoted("x" * (LONGEST + 1))
    assert long.startswith("~") and len(long) == 65
    assert quoted(long) != long


class Colour(enum.Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (42, "42"),
        (True, "True"),
        (None, "None"),
        (Colour.RED, "red"),
        (uuid.UUID(int=7), str(uuid.UUID(int=7))),
        (datetime.date(2026, 2, 3), "2026-02-03"),
        (b"\xff:", "%FF%3A"),
    ],
)
def test_what_can_be_part_of_a_name(value: object, text: str) -> None:
    assert quoted(value) == text


@pytest.mark.parametrize("value", [object(), [1], {"a": 1}, (1, 2), lambda: 1])
def test_what_cannot(value: object) -> None:
    with pytest.raises(ConfigurationError, match=r"^pk=.* cannot be part of a name: give a string"):
        Template("report:{pk}").filled({"pk": value})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{x}{y}", "run into each other"),
        ("{x}ab{y}", "run into each other"),
        ("{x}.{y}", "run into each other"),
        ("a{x.y}", "plain word"),
        ("a{x[0]}", "plain word"),
        ("a{x!r}", "plain word"),
        ("a{x:>8}", "plain word"),
        ("a{}", "plain word"),
        ("a{", "no template"),
        ("", "empty"),
        (7, "not a string"),
    ],
)
def test_templates_that_are_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        Template(text)


def test_braces_are_written_twice() -> None:
    template = Template("{{a}}:{x}")
    assert template.filled({"x": "{b}"}) == "{a}:%7Bb%7D"
    assert template.fields == ["x"]
    assert Template("{{a{x}}}}}{y}").filled({"x": 1, "y": 2}) == "{a1}}2"


def test_a_value_that_is_missing_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"needs a value for \{x\}"):
        Template("a:{x}").filled({"y": 1})


# Calls ----------------------------------------------------------------------------------------


def build(pk: int, kind: str = "pdf", *rest: int, lease: object, **more: int) -> None: ...


def test_a_call_is_named_by_its_arguments_however_they_are_given() -> None:
    call = Call(build, Template("report:{pk}:{kind}"))
    assert call.name((7,), {}) == call.name((), {"pk": 7, "kind": "pdf"}) == "report:7:pdf"
    assert Call(build, Template("a:{other}")).name((7,), {"other": 1}) == "a:1"
    with pytest.raises(TypeError, match="pk"):
        call.name((), {})


def test_a_field_that_no_argument_has_is_refused_at_once() -> None:
    def plain(pk: int) -> None: ...

    with pytest.raises(ConfigurationError, match=r"field {id}, and \S*plain has no such argument"):
        Call(plain, Template("report:{id}"))


def test_there_is_no_lease_outside() -> None:
    with pytest.raises(FencelockError, match="there is no lease here"):
        current_lease()
