"""Names, limits and metadata: what is taken as it is, and what is refused in one line."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelock import ConfigurationError
from fencelock.names import (
    MAX_METADATA_BYTES,
    MAX_NAME_BYTES,
    check_limit,
    check_name,
    check_namespace,
    encode_metadata,
)


class TwoLines:
    """As arrays and tables show themselves."""

    def __repr__(self) -> str:
        return "[[1, 2],\n [3, 4]]"


def refused(call: object, value: object, *words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        call(value)  # type: ignore[operator]
    assert isinstance(caught.value, ValueError)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    "name",
    [
        "a",
        " ",
        "a/b",
        "a:b",
        "{a}b",
        "A",
        "a ",
        "\n",
        "%2F",
        "\u00e9",
        "e\u0301",
        "😀" * 128,
        "x" * 512,
        "..",
        "'\"",
    ],
)
def test_any_other_string_is_a_name_and_stays_as_it_is(name: str) -> None:
    assert check_name(name) is name


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", ["name=''", "empty", "at least one character"]),
        ("a\0b", [r"'a\x00b'", "NUL", "leave it out"]),
        ("x" * 513, ["513 bytes", "512", "hash"]),
        ("é" * 257, ["514 bytes", "512"]),
        ("😀" * 129, ["516 bytes"]),
        ("a\ud800", [r"\ud800", "surrogate"]),
        (None, ["None", "string"]),
        (5, ["5", "string"]),
        (b"a", ["b'a'", "string"]),
        (TwoLines(), ["string"]),
    ],
)
def test_a_bad_name_is_refused_with_the_value_and_the_fix(name: object, words: list[str]) -> None:
    refused(check_name, name, *words)


@given(st.text())
def test_a_name_is_refused_exactly_when_the_contract_says(name: str) -> None:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        size = 10**6
    good = 0 < size <= MAX_NAME_BYTES and "\0" not in name
    try:
        check_name(name)
    except ConfigurationError:
        assert not good
    else:
        assert good


def test_a_namespace_may_be_empty_but_is_otherwise_a_name() -> None:
    assert check_namespace("") == ""
    assert check_namespace("app") == "app"
    refused(check_namespace, "a\0", "namespace", "NUL")
    refused(check_namespace, 5, "namespace", "5")


@pytest.mark.parametrize("limit", [1, 2, 10_000, 2**31 - 1])
def test_a_limit_is_a_whole_number_from_one_on(limit: int) -> None:
    assert check_limit(limit) == limit


@pytest.mark.parametrize("limit", [0, -1, 1.5, 1.0, True, False, "3", None, 2**31, float("nan")])
def test_a_bad_limit_is_refused(limit: object) -> None:
    refused(check_limit, limit, f"limit={limit!r}", "whole number from 1")


@pytest.mark.parametrize("metadata", [{"a": [1, None, True]}, "text", 5, 1.5, [], {}, False, 0, "", "é\0\n"])
def test_metadata_is_anything_that_json_can_carry(metadata: object) -> None:
    text = encode_metadata(metadata)
    assert text is not None
    assert json.loads(text) == metadata


def test_no_metadata_is_none() -> None:
    assert encode_metadata(None) is None


def circular() -> list[object]:
    found: list[object] = []
    found.append(found)
    return found


def deep() -> list[object]:
    found: list[object] = []
    for _ in range(100_000):
        found = [found]
    return found


@pytest.mark.parametrize(
    "metadata",
    [
        object(),
        {1, 2},
        b"bytes",
        float("nan"),
        float("inf"),
        {"a": float("-inf")},
        {("a", "b"): 1},
        circular(),
        TwoLines(),
        ["x" * 10_000, object()],
    ],
    ids=lambda value: type(value).__name__,
)
def test_metadata_that_is_not_json_is_refused(metadata: object) -> None:
    refused(encode_metadata, metadata, "metadata=", "JSON")


def test_metadata_that_is_nested_too_deeply_is_refused() -> None:
    refused(encode_metadata, deep(), "metadata", "JSON")


def test_metadata_up_to_the_limit_is_taken_and_beyond_it_refused() -> None:
    fits = "x" * (MAX_METADATA_BYTES - 2)
    assert encode_metadata(fits) is not None
    refused(encode_metadata, fits + "x", "4097 bytes", "4096", "elsewhere")
