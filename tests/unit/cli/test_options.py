"""What commands take."""

from __future__ import annotations

import click
import pytest

from fencelock.cli.options import WrappedCommand, one_url, open_client, parse_duration, parse_metadata
from fencelock.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("1", 1),
        ("1.5", 1.5),
        (".5", 0.5),
        ("500ms", 0.5),
        ("30s", 30),
        ("5m", 300),
        ("1h", 3600),
        (" 2 s ", 2),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-1", "1d", "nan", "inf", "1e3", "5 minutes", "1:30", "٣"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a duration: write seconds, or"):
        parse_duration(text)


def test_metadata() -> None:
    assert parse_metadata(None) is None
    assert parse_metadata('{"a": [1, null]}') == {"a": [1, None]}
    with pytest.raises(ConfigurationError, match="is not JSON"):
        parse_metadata("{a: 1}")


def test_url_is_given_once() -> None:
    assert one_url(None, None) is None
    assert (
        one_url("memory://", None)
        == one_url(None, "memory://")
        == one_url("memory://", "memory://")
        == "memory://"
    )
    with pytest.raises(click.UsageError):
        one_url("memory://", "memory://x")
    with pytest.raises(ConfigurationError):
        open_client("")


@click.command("wrap", cls=WrappedCommand)
@click.argument("name")
@click.option("--flag", is_flag=True)
def wrap(name: str, flag: bool, command: tuple[str, ...]) -> tuple[str, bool, tuple[str, ...]]:
    return name, flag, command


@pytest.mark.parametrize(
    ("args", "parsed"),
    [
        (["n", "--", "c"], ("n", False, ("c",))),
        (["--flag", "n", "--", "c"], ("n", True, ("c",))),
        (["n", "--flag", "--", "c", "--flag"], ("n", True, ("c", "--flag"))),
        (["n", "--", "c", "--", "d"], ("n", False, ("c", "--", "d"))),
        (["n", "--", "--", "d"], ("n", False, ("--", "d"))),
        (["--", "-n", "--", "c"], ("-n", False, ("c",))),
    ],
)
def test_command_line_after_dashes(args: list[str], parsed: tuple[object, ...]) -> None:
    assert wrap.main(args, standalone_mode=False) == parsed


@pytest.mark.parametrize("args", [[], ["n"], ["n", "c"], ["n", "--"], ["--", "c"], ["n", "m", "--", "c"]])
def test_command_line_that_is_wrong(args: list[str]) -> None:
    with pytest.raises(click.UsageError):
        wrap.main(args, standalone_mode=False)
