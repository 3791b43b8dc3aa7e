"""Where a lock file may lie, and what the doctor says about it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fencelock import Client, ConfigurationError
from fencelock.backends.sqlite import doctor, place
from fencelock.backends.sqlite.place import NETWORKED, check_place, file_system
from fencelock.runtime.blocking import run


def test_the_file_system_of_a_folder_is_told() -> None:
    assert file_system(Path("/proc")) == "proc"
    assert file_system(Path("/proc/self")) == "proc"
    assert file_system(Path("/"))


@pytest.mark.parametrize(
    "name", ["plain", "with space", "b\\slash", "tab\tin it", "\u00e9t\u00e9", "\u65e5\u672c"]
)
@pytest.mark.root
def test_a_mount_point_may_have_any_name(mounted: Callable[..., Path], name: str) -> None:
    point = mounted("-t", "tmpfs", "tmpfs", at=name)
    (point / "sub").mkdir()
    file_system.cache_clear()
    assert file_system(point) == file_system(point / "sub") == "tmpfs"


@pytest.mark.root
def test_a_folder_whose_name_only_begins_like_a_mount_point_is_not_on_it(
    mounted: Callable[..., Path], tmp_path: Path
) -> None:
    mounted("-t", "tmpfs", "tmpfs", at="mount")
    (tmp_path / "mount2").mkdir()
    file_system.cache_clear()
    assert file_system(tmp_path / "mount2") == file_system(tmp_path)


def test_where_nothing_can_be_told_the_place_is_taken_for_local(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_bytes", fails)
    file_system.cache_clear()
    assert file_system(tmp_path) == ""
    check_place(tmp_path / "x.db", mkdir=False)
    file_system.cache_clear()


@pytest.mark.parametrize("kind", sorted(NETWORKED))
def test_network_file_systems_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(place, "file_system", lambda folder: kind)
    with pytest.raises(ConfigurationError, match=kind):
        check_place(tmp_path / "x.db", mkdir=False)


def examine(client: Client) -> dict[str, str]:
    return {finding.subject: finding.severity for finding in run(client._session.backend.doctor())}


def test_a_sound_file_is_found_sound(path: Path, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "file_system", lambda folder: "ext4")
    with client.lock("x"):
        pass
    path.chmod(0o600)
    assert examine(client) == dict.fromkeys(
        ["journal", "file system", "disk space", "permissions", "SQLite"], "ok"
    )


def test_what_is_not_sound_is_said_with_advice(
    path: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client.lock("x"):
        pass
    monkeypatch.setattr(doctor, "file_system", lambda folder: "tmpfs")
    monkeypatch.setattr(doctor, "LITTLE_SPACE", 2**60)
    path.chmod(0o666)
    settings = {"journal_mode": "delete", "version": "3", "requests": 0}
    findings = doctor.examine(path, settings)
    severities = {finding.subject: finding.severity for finding in findings}
    assert severities == {
        "journal": "critical",
        "file system": "notice",
        "disk space": "warning",
        "permissions": "notice",
        "SQLite": "ok",
    }
    assert all(finding.advice for finding in findings if finding.severity != "ok")


def test_what_it_promises_and_how_it_shows_itself(path: Path, client: Client) -> None:
    promised = client.guarantees
    assert (promised.scope, promised.use_for, promised.fencing) == ("host", "correctness", "durable")
    assert promised.min_ttl == 0.05
    assert repr(client._session.backend) == f"<SQLiteBackend {path}>"
