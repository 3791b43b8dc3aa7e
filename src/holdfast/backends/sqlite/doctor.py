"""What `holdfast doctor` has to say about a lock file."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.backends.base import Finding
from holdfast.backends.sqlite.place import file_system

__all__ = ["examine"]

LITTLE_SPACE = 64 * 1024 * 1024
OTHERS_MAY_WRITE = 0o022


def examine(path: Path, settings: Mapping[str, Any]) -> Sequence[Finding]:
    """Turn the settings of an open file into findings."""
    return [
        _journal(settings),
        _file_system(path),
        _space(path),
        _permissions(path),
        Finding(
            "ok", "SQLite", f"version {settings['version']}, {settings['requests']} requests in the file"
        ),
    ]


def _journal(settings: Mapping[str, Any]) -> Finding:
    mode = settings["journal_mode"]
    if mode == "wal":
        return Finding("ok", "journal", "write-ahead log; tokens are reserved durably")
    advice = "move the file to a local disk with shared memory, so that SQLite can use its write-ahead log"
    return Finding("danger", "journal", f"journal mode is {mode}, not wal", advice)


def _file_system(path: Path) -> Finding:
    kind = file_system(path.parent)
    if kind in {"tmpfs", "ramfs"}:
        detail = f"{kind}: the file is gone after a boot, tokens then begin at the time of day"
        return Finding(
            "warning", "file system", detail, "use a path on a disk if tokens guard data that outlives a boot"
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
        return Finding("note", "permissions", detail, f"chmod 600 {path}, if they should not")
    return Finding("ok", "permissions", "only this user may write the file")
