"""Text for people: nothing raw, nothing ambiguous."""

from __future__ import annotations

import sys

import pytest

from fencelock.cli.text import complain, plain_table, shown, shown_metadata, span, to_json, width


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\x9b31m", r"\x9b31m"),
        ("a\nb\tc\r", r"a\nb\tc\r"),
        ("\x7f", r"\x7f"),
        ("abc\u202edef", r"abc\u202edef"),
        ("a\u2028b", r"a\u2028b"),
        ("lone \udcff", r"lone \udcff"),
        ("back\\slash", "back\\\\slash"),
        ("größe 鎖 🔒", "größe 鎖 🔒"),
    ],
)
def test_shown(text: str, expected: str) -> None:
    assert shown(text) == expected


def test_no_two_texts_look_alike() -> None:
    texts = ["a\x1b", "a\\x1b", "a\\\\x1b", "a\n", "a\\n", "a\u202e", "a\\u202e"]
    assert len({shown(text) for text in texts}) == len(texts)


@pytest.mark.parametrize(
    "metadata",
    [{"\x1b": "\x1b[0m"}, "\x1b[2J", ["\u202e", "\x9b"], {"deep": [{"x": "\u2066"}]}, "lone \udcff"],
)
def test_metadata_is_harmless(metadata: object) -> None:
    assert shown_metadata(metadata).isprintable()


def test_metadata_is_short() -> None:
    assert shown_metadata(None) == ""
    assert shown_metadata({"ticket": 17}) == '{"ticket": 17}'
    assert len(shown_metadata(["x" * 500])) == 80


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0ms"),
        (0.9994, "999ms"),
        (0.9999, "1.0s"),
        (59.94, "59.9s"),
        (59.99, "1m00s"),
        (3599.7, "1h00m"),
        (86_399.9, "1d00h"),
    ],
)
def test_span(seconds: float, expected: str) -> None:
    assert span(seconds) == expected


def test_columns_are_aligned_by_what_is_seen() -> None:
    lines = plain_table(("NAME", "X"), [("鎖", "1"), ("lock", "2"), ("e\u0301", "3")]).splitlines()
    assert {width(line) for line in lines} == {7}


def test_complain_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    complain("first\nsecond \x1b[31m")
    assert capsys.readouterr().err == "fencelock: first second \\x1b[31m\n"


def test_complain_survives_a_closed_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/null", "w") as closed:
        pass
    monkeypatch.setattr(sys, "stderr", closed)
    complain("nobody hears this")


def test_json_is_ascii() -> None:
    assert to_json({"name": "\x1b\u202e"}, indent=None).isascii()
