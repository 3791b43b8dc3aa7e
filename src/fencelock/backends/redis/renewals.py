"""Many renewals as one call of `renew.lua`, and what its reply says of each."""

from __future__ import annotations

from collections.abc import Sequence

from fencelock.backends.redis.commands import RENEW, word
from fencelock.backends.redis.keys import Places
from fencelock.backends.redis.wire import Call
from fencelock.core.ports import Outcome, Renewal

__all__ = ["outcomes_of", "renewing"]

NOTHING = word(b"")
OTHERS = {1: Outcome.HELD, 0: Outcome.LOST}


def renewing(renewals: Sequence[Renewal], places: Places) -> Call:
    """Return the call that renews them all: of one bucket where slots matter."""
    ttls = [(renewal.ttl, renewal.exact) if renewal.extend else None for renewal in renewals]
    words = {ttl: NOTHING if ttl is None else _microseconds(*ttl) for ttl in set(ttls)}
    # Most clients have one ttl for all their leases: then it is sent, and read, once.
    common = words[ttls[0]] if len(words) == 1 else NOTHING
    keys = [places.packed(renewal.request.name) for renewal in renewals]
    each = [
        b"$32\r\n%b\r\n$16\r\n%016d\r\n" % (renewal.request.owner.encode(), renewal.token)
        for renewal in renewals
    ]
    width = 2
    if common is NOTHING:
        width = 3
        each = [one + words[ttl] for one, ttl in zip(each, ttls, strict=True)]
    packed = b"".join([RENEW.head(len(keys), 1 + len(keys) * width), *keys, common, *each])
    return Call(RENEW, places.find(renewals[0].request.name).bucket, packed)


def _microseconds(ttl: float, exact: bool) -> bytes:
    return word((b"=%d" if exact else b"%d") % max(0, ttl * 1e6))


def outcomes_of(reply: Sequence[int]) -> list[Outcome]:
    """Return what became of each, in order: the reply counts those renewed, and names the others."""
    found = [Outcome.RENEWED] * reply[0]
    for place, answer in zip(reply[1::2], reply[2::2], strict=True):
        found.insert(place - 1, OTHERS[answer])
    return found
