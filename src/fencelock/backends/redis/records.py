"""Records: what the scripts keep of a request, and how it is shown. See lua/queue.lua for the layout."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from fencelock.core.ports import Busy, Origin, Request
from fencelock.core.queue import Mode, Queued, admitted
from fencelock.state import Entry, LockState

__all__ = ["Waiting", "entry", "state", "tail"]

LETTERS: dict[Mode, bytes] = {"exclusive": b"e", "shared": b"s", "permit": b"p"}
WIDTH = 32
"""Characters of an owner in a queue."""
MODES: dict[str, Mode] = {letter.decode(): mode for mode, letter in LETTERS.items()}


def tail(request: Request, channel: bytes) -> bytes:
    """Return a record from its mode on: what does not change while the request stands."""
    told = _people(request.origin)
    if request.metadata is not None:
        told = b'%b,"metadata":%b' % (told, request.metadata.encode())
    return b"%b%d %b {%b}" % (LETTERS[request.mode], request.limit, channel, told)


def _people(origin: Origin) -> bytes:
    return json.dumps(origin._asdict())[1:-1].encode("utf-8", "surrogateescape")


def entry(owner: bytes, record: bytes, now: float) -> Entry:
    """Return a record as people read it; `now` is the server's time in microseconds."""
    text = record.decode("utf-8", "replace")
    limit, _, told = text[53:].split(" ", 2)
    said: dict[str, Any] = json.loads(told)
    since = int(text[34:50])
    return Entry(
        owner=owner.decode(),
        token=int(text[17:33]),
        mode=MODES[text[52]],
        client=said["client"],
        host=said["host"],
        pid=said["pid"],
        since=since / 1e6,
        age=max(0.0, (now - since) / 1e6),
        expires_in=max(0.0, (int(text[:16]) - now) / 1e6),
        metadata=said.get("metadata"),
        limit=int(limit),
    )


def state(name: str, found: Sequence[bytes], now: float) -> LockState:
    """Return a lock from the fields of its hash, without those whose time is over."""
    fields = dict(zip(found[::2], found[1::2], strict=True))
    queue = fields.get(b"queue", b"")
    owners = [queue[at : at + WIDTH] for at in range(0, len(queue), WIDTH)]
    pairs = [(owner, fields.get(owner)) for owner in owners]
    live = [entry(owner, record, now) for owner, record in pairs if record and int(record[:16]) > now]
    holders = admitted(cast(Sequence[Queued], live))
    return LockState(name=name, holders=tuple(live[:holders]), waiters=tuple(live[holders:]))


class Waiting(Busy):
    """`Busy`, with the holder read from the reply only if somebody asks: most waiters never do."""

    __slots__ = ("_reply", "token")

    def __init__(self, reply: Sequence[Any]) -> None:
        self.token: int = reply[0]
        self.recheck = reply[1] / 1e6
        self._reply = reply

    @property
    def holder(self) -> Entry | None:  # type: ignore[override]
        """Who holds the lock."""
        _, _, owner, record, now = self._reply
        return entry(owner, record, int(now))
