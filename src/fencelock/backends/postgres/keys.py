"""The keys of advisory locks: 64 bits of a hash of the whole name.

One derivation for `postgresql+advisory://` and `fencelock.sql`, so that a lock of one form excludes the
other. Names that differ meet with a chance of 1 in 2^64; they are never cut to 32 bits.
"""

from __future__ import annotations

from hashlib import blake2b

__all__ = ["advisory_key"]


def advisory_key(namespace: str, name: str) -> int:
    """Return the key of a name, as PostgreSQL takes it: a signed 64-bit number.

    Example:
        >>> advisory_key("", "invoice:42")
        -3178739592998901140
        >>> advisory_key("a", "b") == advisory_key("", "ab")
        False
    """
    hashed = blake2b(namespace.encode() + b"\0" + name.encode(), digest_size=8)
    return int.from_bytes(hashed.digest(), "big", signed=True)
