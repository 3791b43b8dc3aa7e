"""Who broke what, when and why: one JSON object a line, in a file that only grows.

The dashboard and `fencelock break` write to it; each line is one append, so they may do so at the same time.
The file is opened before anything is broken, so one that cannot be written is refused then and not when
somebody needs it; it is readable for its user alone. If writing fails later, what was to be written is logged
as an error and the break is told all the same: it has happened.
"""

from __future__ import annotations

import json
import logging
import os
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Self

from fencelock.connect import state_folder
from fencelock.dashboard.picture import to_json
from fencelock.errors import ConfigurationError
from fencelock.state import Entry

__all__ = ["Audit", "checked_reason", "default_path", "told_of"]

LINES = 200
TAIL = 1024 * 1024
REASON = 500

log = logging.getLogger("fencelock.audit")


class Audit:
    """The log of what people did by force. Without a file it is kept in memory."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._lines: deque[dict[str, Any]] = deque(maxlen=LINES)
        self._file: BinaryIO | None = None
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lines.extend(_last(path))
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._file = os.fdopen(descriptor, "ab", buffering=0)
        except OSError as error:
            raise ConfigurationError(
                f"the audit log {str(path)!r} cannot be written ({error.strerror}): name another file"
            ) from None

    def add(self, **fields: Any) -> dict[str, Any]:
        """Write a line, with the time; return it."""
        now = datetime.now(UTC)
        line = {"time": now.isoformat(timespec="milliseconds"), "wall": round(now.timestamp(), 3), **fields}
        self._lines.append(line)
        text = to_json(line)
        log.info("broken: %s", text, extra={"fencelock": line})
        if self._file is not None:
            try:
                self._file.write(text.encode() + b"\n")
            except OSError as error:
                log.error("the audit log cannot be written (%s), this is lost: %s", error.strerror, text)
        return line

    def lines(self) -> list[dict[str, Any]]:
        """Return the last lines, newest first; those that others have written to the file too."""
        try:
            return [*reversed(self._lines if self.path is None else _last(self.path))]
        except OSError:
            return [*reversed(self._lines)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def default_path() -> Path:
    """Return the audit log of this user."""
    return state_folder() / "audit.jsonl"


def checked_reason(reason: Any) -> str:
    """Return why something is broken, as it is written down."""
    if not isinstance(reason, str) or not reason.strip():
        raise ConfigurationError("reason is missing: say why, for those who read the audit log")
    if len(reason) > REASON:
        raise ConfigurationError(f"the reason has {len(reason)} characters: {REASON} are possible")
    return reason.strip()


def told_of(entry: Entry) -> dict[str, Any]:
    """Return what is told, and written down, of a holder or waiter that was broken."""
    fields = ("owner", "token", "mode", "client", "host", "pid")  # metadata may say what is not for a log
    return {key: getattr(entry, key) for key in fields}


def _last(path: Path) -> list[dict[str, Any]]:
    """Return the last lines of a file; what is no line of ours is left out."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL))
            texts = file.read().splitlines()[-LINES:]
    except FileNotFoundError:
        return []
    found = []
    for text in texts:
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict):
            found.append(line)
    return found
