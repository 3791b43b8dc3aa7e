"""What commands take."""

from __future__ import annotations

import shlex

import click
import pytest

from fencelock import Client
from fencelock.cli import main
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


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("run x ls -la", "fencelock run x -- ls -la"),
        ("run x ls", "fencelock run x -- ls"),
        ("run --wait 5 x --ttl 3 ls --ttl", "fencelock run --wait 5 x --ttl 3 -- ls --ttl"),
        ("run x git -C folder log -- file", "fencelock run x -- git -C folder log -- file"),
        ("run x echo 'two words' -n", "fencelock run x -- echo 'two words' -n"),
        ("elect x ls -la", "fencelock elect x -- ls -la"),
        ("once --per 5m x ls -la", "fencelock once --per 5m x -- ls -la"),
        ("cron '* * * * *' x ls -la", "fencelock cron '* * * * *' x -- ls -la"),
        ("run --url redis://me:s3cret@host x ls -la", "fencelock run --url redis://me:***@host x -- ls -la"),
    ],
)
def test_a_command_without_dashes_is_told_how_to_write_it(
    line: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(shlex.split(line)) == 64
    error = capsys.readouterr().err
    assert f"put -- before it: {hint} (see" in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("run --tyr x ls", "no such option"),
        ("run --ttl soon x -- ls -la", "'soon' is not a duration"),
        ("run --wait", "'--wait' requires an argument"),
        ("run", "missing argument 'NAME'"),
    ],
)
def test_what_is_wrong_with_our_own_options_is_no_missing_dash(
    line: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 64
    error = capsys.readouterr().err
    assert told in error and "put --" not in error


@pytest.mark.parametrize("words", [["run"], ["once", "--per", "24h"]])
def test_wait_is_called_timeout_too(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    """The lock of either command is held: each name gives up after no time, with the status for that."""
    assert main([*words[:1], "--help"]) == 0
    assert "--wait, --timeout SECONDS" in capfd.readouterr().out
    with Client("memory://") as locks, locks.lock("job"), locks.lock("schedule:job"):
        for option in ("--wait", "--timeout"):
            assert main([*words, "--url", "memory://", option, "0", "job", "--", "true"]) == 75
    assert "job" in capfd.readouterr().err
