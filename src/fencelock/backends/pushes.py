"""Pushes: a waiter is told that its turn has come, over one listening connection for its whole client.

Whoever leaves a queue hands the lock to the next waiter in the same step and pushes the grant, with the
waiter's owner id and token, to the waiter's client. A push counts only for the token that the waiter
stood in the queue with when it was last told to wait: a push from before an expiry, still on
its way, means nothing.

A push may come before the reply that tells to wait, over the other connection; so pushes for owners that
are not known yet are kept for a while. Pushes are lost while the connection is down: `wait` then
listens anew and answers "nothing", and the waiter looks for itself.

Blocking, nobody reads but those who wait: one of them reads for all, and when it leaves, it makes another
the reader. So the one waiter of a process reads its own push, and no thread stands between. Under
asyncio the event loop reads. How a connection is made and read is the backend's part.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

from fencelock.runtime import clock, locks

__all__ = ["Listener", "Lost", "TaskListener", "ThreadListener"]

EARLY = 1024
Lost = Callable[[str, str], None]


class Early:
    """Pushes for owners that nobody waits for yet, the latest so many."""

    def __init__(self) -> None:
        self._tokens: dict[str, int] = {}

    def put(self, owner: str, token: int) -> None:
        if len(self._tokens) >= EARLY:
            self._tokens.clear()  # they cost latency, not liveness
        self._tokens[owner] = token

    def take(self, owner: str) -> int | None:
        return self._tokens.pop(owner, None) if self._tokens else None


class Listener(ABC):
    """Pushes for all who wait in one client."""

    def __init__(self, lost: Lost) -> None:
        self._lost = lost
        self._early = Early()
        self._ended = False

    @abstractmethod
    async def wait(self, owner: str, token: int, deadline: float) -> bool:
        """Return whether the request was pushed a grant under this token, by the deadline."""

    @abstractmethod
    def granted(self, owner: str, token: int) -> None:
        """A grant was pushed: tell whoever waits for it, or keep it for who will."""

    @abstractmethod
    def wake(self) -> None:
        """The client is closing: end every wait, and those that are still to come. From any thread."""

    @abstractmethod
    async def close(self) -> None:
        """Stop listening."""

    @abstractmethod
    def drop(self) -> None:
        """In a forked child: the parent goes on listening."""

    def deliver(self, push: str) -> None:
        """Pass a push on: a letter (g: granted, x: force-released), the owner and its token."""
        owner = push[1:33]
        if push[0] == "x":
            self._lost(owner, "it was force-released")
        else:
            self.granted(owner, int(push[33:]))


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


class ThreadListener(Listener):
    """Pushes for the threads of a client."""

    def __init__(self, lost: Lost) -> None:
        super().__init__(lost)
        self._reading = locks.lock()
        self._slots: dict[str, Slot] = {}

    async def wait(self, owner: str, token: int, deadline: float) -> bool:
        slot = self._slots[owner] = Slot()
        slot.token = self._early.take(owner)
        try:
            while slot.token != token and not slot.stale and not self._ended:
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

    @abstractmethod
    async def _read(self, deadline: float) -> None:
        """Read what there is, or listen anew; return after the first pushes, at the latest at `deadline`."""

    def wake(self) -> None:
        # A slot that comes later sees `_ended`. A signal handler may do this in the middle of `wait`, on the
        # thread that reads: nothing here takes a lock.
        self._ended = True
        self._all_look()
        self._end_read()

    def _end_read(self) -> None:
        """Let a `_read` that is under way return. On any thread, this one included: it must not block."""

    def _appoint(self) -> None:
        for slot in list(self._slots.values()):
            slot.tap()
            return

    def _all_look(self) -> None:
        """Let every waiter look for itself: pushes may have been lost."""
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


class TaskListener(Listener):
    """Pushes for the tasks of a client."""

    def __init__(self, lost: Lost) -> None:
        super().__init__(lost)
        self._opening: asyncio.Lock | None = None
        self._slots: dict[str, tuple[int, asyncio.Future[bool]]] = {}

    @abstractmethod
    def _is_listening(self) -> bool:
        """Whether there is a connection that pushes come over."""

    @abstractmethod
    async def _listen(self, deadline: float) -> None:
        """Listen anew. Called by one task at a time."""

    async def wait(self, owner: str, token: int, deadline: float) -> bool:
        if self._ended:
            return False
        if not self._is_listening():
            try:
                async with asyncio.timeout(max(0.0, deadline - clock.now())):
                    await self._listen_once(deadline)
            except TimeoutError:  # it may have waited for another that tries to listen
                pass
            return False
        if self._early.take(owner) == token:
            return True
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        self._slots[owner] = token, future
        timer = loop.call_later(max(0.0, deadline - clock.now()), _set, future, False)
        try:
            return await future
        finally:
            timer.cancel()
            del self._slots[owner]

    async def _listen_once(self, deadline: float) -> None:
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            if not self._is_listening():
                await self._listen(deadline)

    def wake(self) -> None:
        self._ended = True
        for _, future in list(self._slots.values()):
            loop = future.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(_set, future, False)

    def granted(self, owner: str, token: int) -> None:
        slot = self._slots.get(owner)
        if slot is None:
            self._early.put(owner, token)
        elif slot[0] == token:
            _set(slot[1], True)

    def _all_look(self) -> None:
        """Let every waiter look for itself: pushes may have been lost."""
        for _, future in self._slots.values():
            _set(future, False)


def _set(future: asyncio.Future[bool], value: bool) -> None:
    if not future.done():
        future.set_result(value)
