"""Where a file may lie: on a file system of this host, in a folder that exists.

SQLite's locks and shared memory do not work across hosts, and a second host would take the
first one's requests for those of an earlier boot. So network file systems are refused.
"""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path

from fencelock.errors import BackendUnavailable, ConfigurationError

__all__ = ["NETWORKED", "check_place", "file_system"]

NETWORKED = {"9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "ocfs2"}
NETWORKED |= {"fuse.ceph", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs", "orangefs", "smb3", "virtiofs"}


def check_place(path: Path, *, mkdir: bool) -> None:
    """Raise unless a lock file may be made or opened at `path`."""
    folder = path.parent
    try:
        if mkdir and not folder.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not folder.is_dir():
            raise _unusable(f"{path}: the folder {folder} does not exist: make it, or correct the path")
        if path.is_dir():
            raise _unusable(f"{path} is a folder, not a file")
    except OSError as error:
        raise _unusable(f"{path}: {(error.strerror or str(error)).lower()}") from error
    kind = file_system(folder)
    if kind in NETWORKED:
        raise ConfigurationError(
            f"{path} lies on a network file system ({kind}), where SQLite cannot lock: "
            "use a local path, or a backend that spans hosts"
        )


def _unusable(detail: str) -> BackendUnavailable:
    return BackendUnavailable(backend="sqlite", detail=detail, transient=False)


@functools.lru_cache(maxsize=64)
def file_system(folder: Path) -> str:
    """Return the type of the file system that holds `folder`, or '' where that cannot be told."""
    try:
        mounts = Path("/proc/self/mountinfo").read_bytes()
    except OSError:
        return ""
    best, kind = -1, ""
    where = os.fsencode(folder.resolve())
    for line in mounts.splitlines():
        before, _, after = line.partition(b" - ")
        mount = re.sub(rb"\\(\d{3})", _unescaped, before.split(b" ")[4])
        inside = where == mount or where.startswith(mount.rstrip(b"/") + b"/")
        if inside and len(mount) >= best:
            best, kind = len(mount), after.split(b" ")[0].decode()
    return kind


def _unescaped(octal: re.Match[bytes]) -> bytes:
    return bytes([int(octal[1], 8)])
