"""Listening for pushes, blocking: nobody reads but those who wait.

One of them reads for all; when it leaves, it makes another the reader. So the one waiter of a process reads
its own push, and no thread stands between. `pushes.py` tells what a push means.
"""

from __future__ import annotations

import threading

import hiredis

from holdfast.backends.redis.blocking import BlockingWire, Link
from holdfast.backends.redis.commands import pack
from holdfast.backends.redis.pushes import Listener, Lost, no_pushes
from holdfast.backends.redis.wire import ATTEMPT, CONNECT
from holdfast.runtime import clock

__all__ = ["BlockingListener"]


class Slot:
    """Where a waiting thread is told something: its token, or that it must look for itself."""

    __slots__ = ("signal", "stale", "token")

    def __init__(self) -> None:
        self.token: int | None = None
        self.stale = False
        self.signal = threading.Lock()
        self.signal.acquire()

    def tap(self) -> None:
        try:
            self.signal.release()
        except RuntimeError:
            return  # it was tapped already


class BlockingListener(Listener):
    """Pushes for the threads of a client."""

    def __init__(self, wire: BlockingWire, channel: bytes, lost: Lost) -> None:
        super().__init__(lost)
        self._wire = wire
        self._channel = channel
        self._link: Link | None = None
        self._reading = threading.Lock()
        self._slots: dict[str, Slot] = {}

    async def wait(self, owner: str, token: int, deadline: float) -> bool:
        slot = self._slots[owner] = Slot()
        slot.token = self._early.take(owner)
        try:
            while slot.token != token and not slot.stale:
                left = deadline - clock.now()
                if left <= 0:
                    return False
                if not self._reading.acquire(blocking=False):
                    slot.signal.acquire(timeout=left)
                    continue
                try:
                    await self._read(deadline)
                finally:
                    self._reading.release()
            return slot.token == token
        finally:
            del self._slots[owner]
            if self._slots and not self._reading.locked():
                self._appoint()

    def _appoint(self) -> None:
        for slot in list(self._slots.values()):
            slot.tap()
            return

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
                self.deliver(message)
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
                raise no_pushes(server) from error
            raise
        if isinstance(answer, hiredis.ReplyError):
            link.close()
            raise no_pushes(server, answer, transient=False)
        self._link, self._server = link, server

    def _hang_up(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
        self._all_look()

    def _all_look(self) -> None:
        for slot in list(self._slots.values()):
            slot.stale = True
            slot.tap()

    def granted(self, owner: str, token: int) -> None:
        slot = self._slots.get(owner)
        if slot is None:
            self._early.put(owner, token)
            slot = self._slots.get(owner)  # it may have come meanwhile, and found nothing
        if slot is not None:
            slot.token = token
            slot.tap()

    async def close(self) -> None:
        self._hang_up()

    def drop(self) -> None:
        if self._link is not None:
            self._link.close()
