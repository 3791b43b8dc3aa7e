"""What can be seen of a command without running it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencelock.cli.holding import client_name
from fencelock.cli.supervise import CannotRun, check_command


def make(path: Path, mode: int) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def test_path_is_searched_as_a_shell_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make(tmp_path / "a" / "both", 0o644)
    make(tmp_path / "b" / "both", 0o755)
    make(tmp_path / "a" / "plain", 0o644)
    (tmp_path / "a" / "folder").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}/a:{tmp_path}/b")
    check_command("both")
    for command, status in (("plain", 126), ("folder", 127), ("nothing", 127), ("", 127)):
        with pytest.raises(CannotRun) as caught:
            check_command(command)
        assert caught.value.status == status, command


def test_path_with_a_slash(tmp_path: Path) -> None:
    check_command(str(make(tmp_path / "a" / "good", 0o755)))
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    for path, status in (
        (make(tmp_path / "a" / "plain", 0o644), 126),
        (tmp_path, 126),
        (tmp_path / "nothing", 127),
        (tmp_path / "dangling", 127),
    ):
        with pytest.raises(CannotRun) as caught:
            check_command(str(path))
        assert caught.value.status == status, path


@pytest.mark.parametrize(
    ("command", "name"),
    [("/usr/bin/env", "env"), ("./x.sh", "x.sh"), ("/", "/"), ("a\udcff", "a?"), ("x" * 500, "x" * 100)],
)
def test_client_name(command: str, name: str) -> None:
    assert client_name([command]) == name
