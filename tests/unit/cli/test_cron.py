"""`fencelock cron` and `fencelock once`: what is refused before anything runs, and what `--ls` shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fencelock import Client
from fencelock.cli import main
from fencelock.schedule import Schedule

USAGE, NOT_FOUND = 64, 127


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    url = f"sqlite://{tmp_path}/locks.db"
    monkeypatch.setenv("FENCELOCK_URL", url)
    return url


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["cron", "x * * * *", "job", "--", "true"], "cron line 'x * * * *' cannot be read (bad minute)"),
        (["cron", "* * * *", "job", "--", "true"], "cannot be read (wrong number of fields)"),
        (["cron", "0 0 30 2 *", "job", "--", "true"], "cannot be read (bad day-of-month)"),
        (["cron", "* * * * *", "--", "true"], "LINE and NAME are missing"),
        (["cron", "* * * * *", "job"], "no command: write fencelock cron NAME -- CMD"),
        (["cron", "* * * * *", "", "--", "true"], "name='' is empty"),
        (["cron", "--timezone", "Mars", "* * * * *", "job", "--", "true"], "timezone='Mars' is not known"),
        (["cron", "--catch-up", "some", "* * * * *", "job", "--", "true"], "'some' is not one of"),
        (["cron", "--at-most-for", "0", "* * * * *", "job", "--", "true"], "is not longer than at_least_for"),
        (["cron", "--record", "nowhere", "* * * * *", "job", "--", "true"], "is not a URL"),
        (["cron", "--url", "redlock://a,b,c", "* * * * *", "job", "--", "true"], "give record="),
        (["once", "job", "--", "true"], "missing option '--per'"),
        (["once", "--per", "0", "job", "--", "true"], "per=0.0 is no whole number of seconds"),
        (["once", "--per", "5 minutes", "job", "--", "true"], "is not a duration"),
        (["once", "--per", "5m", "job"], "no command"),
    ],
)
def test_wrong_usage_is_one_line(
    url: str, words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == USAGE
    out, error = capsys.readouterr()
    assert out == ""
    assert told.lower() in error.lower() and error.count("\n") == 1 and error.startswith("fencelock: ")


@pytest.mark.parametrize("words", [["cron", "* * * * *", "job"], ["once", "--per", "5m", "job"]])
def test_a_command_that_is_not_there_is_said_at_once(
    url: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--", "no-such-command"]) == NOT_FOUND
    assert "no-such-command" in capsys.readouterr().err


def test_ls_shows_what_ran_where(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cron", "--ls"]) == 0
    assert capsys.readouterr().err == "No schedule has run.\n"
    with Client(url) as locks, Schedule(locks) as schedule:
        schedule.once("a\x1b[31m", lambda: None, per=86_400)
        with pytest.raises(ZeroDivisionError):
            schedule.once("b", lambda: 1 / 0, per=86_400)
    assert main(["cron", "--ls"]) == 0
    header, first, second = capsys.readouterr().out.splitlines()
    assert header.split() == ["NAME", "TICK", "STATE", "HOST", "TOKEN", "ATTEMPT", "TOOK", "DETAIL"]
    assert first.startswith(r"a\x1b[31m") and " done " in first
    assert " failed " in second and second.endswith("ZeroDivisionError: division by zero")
    assert main(["cron", "--ls", "--json", "b"]) == 0
    (run,) = json.loads(capsys.readouterr().out)
    assert (run["name"], run["state"], run["attempt"]) == ("b", "failed", 1)
    assert main(["cron", "--ls", "c"]) == 0
    assert capsys.readouterr().err == "'c' has not run.\n"
