"""The wire: requests to servers, whatever goes wrong on the way. Two flavours, one way of persisting.

Every request may be repeated: a script finds by the owner's id what it has done already. So a request
whose reply was lost is sent again, on a new connection, until its deadline; one that reached the
wrong server goes to the right one; one for a script that the server does not know is
sent with the script.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import chain, islice
from typing import Any, NamedTuple

import hiredis

from fencelock.backends.redis.commands import Script, pack
from fencelock.backends.redis.failures import too_old
from fencelock.backends.redis.server import Server
from fencelock.backends.redis.topology import Topology
from fencelock.errors import BackendError, BackendUnavailable
from fencelock.runtime import clock

__all__ = ["ATTEMPT", "CONNECT", "Again", "Call", "Replies", "Wire"]

ATTEMPT = 1.5
"""Seconds after which a reply counts as lost, and is asked for again."""
CONNECT = 3.0
"""Seconds that a server has to take a connection."""
TURNS = 4
"""So often a request is sent on at once; then with pauses, for servers that point at each other."""
PAUSE = 0.02
ASKING, HELLO, INFO = pack("ASKING"), pack("HELLO"), pack("INFO", "server")


class Again(int):
    """What a script answered to a request that may have been done before: by its own first sending."""


class Replies(list[Any]):
    """Replies to requests that were sent more than once, or the list that a script answered to one."""


class Call(NamedTuple):
    """A call on keys of one bucket, packed: of a script, or of a plain command."""

    script: Script | None
    bucket: int
    packed: bytes


class Wire(ABC):
    """Requests to the servers of one topology."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology

    @abstractmethod
    async def call(self, script: Script | None, bucket: int, packed: bytes, deadline: float) -> Any:
        """Return the reply of a script or a command; raise what the server says is wrong."""

    @abstractmethod
    async def stream(self, calls: Iterator[Call], replies: list[Any], deadline: float) -> Iterable[Call]:
        """Call scripts on one server as long as all goes well, two under way at a time; add the replies.

        Return those that were sent and have none. Each may be sent again.
        """

    @abstractmethod
    async def ask(self, server: Server, requests: Sequence[bytes], deadline: float) -> list[Any]:
        """Send requests to one server together, and return their replies, errors of the server included.

        `Replies`, if they were sent more than once.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close every connection. Nothing is sent any more."""

    @abstractmethod
    def drop(self) -> None:
        """In a forked child: let go of every connection without telling the servers."""

    @abstractmethod
    async def pause(self, seconds: float) -> None:
        """Do nothing for so long."""

    @abstractmethod
    def latch(self, deadline: float) -> AbstractAsyncContextManager[None]:
        """Let one in at a time, of all who use this wire; `BackendUnavailable` if that takes too long."""

    @abstractmethod
    async def part(self, server: Server) -> None:
        """Close the connection to a server that was asked something, and is not needed any more."""

    def aside(self, server: Server) -> Server:
        """Return the same server by a connection on which a command that blocks keeps nobody waiting."""
        return server

    async def persist(
        self,
        script: Script | None,
        bucket: int,
        packed: bytes,
        deadline: float,
        *,
        again: Server | None = None,
        then: Sequence[bytes] = (),
    ) -> Any:
        """Return the reply of a script: the long way, for when the short one failed.

        `again` is where it was sent before and may have been done: a number from there is an `Again`, but not
        one from a server that took its place, and may never have heard of anything. A list is `Replies` if
        any server may do it once more. Requests to be sent right behind it, on the same connection, are in
        `then`: the replies are a list.
        """
        topology = self.topology
        asked: Server | None = None
        turns, twice = 0, again is not None
        while True:
            turns += 1
            if turns > TURNS:
                await self.pause(min(PAUSE, max(0.0, deadline - clock.now())))
            server = asked or await topology.learn(bucket, self, deadline)
            requests = [ASKING, packed, *then] if asked else [packed, *then]
            place = self.aside(server) if then else server
            try:
                replies = await self.ask(place, requests, min(deadline, clock.now() + topology.silence))
            except BackendUnavailable as error:
                topology.suspect(server)
                if not error.transient or not await self._is_elsewhere(server, bucket, deadline):
                    raise
                asked, twice = None, True
                continue
            if replies.__class__ is Replies:
                again, twice = server, True
            if asked:
                del replies[0]
            reply = replies[0]
            if reply.__class__ is not hiredis.ReplyError:
                if again is server and reply.__class__ is int:
                    reply = replies[0] = Again(reply)
                elif twice and reply.__class__ is list:
                    reply = replies[0] = Replies(reply)
                return replies if then else reply
            text = str(reply)
            if script is not None and text.startswith("NOSCRIPT"):
                packed = script.in_full(packed)
            elif text.startswith("ASK "):
                # The slot is moving, and this key is at its new place already, or is to be made there.
                asked = topology.asked(server, text)
            else:
                asked = None
                if script is not None and text.startswith("ERR "):
                    await self._refuse_if_old(server, deadline)
                await topology.correct(server, text, self, deadline)

    async def _refuse_if_old(self, server: Server, deadline: float) -> None:
        """Find out whether a script failed on a server that is too old for it."""
        try:
            hello, info = await self.ask(server, [HELLO, INFO], deadline)
        except BackendError:
            return  # what the script's error says is told then
        if failure := too_old(server.label, hello, info):
            raise failure

    async def _is_elsewhere(self, server: Server, bucket: int, deadline: float) -> bool:
        """Whether the bucket turns out to be on another server than the one that does not answer."""
        try:
            return await self.topology.learn(bucket, self, deadline) is not server
        except BackendUnavailable:
            return False  # the first failure tells more

    async def in_turn(self, calls: Iterable[Call], deadline: float) -> list[Any]:
        """Return the replies of many scripts for one server, up to the first that is an error.

        What a client has sent a server takes in one go, and nobody else meanwhile: they are not sent at once.
        Two are under way: while the server works on one the next lies ready, and the one after is packed.
        """
        source, replies = iter(calls), list[Any]()
        try:
            for call in islice(source, 1):  # it connects, and takes the script along
                replies.append(await self.call(*call, deadline))
            unanswered = await self.stream(source, replies, deadline)
            for call in chain(unanswered, source):
                replies.append(await self.call(*call, deadline))
        except BackendError as error:
            replies.append(error)
        return replies

    def following(self, calls: Iterator[Call], under_way: int, deadline: float) -> Call | None:
        """Return the next call, if there is time for an attempt of it and of each that is under way."""
        return next(calls, None) if deadline - clock.now() >= ATTEMPT * (under_way + 1) else None

    async def each(self, calls: Sequence[Call], deadline: float) -> list[Any]:
        """Return the replies of many calls, sent together; where there is none, the error instead.

        Each server has its share of the time, so one that does not answer costs the others little.
        """
        replies: list[Any] = [None] * len(calls)
        moved = await self._send_out(calls, range(len(calls)), replies, deadline)
        if moved:
            await self._send_out(calls, moved, replies, deadline)
        refused = [place for place, reply in enumerate(replies) if reply.__class__ is hiredis.ReplyError]
        for left, place in zip(range(len(refused), 0, -1), refused, strict=True):
            try:
                replies[place] = await self.persist(*calls[place], self._share(deadline, left))
            except BackendError as error:
                replies[place] = error
        return replies

    async def _send_out(
        self, calls: Sequence[Call], places: Iterable[int], replies: list[Any], deadline: float
    ) -> list[int]:
        """Fill in the replies at these places; return those that failed and belong elsewhere now."""
        parts: dict[Server, list[int]] = {}
        moved: list[int] = []
        for place in places:
            try:
                server = await self.topology.learn(calls[place].bucket, self, deadline)
                parts.setdefault(server, []).append(place)
            except BackendError as error:
                replies[place] = error
        for left, (server, group) in zip(range(len(parts), 0, -1), parts.items(), strict=True):
            try:
                found = await self.ask(
                    server, [calls[place].packed for place in group], self._share(deadline, left)
                )
            except BackendError as error:
                found = [error] * len(group)
                self.topology.suspect(server)
                if await self._is_elsewhere(server, calls[group[0]].bucket, deadline):
                    moved += group
            for place, reply in zip(group, found, strict=True):
                replies[place] = reply
        return moved

    def _share(self, deadline: float, parts: int) -> float:
        """Return the deadline of the first of so many parts of the time that is left."""
        now = clock.now()
        return min(now + (deadline - now) / parts, now + self.topology.silence)

    async def tell(self, server: Server, *words: str | bytes | int, deadline: float) -> Any:
        """Return a server's reply to any command; its error as a `hiredis.ReplyError`."""
        (reply,) = await self.ask(server, [pack(*words)], deadline)
        return reply
