"""The front door: which command, which status, which line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

import fencelock
from fencelock.cli import COMMANDS, Place, cli, load, main, status

RUN_MUST_NOT_IMPORT = {"rich", "fencelock.testing", "fencelock.cli.look", "fencelock.cli.doctor"}


@pytest.fixture
def locks() -> Iterator[fencelock.Client]:
    with fencelock.Client("memory://") as client:
        yield client


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    @click.command("fail")
    def fail() -> None:
        raise error

    module = type(sys)("failing")
    module.fail = fail  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "failing", module)
    monkeypatch.setitem(COMMANDS, "fail", Place("failing", "fail", "Fails."))


ENTRY = fencelock.Entry(
    owner="o", token=1, mode="exclusive", client="c", host="h\x1b", pid=1, since=0.0, expires_in=1.0
)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (fencelock.ConfigurationError("wrong"), 64),
        (fencelock.Unsupported(capability="shared", backend="x"), 64),
        (fencelock.BackendError(backend="x", detail="down"), 69),
        (fencelock.BackendUnavailable(backend="x", detail="down"), 69),
        (fencelock.QuorumNotReached(backend="x", votes={"a": "no"}), 69),
        (fencelock.AcquireTimeout(name="n", waited=1, holder=ENTRY), 75),
        (fencelock.LeaseLost(name="n", token=1, reason="r"), 76),
        (fencelock.NotHeld(name="n"), 70),
        (click.UsageError("wrong"), 64),
        (RuntimeError("bug\nin two lines"), 70),
    ],
)
def test_errors_are_one_line_and_a_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, expected: int
) -> None:
    raising(monkeypatch, error)
    assert main(["fail"]) == expected
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("fencelock: ") and err.count("\n") == 1 and err[:-1].isprintable()


@pytest.mark.parametrize(("error", "expected"), [(KeyboardInterrupt(), 130), (click.Abort(), 130)])
def test_interrupts_are_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, expected: int
) -> None:
    raising(monkeypatch, error)
    assert main(["fail"]) == expected
    assert "".join(capsys.readouterr()).strip() == ""


def test_bug_hints_at_debug_and_debug_shows_the_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(monkeypatch, RuntimeError("bug"))
    assert main(["fail"]) == 70
    assert "--debug" in capsys.readouterr().err
    monkeypatch.setenv("FENCELOCK_DEBUG", "1")
    assert main(["fail"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_module_that_is_missing_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(COMMANDS, "ghost", Place("fencelock.cli.ghost", "ghost", "Is not there."))
    assert main(["ghost"]) == 64
    assert capsys.readouterr().err == "fencelock: 'fencelock ghost' is not part of this installation\n"


def test_module_whose_import_fails_is_not_called_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    with open(f"{tmp_path}/needs_ghost.py", "w") as file:
        file.write("import ghost_of_a_module\n")
    with pytest.raises(ModuleNotFoundError, match="ghost_of_a_module"):
        load("needs", Place("needs_ghost", "needs", ""))


def test_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["frobnicate"]) == 64
    assert "'frobnicate'" in capsys.readouterr().err


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"fencelock {fencelock.__version__}\n"
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(name in text and place.does in text for name, place in COMMANDS.items())


def installed() -> list[str]:
    context = click.Context(cli)
    names = []
    for name in cli.list_commands(context):
        try:
            cli.get_command(context, name)
        except click.ClickException:
            continue
        names.append(name)
    return names


@pytest.mark.parametrize("name", installed())
def test_help_teaches(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out
    examples = text.partition("Examples:")[2].partition("Exit statuses:")[0]
    assert examples.count(f"fencelock {name}") >= 2
    assert "64" in text.partition("Exit statuses:")[2]


@pytest.mark.parametrize("name", installed())
def test_table_of_commands_says_what_they_say(name: str) -> None:
    command = load(name, COMMANDS[name])
    assert command.name == name
    assert command.get_short_help_str(200) == COMMANDS[name].does


def loaded_by(module: str) -> set[str]:
    code = f"import json, sys; import {module}; print(json.dumps(sorted(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    return set(json.loads(loaded))


def test_run_imports_little() -> None:
    assert not RUN_MUST_NOT_IMPORT & loaded_by("fencelock.cli.run")


def test_break_needs_no_web_framework() -> None:
    assert "starlette" not in loaded_by("fencelock.cli.break_")


@pytest.mark.parametrize(
    "url", ["nosuch://user:s3cret@host/path", "user:s3cret@host", "sqlite://u:s3cret@h/x"]
)
def test_password_is_never_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], url: str
) -> None:
    for args in (["ls"], ["doctor"], ["conform"], ["run", "x", "--", "true"]):
        monkeypatch.delenv("FENCELOCK_URL", raising=False)
        assert main([args[0], "--url", url, *args[1:]]) == 64
        monkeypatch.setenv("FENCELOCK_URL", url)
        assert main(args) == 64
    out, err = capsys.readouterr()
    assert out == "" and len(err.splitlines()) == 8
    assert "s3cret" not in err


def test_locks_of_this_process(locks: fencelock.Client, capsys: pytest.CaptureFixture[str]) -> None:
    with locks.lock("<script>\x1b", metadata=["\x1b"]) as lease:
        assert main(["ls", "--url", "memory://"]) == 0
        assert main(["show", "--url", "memory://", "<script>\x1b"]) == 0
        assert main(["ls", "--url", "memory://", "--json"]) == 0
        out = capsys.readouterr().out
        assert "\x1b" not in out
        assert r"<script>\x1b" in out and lease.owner in out
    assert main(["ls", "--url", "memory://", "pre"]) == 0
    assert capsys.readouterr() == ("", "No lock whose name begins with 'pre' is held or waited for.\n")


def test_every_status_has_a_meaning() -> None:
    codes = {value for name, value in vars(status).items() if name.isupper() and isinstance(value, int)}
    assert codes - {0} == set(status.MEANINGS)
    assert all(meaning.code == str(code) for code, meaning in status.MEANINGS.items())
