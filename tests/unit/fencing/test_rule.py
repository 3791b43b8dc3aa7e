"""The rule, and what is refused before anything is changed."""

from __future__ import annotations

from typing import Any

import pytest

from fencelock import ConfigurationError, StaleToken
from fencelock.fencing.rule import LARGEST, check_resource, check_token, judge, padded, parse_token

BAD_TOKENS = [None, True, "34", 34.0, b"34", 0, -1, LARGEST + 1, 10**5000, [34]]


@pytest.mark.parametrize("token", [1, 34, 2**53 + 1, LARGEST])
def test_a_token(token: int) -> None:
    assert check_token(token) == token


@pytest.mark.parametrize(
    "token", BAD_TOKENS, ids=lambda token: str(token)[:9] if token != 10**5000 else "huge"
)
def test_no_token(token: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^token=.*(whole number|out of range)") as raised:
        check_token(token)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 150


@pytest.mark.parametrize("resource", ["", "a\0b", 7, "x" * 513, "\ud800"])
def test_no_resource(resource: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^resource="):
        check_resource(resource)


def test_a_lower_token_is_stale_and_an_equal_one_is_not() -> None:
    judge("r", 34, 0)
    judge("r", 34, 33)
    judge("r", 34, 34)
    with pytest.raises(StaleToken) as raised:
        judge("r", 33, 34)
    assert (raised.value.resource, raised.value.token, raised.value.newest) == ("r", 33, 34)


@pytest.mark.parametrize("text", ["1", "34", str(LARGEST)])
def test_a_header(text: str) -> None:
    assert parse_token(text) == int(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "-1",
        "+1",
        "034",
        "1.0",
        "1e3",
        "0x10",
        "1_000",
        "٣",
        "34, 35",
        " 34",
        str(LARGEST + 1),
        "9" * 5000,
    ],
)
def test_no_header(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^token="):
        parse_token(text)


def test_texts_sort_as_numbers_do() -> None:
    numbers = [0, 1, 9, 10, 99, 100, 2**53, LARGEST, LARGEST + 1]
    assert sorted(map(padded, numbers)) == [padded(number) for number in numbers]
    assert {len(padded(number)) for number in numbers} == {19}
