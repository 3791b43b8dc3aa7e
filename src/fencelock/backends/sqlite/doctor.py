"""What `fencelock doctor` has to say about a lock file."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fencelock.backends.sqlite.place import NETWORKED, file_system
from fencelock.findings import FORGETFUL, Finding

__all__ = ["examine", "judge_file_system"]

LITTLE_SPACE = 64 * 1024 * 1024
OTHERS_MAY_WRITE = 0o022


def examine(path: Path, settings: Mapping[str, Any]) -> Sequence[Finding]:
    """Turn the settings of an open file into findings."""
    return [
        _journal(settings),
        judge_file_system(file_system(path.parent)),
        _space(path),
        _permissions(path),
        Finding(
            "ok", "SQLite", f"version {settings['version']}, {settings['requests']} requests in the file"
        ),
    ]


def _journal(settings: Mapping[str, Any]) -> Finding:
    mode = settings["journal_mode"]
    if mode == "wal":
        return Finding(
            "ok", "journal", "write-ahead log; tokens are reserved durably", setting="journal_mode = wal"
        )
    advice = "move the file to a local disk with shared memory, so that SQLite can use its write-ahead log"
    detail = f"journal mode is {mode}, not wal: tokens are not reserved durably, and steps block each other"
    return Finding("critical", "journal", detail, advice, f"journal_mode = {mode}", FORGETFUL)


def judge_file_system(kind: str) -> Finding:
    """Say what the type of a file system means for a lock file in it."""
    if kind in NETWORKED:
        detail = f"{kind}: SQLite cannot lock across a network, two holders at once are possible"
        advice = "use a local path, or a backend that spans hosts"
        return Finding("critical", "file system", detail, advice, f"type {kind}", FORGETFUL)
    if kind in {"tmpfs", "ramfs"}:
        detail = f"{kind}: the file is gone after a boot, tokens then begin at the time of day"
        advice = "use a path on a disk if tokens guard data that outlives a boot"
        return Finding(
            "notice", "file system", detail, advice, f"type {kind}", (("fencing", "until-restart"),)
        )
    return Finding("ok", "file system", kind or "unknown, taken for local")


def _space(path: Path) -> Finding:
    free = shutil.disk_usage(path.parent).free
    if free < LITTLE_SPACE:
        detail = f"{free // 1024} KiB are free: on a full disk nothing can be acquired, renewed or released"
        return Finding("warning", "disk space", detail, "make room")
    return Finding("ok", "disk space", f"{free // 2**20} MiB free")


def _permissions(path: Path) -> Finding:
    mode = path.stat().st_mode
    if mode & OTHERS_MAY_WRITE:
        detail = "other users may write the file: they can take and break every lock in it"
        return Finding("notice", "permissions", detail, f"chmod 600 {path}, if they should not")
    return Finding("ok", "permissions", "only this user may write the file")
