"""Listening for pushes, blocking. See `fencelock.backends.pushes` for how waiters share it.

When another server has taken over, it listens there: a stopped primary does not hang up.
"""

from __future__ import annotations

from typing import Any

import hiredis

from fencelock.backends.pushes import Lost, ThreadListener
from fencelock.backends.redis.blocking import BlockingWire, Link
from fencelock.backends.redis.commands import pack
from fencelock.backends.redis.failures import no_pushes
from fencelock.backends.redis.server import Server
from fencelock.backends.redis.wire import ATTEMPT, CONNECT
from fencelock.runtime import clock

__all__ = ["ThreadSubscription", "read"]


def read(message: Any) -> str | None:
    """Return the push in a message; `None` for what else a subscription says."""
    if not isinstance(message, list) or message[0] != b"message":
        return None
    text: str = message[2].decode("ascii", "replace")
    return text


class ThreadSubscription(ThreadListener):
    """Pushes for the threads of a client, by PUBLISH on its channel."""

    def __init__(self, wire: BlockingWire, channel: bytes, lost: Lost) -> None:
        super().__init__(lost)
        self._wire = wire
        self._channel = channel
        self._link: Link | None = None
        self._server: Server | None = None
        """Whom it listens to, or last did."""

    async def _read(self, deadline: float) -> None:
        if self._server is not self._wire.topology.home():
            self._hang_up()
        link = self._link
        if link is None:
            await self._listen(deadline)
            self._all_look()  # for what was pushed while nobody listened
            return
        try:
            message = link.receive(deadline)
            while message is not False:
                push = read(message)
                if push is not None:
                    self.deliver(push)
                message = link.next()
        except (BlockingIOError, TimeoutError):
            return
        except (OSError, hiredis.ProtocolError):
            self._hang_up()
        except BaseException:
            self._hang_up()
            raise

    async def _listen(self, deadline: float) -> None:
        server = await self._wire.topology.learn(0, self._wire, deadline)
        link: Link | None = None
        try:
            link = self._wire.dial(server, min(CONNECT, max(0.001, deadline - clock.now())))
            link.send(pack("SUBSCRIBE", self._channel))
            answer = link.receive(min(deadline, clock.now() + ATTEMPT))
        except BaseException as error:
            self._wire.topology.suspect(server)
            if link is not None:
                link.close()  # the error's traceback keeps it, and the socket with it
            if isinstance(error, OSError | hiredis.ProtocolError):
                raise no_pushes(server.label) from error
            raise
        if isinstance(answer, hiredis.ReplyError):
            link.close()
            raise no_pushes(server.label, answer, transient=False)
        self._link, self._server = link, server

    def _hang_up(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
        self._all_look()

    def _end_read(self) -> None:
        link = self._link
        if link is not None:
            link.hang_up()

    async def close(self) -> None:
        self.wake()
        # If there is a reader, it closes the socket: closed under a poll, its number may be another file's
        # soon. This cannot wait for it: the reader may be this very thread, interrupted by a signal handler.
        if self._reading.acquire(blocking=False):
            try:
                self._hang_up()
            finally:
                self._reading.release()

    def drop(self) -> None:
        if self._link is not None:
            self._link.close()
