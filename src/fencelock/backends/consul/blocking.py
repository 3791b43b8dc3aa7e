"""Connections for threads: a few, each used by one thread at a time; queries that wait have others."""

from __future__ import annotations

import time
import weakref
from contextlib import suppress

from fencelock.backends.consul.address import Address
from fencelock.backends.consul.failures import closed, no_answer
from fencelock.backends.consul.link import Link
from fencelock.backends.consul.listening import Ear, ThreadLine
from fencelock.backends.consul.protocol import Answer, Disconnected
from fencelock.backends.consul.wire import CONNECT, LIMBO, Heard, Wire
from fencelock.runtime import clock

__all__ = ["BlockingWire"]

IDLE = 4
"""Connections that are kept for later. Consul takes 200 from one host, all its programs together."""
STALE = 5.0
"""Seconds after which one that nobody used is closed, if there are others."""


class BlockingWire(Wire):
    """Requests on the caller's thread."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._idle: list[Link] = []
        self._links: weakref.WeakSet[Link] = weakref.WeakSet()
        self._limbo: dict[str, Link] = {}
        self._ear = Ear()

    async def _ask(self, turn: int, data: bytes, until: float, tag: str) -> Answer:
        link = self._take(turn, until)
        try:
            answer = link.ask(data, until)
        except (Disconnected, ConnectionError):
            link.close()
            raise
        except BaseException:
            self._interrupted(link, tag)
            raise
        self._give(link, answer.keep)
        return answer

    def _interrupted(self, link: Link, tag: str) -> None:
        if not tag or self._closed or not link.is_asked:
            link.close()
            return
        link.until = clock.now() + LIMBO
        before = self._limbo.pop(tag, None)
        if before is not None:
            before.close()
        self._limbo[tag] = link

    async def settled(self, tag: str, deadline: float) -> Answer | None:
        link = self._limbo.pop(tag, None) if self._limbo else None
        if link is None:
            return None
        late = link.until
        try:
            answer = link.answer(min(deadline, late))
        except TimeoutError:
            if clock.now() >= late:
                link.close()
                return None
            self._limbo[tag] = link
            raise no_answer(self.address.label) from None
        except (Disconnected, OSError):
            link.close()
            return None
        except BaseException:
            self._limbo[tag] = link
            raise
        link.close()
        return answer

    def _take(self, turn: int, until: float) -> Link:
        endpoint = self.address.endpoints[turn]
        while self._idle:
            try:
                link = self._idle.pop()
            except IndexError:
                break
            if link.endpoint == endpoint and link.is_usable():
                return link
            link.close()
        return self._dial(endpoint, until)

    def _dial(self, endpoint: str, until: float) -> Link:
        if self._closed:
            raise closed()
        context = self.context()
        timeout = max(0.001, min(CONNECT, until - clock.now()))
        link = Link(endpoint, context, self.address.server_name, timeout)
        self._links.add(link)
        if self._closed:  # by a signal handler on this thread
            link.close()
            raise closed()
        return link

    def _give(self, link: Link, keep: bool) -> None:
        if self._closed or len(self._idle) >= IDLE or not keep:
            link.close()
            return
        link.is_asked = False
        link.used = clock.now()
        self._idle.append(link)
        with suppress(IndexError):
            if self._idle[0].used < link.used - STALE:
                self._idle.pop(0).close()

    async def _listen(self, endpoint: str, heard: Heard, deadline: float) -> ThreadLine:
        line = ThreadLine(self._ear, self._dial(endpoint, deadline), heard)
        self._ear.add(line)
        return line

    async def _pause(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 (nothing suspends here)

    async def close(self) -> None:
        self._closed = True
        self._ear.close()
        while self._idle:
            self._idle.pop().close()
        while self._limbo:
            self._limbo.popitem()[1].close()
        for link in list(self._links):
            link.hang_up()

    def drop(self) -> None:
        for link in list(self._links):
            link.drop()
