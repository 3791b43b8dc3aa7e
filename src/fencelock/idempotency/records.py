"""What is kept of a key, and the checks of what users give."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from fencelock.errors import ConfigurationError, FencelockError
from fencelock.names import check_name, check_namespace, shown

__all__ = [
    "LARGEST_RESULT",
    "Attempt",
    "Crashed",
    "Done",
    "FingerprintChanged",
    "InProgress",
    "Key",
    "Record",
    "decoded",
    "encoded",
    "fingerprint",
    "make_key",
    "verdict",
]

LARGEST_RESULT = 1 << 20
"""Bytes of a result as JSON."""
MICROSECONDS = 1_000_000


class InProgress(FencelockError):
    """Somebody else is doing it just now, and it did not end in time."""

    def __init__(self, *, key: str, expires_in: float | None) -> None:
        more = "" if expires_in is None else f" (it has {max(expires_in, 0.0):.3g}s left)"
        super().__init__(f"key {key!r} is in progress elsewhere{more}")
        self.key = key
        self.expires_in = expires_in


class FingerprintChanged(FencelockError):
    """The key was used before, for something else."""

    def __init__(self, *, key: str) -> None:
        super().__init__(
            f"key {key!r} was used before with another fingerprint: use a new key for a new request"
        )
        self.key = key


@dataclass(frozen=True, slots=True)
class Attempt:
    """The right to do it now.

    `token` rises with each attempt: a resource that compares tokens refuses a late one. If `tries` is more
    than 1 somebody began before and did not end: perhaps it was done, so look before you do it again.
    """

    key: str
    token: int
    tries: int

    @property
    def is_recovery(self) -> bool:
        """Whether an earlier attempt was broken off."""
        return self.tries > 1


@dataclass(frozen=True, slots=True)
class Done:
    """It was done before; `result` is what was kept then."""

    result: Any


@dataclass(frozen=True, slots=True)
class Crashed:
    """A key whose last attempt did not end: it crashed, raised, or is slower than its ttl."""

    key: str
    tries: int
    since: float
    """Seconds since its time was over."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key as it is stored: `id` is a hash of namespace and name, `print` one of the fingerprint."""

    name: str
    id: str
    print: str


@dataclass(frozen=True, slots=True)
class Record:
    """What a store has of a key, and the store's own time."""

    print: str
    token: int
    is_done: bool
    deadline: float
    tries: int
    result: str | None
    now: float

    @property
    def is_over(self) -> bool:
        """Whether its time is over: for an attempt its ttl, for a result how long it is kept."""
        return self.deadline <= self.now

    @property
    def next_token(self) -> int:
        """The token of the next attempt: above the last one, and above those of a key that was forgotten."""
        return max(self.token + 1, int(self.now * MICROSECONDS))


def verdict(key: Key, record: Record) -> Attempt | Done | None:
    """Say what a record means for somebody who wants to begin; `None` if it is in progress.

    An `Attempt` is still to be written down. Raises `FingerprintChanged`.
    """
    is_fresh = record.tries == 0 or (record.is_done and record.is_over)
    if not is_fresh and record.print != key.print:
        raise FingerprintChanged(key=key.name)
    if is_fresh:
        return Attempt(key.name, record.next_token, 1)
    if record.is_done:
        return Done(decoded(record.result))
    if record.is_over:
        return Attempt(key.name, record.next_token, record.tries + 1)
    return None


def make_key(name: str, given: str | bytes, namespace: str = "") -> Key:
    """Return a key, checked."""
    check_name(name, "key")
    check_namespace(namespace)
    if isinstance(given, str):
        given = given.encode("utf-8", "surrogatepass")
    if not isinstance(given, bytes) or not given:
        raise ConfigurationError(
            f"fingerprint={shown(given)} tells nothing: give text, bytes or fingerprint(…)"
        )
    joined = b"%d:%b%b" % (len(namespace.encode()), namespace.encode(), name.encode())
    return Key(name, hashlib.sha256(joined).hexdigest(), hashlib.sha256(given).hexdigest())


def fingerprint(*parts: Any) -> str:
    """Return a short text that is the same for the same request: give what makes it what it is.

    Parts are bytes, or whatever JSON can carry; the order of keys in a dict does not matter.

    Example:
        >>> fingerprint("/pay", {"amount": 5, "to": "a"}) == fingerprint("/pay", {"to": "a", "amount": 5})
        True
    """
    digest = hashlib.sha256()
    for part in parts:
        raw = part if isinstance(part, bytes) else _json(part, "fingerprint").encode()
        digest.update(b"%s%d:" % (b"b" if isinstance(part, bytes) else b"j", len(raw)))
        digest.update(raw)
    return digest.hexdigest()


def encoded(result: Any) -> str:
    """Return a result as it is kept."""
    text = _json(result, "result")
    if len(text) > LARGEST_RESULT:
        raise ConfigurationError(
            f"result has {len(text)} bytes as JSON, {LARGEST_RESULT} are possible: keep it elsewhere, "
            "and its key here"
        )
    return text


def decoded(text: str | None) -> Any:
    """Return a result that was kept."""
    return json.loads(text) if text is not None else None


def _json(value: Any, what: str) -> str:
    try:
        return json.dumps(value, allow_nan=False, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{what}={shown(value)} is not JSON: {error}") from None
