"""What users write, checked before anything is sent: names, namespaces, metadata.

A name is any non-empty string of at most 512 UTF-8 bytes without NUL. Two names are the
same only if they are the same string: nothing is folded, trimmed or normalised here, and
a backend must not do it either.
"""

from __future__ import annotations

import json
from typing import Any

from fencelock.errors import ConfigurationError

__all__ = [
    "MAX_METADATA_BYTES",
    "MAX_NAME_BYTES",
    "check_limit",
    "check_name",
    "check_namespace",
    "encode_metadata",
    "marked",
    "shown",
]

MAX_NAME_BYTES = 512
MAX_METADATA_BYTES = 4096
MARK = "fencelock:kind"


def check_name(name: str, what: str = "name") -> str:
    """Return `name` if it can name a lock."""
    if not isinstance(name, str):
        raise ConfigurationError(f"{what}={shown(name)} is not a string")
    if not name:
        raise ConfigurationError(f"{what}='' is empty: give at least one character")
    if "\0" in name:
        raise ConfigurationError(f"{what}={name!r} contains NUL: leave it out")
    if len(name) * 4 > MAX_NAME_BYTES or not name.isascii():
        _check_size(name, what)
    return name


def _check_size(name: str, what: str) -> None:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise ConfigurationError(f"{what}={name!r} is not valid Unicode: it has a lone surrogate") from None
    if size > MAX_NAME_BYTES:
        raise ConfigurationError(
            f"{what}={name[:40]!r}… has {size} bytes, {MAX_NAME_BYTES} are possible: hash the long part"
        )


def check_namespace(namespace: str) -> str:
    """Return `namespace` if it can keep applications apart; it may be empty."""
    return check_name(namespace, "namespace") if namespace != "" else namespace


def check_limit(limit: int) -> int:
    """Return `limit` if it can be the number of holders of a semaphore."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit < 2**31:
        raise ConfigurationError(f"limit={limit!r} is out of range: give a whole number from 1 on")
    return limit


def encode_metadata(metadata: Any) -> str | None:
    """Return `metadata` as JSON text, or `None` if there is none."""
    if metadata is None:
        return None
    try:
        text = json.dumps(metadata, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"metadata={shown(metadata)} is not JSON: {error}") from None
    if len(text.encode()) > MAX_METADATA_BYTES:
        raise ConfigurationError(
            f"metadata has {len(text.encode())} bytes as JSON: at most {MAX_METADATA_BYTES} are possible, "
            "store the rest elsewhere and put its key here"
        )
    return text


def marked(kind: str, metadata: str | None) -> str:
    """Return metadata, as JSON text, with a mark beside it that says what the lock is for.

    `Entry` takes the two apart again: nobody sees the mark in metadata of their own.
    """
    return f'{{"{MARK}":"{kind}","metadata":{metadata or "null"}}}'


def shown(value: object) -> str:
    """Return a value as a message may show it: short, on one line, whatever it is."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a repr of somebody else's may do anything
        text = f"<{type(value).__name__}>"
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "…"
