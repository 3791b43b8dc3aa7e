"""Nudges: who waits hears when somebody leaves.

Releasing publishes the owner's id on the lock's own channel, on every node that had the lock. When a quorum
of nodes has said so, the one who has waited longest here looks again; the others go on waiting,
or they would only stand in each other's way. A subscription that has come to stand with a quorum
counts as a nudge for all, since what was said before was not heard. A nudge that is lost costs
latency, not liveness: everybody looks by itself once a second.

One connection to each node, however many wait. Blocking: nobody reads but those who wait; one of them
reads for all, and when it leaves, makes another the reader.
"""

from __future__ import annotations

from typing import Any

from fencelock.backends.redlock.blocking import BlockingWire
from fencelock.backends.redlock.commands import pack
from fencelock.backends.redlock.links import Links
from fencelock.backends.redlock.multiplexed import MultiplexedWire
from fencelock.core.quorum import quorum
from fencelock.runtime import clock, locks
from fencelock.runtime.base import Signal

__all__ = ["AsyncioListener", "BlockingListener", "Listener", "Waiter"]

HEARD = 1024


class Waiter:
    """A request that waits. `tries` counts how often it stood in somebody's way."""

    __slots__ = ("key", "rung", "signal", "tries")

    def __init__(self, key: bytes, signal: Signal) -> None:
        self.key = key
        self.signal = signal
        self.rung = False
        self.tries = 0


class Listener:
    """Who waits for what, and what was heard of it."""

    def __init__(self, nodes: int) -> None:
        self._quorum = quorum(nodes)
        self._waiters: dict[bytes, list[Waiter]] = {}
        self._heard: dict[tuple[bytes, bytes], set[int]] = {}
        self.ended = False
        """Whether the client is closing: no wait goes on then, and none begins."""

    def join(self, waiter: Waiter) -> None:
        """Listen for this one too."""
        waiters = self._waiters.setdefault(waiter.key, [])
        waiters.append(waiter)
        if len(waiters) == 1:
            self._say(pack("SUBSCRIBE", waiter.key))

    def leave(self, waiter: Waiter) -> None:
        """It does not wait any more; a nudge it did not use goes to the next."""
        waiters = self._waiters.get(waiter.key, [])
        if waiter in waiters:
            waiters.remove(waiter)
        if not waiters and self._waiters.pop(waiter.key, None) is not None:
            self._say(pack("UNSUBSCRIBE", waiter.key))
        elif waiter.rung:
            self.ring(waiter.key)

    def opening(self) -> bytes:
        """Return what a new connection is to be told."""
        channels = [*self._waiters]
        return pack("SUBSCRIBE", *channels) if channels else b""

    def deliver(self, node: int, message: Any) -> None:
        """A node says something."""
        if not isinstance(message, list) or len(message) != 3:
            return
        kind, channel, text = message
        if kind not in {b"message", b"subscribe"} or channel not in self._waiters:
            return
        told = channel, text if kind == b"message" else b""
        seen = self._heard.setdefault(told, set())
        seen.add(node)
        if len(seen) >= self._quorum:
            del self._heard[told]
            self.ring(channel, everyone=kind == b"subscribe")
        elif len(self._heard) > HEARD:
            self._heard.clear()

    def ring(self, key: bytes, *, everyone: bool = False) -> None:
        """Nudge the first who was not nudged yet, or all."""
        for waiter in [*self._waiters.get(key, ())]:
            if not waiter.rung:
                waiter.rung = True
                waiter.signal.notify()
                if not everyone:
                    return

    def wake(self) -> None:
        """The client is closing: end every wait. From any thread."""
        self.ended = True
        for key in [*self._waiters]:
            self.ring(key, everyone=True)

    async def wait(self, waiter: Waiter, deadline: float) -> None:
        """Wait for a nudge."""
        raise NotImplementedError

    def _say(self, call: bytes) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        """Stop listening."""
        raise NotImplementedError

    def drop(self) -> None:
        """In a forked child: the parent goes on listening."""
        raise NotImplementedError


class BlockingListener(Listener):
    """Nudges for threads."""

    def __init__(self, wire: BlockingWire) -> None:
        super().__init__(len(wire.nodes))
        self._links = Links(wire, self.deliver)
        self._links.opening = self.opening
        self._unsaid: list[bytes] = []
        self._reading = locks.lock()
        self._closed = False

    async def wait(self, waiter: Waiter, deadline: float) -> None:
        try:
            while not waiter.rung and not self.ended:
                left = deadline - clock.now()
                if left <= 0:
                    return
                if self._reading.acquire(blocking=False):
                    try:
                        if not waiter.rung:
                            self._read(left)
                    finally:
                        self._reading.release()
                else:
                    await waiter.signal.wait(left)
        finally:
            waiter.rung = False
            self._appoint(waiter)
            if self._closed:
                self._end()

    def _read(self, left: float) -> None:
        links = self._links
        try:
            self._speak()
            now = clock.now()
            if not links.whole:
                links.connect(now, now)
            links.pump(left if links.whole else min(left, 0.1))
        except BaseException:
            links.close()
            raise

    def _speak(self) -> None:
        while self._unsaid:
            call = self._unsaid.pop(0)
            for link in [*self._links.links]:
                if link is not None:
                    self._links.post(link, call)

    def _appoint(self, leaving: Waiter) -> None:
        """Wake somebody who may read, since the reader has gone."""
        for waiters in [*self._waiters.values()]:
            for waiter in [*waiters]:
                if waiter is not leaving and not waiter.rung:
                    waiter.signal.notify()
                    return

    def _say(self, call: bytes) -> None:
        self._unsaid.append(call)
        if self._waiters:
            self._links.wake()
        elif self._reading.acquire(blocking=False):  # nobody reads any more: say goodbye ourselves
            try:
                self._speak()
            finally:
                self._reading.release()

    def wake(self) -> None:
        super().wake()
        self._links.wake()

    async def close(self) -> None:
        self.wake()
        self._closed = True
        self._end()

    def _end(self) -> None:
        # If there is a reader, it ends them when it leaves. This cannot wait for it: the reader may be this
        # very thread, interrupted by a signal handler that closes the client.
        if self._reading.acquire(blocking=False):
            try:
                self._links.end()
            finally:
                self._reading.release()

    def drop(self) -> None:
        self._links.drop()


class AsyncioListener(Listener):
    """Nudges for tasks."""

    def __init__(self, wire: MultiplexedWire) -> None:
        super().__init__(len(wire.nodes))
        self._wire = wire
        wire.deliver = self.deliver
        wire.opening = self.opening

    async def wait(self, waiter: Waiter, deadline: float) -> None:
        if not waiter.rung and not self.ended:
            if None in self._wire.connections:
                await self._wire.connect(clock.now())
            await waiter.signal.wait(deadline - clock.now())
        waiter.rung = False

    def _say(self, call: bytes) -> None:
        for connection in self._wire.connections:
            if connection is not None:
                connection.post(call)

    async def close(self) -> None:
        self.wake()
        await self._wire.close()

    def drop(self) -> None:
        self._wire.drop()
