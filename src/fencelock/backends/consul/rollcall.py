"""The roll call: whoever waits notices when somebody before it has died.

Consul has no session that ends in less than twenty seconds. So a client that waits gives a sign of life
about once a second: it puts a key of its own, which lives in its session, again with another value. With
the same transaction it reads the signs of those whom its own requests stand behind. Whoever gave none for
three seconds, seen at several looks in between, has lost its place: its record is removed by the one that
noticed, if it has not moved meanwhile. A request that holds the lock has moved to a session without such a
key: nobody but Consul ends that.

A pause of Consul itself counts little: the time between two looks counts for no more than `STEP`. A record
that is newer than those we knew of is a sign of life as well: whoever was cut off, and is back, stands in
line again before we have looked for its sign.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fencelock.core.ports import LONGEST_PATIENCE

__all__ = ["Roll"]

STEP = 1.5
"""The most that the time between two looks counts for."""
FORGET = 5.0
"""Seconds after which nobody asks any more for a session that was not seen again in a queue."""


class Member:
    """One session of somebody else's."""

    __slots__ = ("asked", "newest", "seen", "sign", "silence")

    def __init__(self) -> None:
        self.seen = self.asked = 0.0
        self.sign: int | None = None
        self.newest = 0
        """The token of its newest record that we know of."""
        self.silence = 0.0


class Roll:
    """Those before us, and for how long each has been silent."""

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}

    def note(self, sessions: Mapping[str, int], now: float) -> None:
        """These were seen in a queue, each with the token of its newest record there."""
        for session, token in sessions.items():
            member = self._members.get(session)
            if member is None:
                member = self._members.setdefault(session, Member())
            member.seen = now
            if token > member.newest:
                member.newest, member.silence = token, 0.0

    def members(self, most: int, now: float) -> list[str]:
        """Return whom to ask for now: those first who were not asked for the longest time."""
        for session, member in list(self._members.items()):
            if now - member.seen > FORGET:
                self._members.pop(session, None)
        ranked = sorted(self._members.copy().items(), key=lambda item: item[1].asked)
        return [session for session, _ in ranked[:most]]

    def heard(self, sessions: Iterable[str], signs: Mapping[str, int], now: float) -> None:
        """These were asked for, and gave these signs; who gives none at all is not one that waits."""
        for session in sessions:
            member = self._members.get(session)
            if member is None:
                continue
            sign = signs.get(session)
            if sign is None or sign != member.sign:
                member.silence = 0.0
            else:
                member.silence += min(STEP, now - member.asked)
            member.sign, member.asked = sign, now

    def is_silent(self, session: str, token: int) -> bool:
        """Whether it has lost the place of this token."""
        member = self._members.get(session)
        return member is not None and member.silence >= LONGEST_PATIENCE and token <= member.newest
