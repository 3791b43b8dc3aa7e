"""A plain directory: on a shared disk, or kept alike on many machines by a tool that copies files.

    DIRECTORY/HASH-OF-NAME/AUTHOR-SEQ.whole     and     AUTHOR-SEQ.delta

A file is written under another name, synced and then renamed, so a reader sees all of it or none. It
never changes afterwards, and only its author deletes it: a tool that copies files late and in another
order does no harm. Files of other names are left alone.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fencelock.backends import RIGHTS
from fencelock.crdt.codec import MAX_BYTES
from fencelock.crdt.exchange.base import Exchange, Record, record_from
from fencelock.errors import BackendUnavailable, ConfigurationError
from fencelock.names import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DirectoryExchange", "write_file"]


class DirectoryExchange(Exchange):
    """Records as files in a directory that all replicas reach.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     DirectoryExchange(folder).records("stock")
        []
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Use the directory at `path`; it must exist."""
        try:
            self._path = Path(path).expanduser().absolute()
        except TypeError:
            raise ConfigurationError(f"path={shown(path)} is not a path") from None

    def records(self, name: str) -> list[Record]:
        with self._failures():
            if not self._path.is_dir():
                raise BackendUnavailable(
                    backend="directory", detail=f"{self._path} is not there: make it, or correct the path"
                )
            with suppress(FileNotFoundError):
                found = (record_from(entry.name) for entry in self._folder(name).iterdir())
                return [record for record in found if record is not None]
        return []

    def read(self, name: str, records: Sequence[Record]) -> dict[Record, bytes]:
        found = {}
        for record in records:
            with self._failures(), suppress(FileNotFoundError), self._file(name, record).open("rb") as file:
                found[record] = file.read(MAX_BYTES + 1)
        return found

    def write(self, name: str, record: Record, body: bytes, replaced: Sequence[Record]) -> None:
        with self._failures():
            self._folder(name).mkdir(exist_ok=True)
            write_file(self._file(name, record), body, f".{record.author}.part")
        self.remove(name, replaced)

    def remove(self, name: str, records: Sequence[Record]) -> None:
        with self._failures():
            for record in records:
                self._file(name, record).unlink(missing_ok=True)

    def _folder(self, name: str) -> Path:
        return self._path / hashlib.blake2b(name.encode(), digest_size=16).hexdigest()

    def _file(self, name: str, record: Record) -> Path:
        return self._folder(name) / record.label()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            detail = f"{error.filename or self._path}: {(error.strerror or str(error)).lower()}"
            forbidden = isinstance(error, PermissionError)
            if forbidden:
                detail = f"{detail} (see {RIGHTS})"
            raise BackendUnavailable(backend="directory", detail=detail, transient=not forbidden) from error

    def __repr__(self) -> str:
        return f"<DirectoryExchange {self._path}>"


def write_file(path: Path, data: bytes, part: str) -> None:
    """Put a file in place as a whole: after a crash it is the old one or the new one."""
    beside = path.with_name(part)
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
