"""What is kept of a key, what it means for somebody who asks, and the checks of what users give.

A record is one line and the data after it:

    owner kind codec stale cost LF data

    owner   32 hexadecimal digits: the acquisition that wrote it
    kind    v for a value, e for an error that is shared
    codec   how the data was made
    stale   milliseconds for which it stays after it has expired
    cost    seconds that it took to compute

A store adds for how long it keeps the record, by its own clock; so `left`, what is left of the ttl, is that
less `stale`, and no client's clock has a part in it.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from enum import Enum
from typing import Literal, get_args

from fencelock.durations import Duration, duration
from fencelock.errors import ConfigurationError, FencelockError
from fencelock.names import MAX_NAME_BYTES, check_name, shown

__all__ = [
    "ComputeFailed",
    "Errors",
    "Kept",
    "Terms",
    "Verdict",
    "is_early",
    "judge",
    "lock_name",
    "make_terms",
]

Errors = Literal["raise", "share", "retry"]
"""Who learns of a computation's error: see `Flight.get`."""
OWNER = 32
LONGEST_DETAIL = 1000
"""Characters of an error's message that are shared."""
NOBODY = b""
"""The owner of a record that is not there."""


class ComputeFailed(FencelockError):
    """Somebody has computed it a moment ago, and failed; `kind` and `detail` are of that error."""

    def __init__(self, *, key: str, kind: str, detail: str) -> None:
        super().__init__(
            f"computing {key!r} failed: {kind}: {detail}" if detail else f"computing {key!r} failed: {kind}"
        )
        self.key = key
        self.kind = kind
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Terms:
    """What a caller wants of a value."""

    ttl: float
    stale: float
    early: float
    errors: Errors


@dataclass(frozen=True, slots=True)
class Kept:
    """A record, as it was read."""

    owner: bytes
    left: float
    """Seconds until it expires; negative afterwards."""
    cost: float
    codec: str
    is_error: bool
    data: bytes


class Verdict(Enum):
    """What a record is good for."""

    MISS = "it cannot be used"
    HIT = "it can be used"
    REFRESH = "it can be used, and is to be computed anew"


def judge(kept: Kept | None, terms: Terms, codec: str, draw: float) -> Verdict:
    """Say what a record is good for; `draw` is a random number from 0 to 1."""
    if kept is None or kept.codec != codec:
        return Verdict.MISS
    if kept.is_error:
        return Verdict.HIT if kept.left > 0 and terms.errors == "share" else Verdict.MISS
    if kept.left > 0:
        return Verdict.REFRESH if is_early(kept.left, kept.cost, terms.early, draw) else Verdict.HIT
    return Verdict.REFRESH if -kept.left < terms.stale else Verdict.MISS


def is_early(left: float, cost: float, beta: float, draw: float) -> bool:
    """Whether to compute anew though `left` seconds are left: the likelier, the less, and the more it costs.

    This is XFetch ("Optimal Probabilistic Cache Stampede Prevention", Vattani et al., 2015).
    """
    return beta > 0 and -cost * beta * math.log(1.0 - draw) >= left


def packed(
    owner: bytes, terms: Terms, codec: str, data: bytes, *, cost: float, is_error: bool = False
) -> bytes:
    """Return a record."""
    stale = 0 if is_error else milliseconds(terms.stale)
    head = f" {'e' if is_error else 'v'} {codec} {stale} {cost:.6f}\n"
    return b"%b%b%b" % (owner, head.encode(), data)


def unpacked(record: bytes, ms: float) -> Kept:
    """Return what a record says, of which a store has said that it stays for `ms` milliseconds.

    What cannot be read has a codec that nobody has: it is never used, and may be replaced.
    """
    kept: Kept | None
    head, _, data = record.partition(b"\n")
    try:
        owner, kind, codec, stale, cost = head.split(b" ")
        left = (ms - int(stale)) / 1000
        kept = Kept(owner, left, float(cost), codec.decode(), kind == b"e", data)
    except ValueError:
        kept = None
    if kept is None or len(kept.owner) != OWNER:
        return Kept(record[:OWNER], 0.0, 0.0, "", False, b"")
    return kept


def failure(error: BaseException) -> bytes:
    """Return an error as it is shared: its type's name and what it says, nothing more."""
    return json.dumps([type(error).__name__, str(error)[:LONGEST_DETAIL]]).encode()


def compute_failed(key: str, data: bytes) -> ComputeFailed:
    """Return an error that was shared."""
    kind, detail = json.loads(data)
    return ComputeFailed(key=key, kind=kind, detail=detail)


def lock_name(key: str) -> str:
    """Return the name of a key's lock: `flight:KEY`, or for a long one `flight#` and its hash."""
    name = f"flight:{key}"
    return (
        name if len(name.encode()) <= MAX_NAME_BYTES else f"flight#{hashlib.sha256(key.encode()).hexdigest()}"
    )


def make_terms(key: str, ttl: Duration, stale: Duration, early: float, errors: str) -> Terms:
    """Return what a caller wants, checked. Raises `ConfigurationError`."""
    check_name(key, "key")
    if isinstance(early, bool) or not isinstance(early, int | float) or not 0 <= early < math.inf:
        raise ConfigurationError(f"early={shown(early)} is out of range: give 0, or a number like 1.0")
    if errors not in get_args(Errors):
        raise ConfigurationError(
            f"errors={shown(errors)} is not known: give one of {', '.join(get_args(Errors))}"
        )
    return Terms(positive(ttl, "ttl"), duration(stale, "stale"), float(early), errors)  # type: ignore[arg-type]


def positive(value: Duration, what: str) -> float:
    """Return a duration that is more than nothing."""
    seconds = duration(value, what)
    if seconds == 0:
        raise ConfigurationError(f"{what}={shown(value)} is no time at all: give more than 0 seconds")
    return seconds


def milliseconds(seconds: float) -> int:
    """Return whole milliseconds, at least so many."""
    return math.ceil(seconds * 1000)
