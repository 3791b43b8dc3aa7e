"""A channel: a connection on which both sides speak when they want to, and no answer belongs to a question.

One thread or task receives. Any may send, also a signal's handler. What the kernel has no room for waits in
the outbox, and the next question or answer takes it along.

Not promised: that what was sent has arrived. Once a channel has failed, `receive` says so, and only there.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TypeVar

from fencelock.net.exchange import Connection
from fencelock.net.failures import Disconnected

__all__ = ["Channel"]

Q = TypeVar("Q")
A = TypeVar("A")


class Channel(Connection[Q, A]):
    """One channel to one server."""

    _is_speaking = False
    """A thread is in the middle of it, with the lock; so only a signal's handler of that thread sees this."""

    def put(self, question: Q) -> None:
        """Send a question without waiting. If that fails, the channel ends."""
        with self._lock:
            if self._is_speaking:
                self.hang_up()  # half a question is on its way, and nothing may follow it
                return
            self._is_speaking = True
            try:
                if not self.is_over:
                    self._protocol.ask(question)
                    self._flush()
            except (Disconnected, OSError):
                self.hang_up()
            except BaseException:
                self.hang_up()
                raise
            finally:
                self._is_speaking = False

    async def send(self, question: Q, deadline: float) -> None:
        """Send a question, and wait until the kernel has taken it. If that fails, the channel ends."""
        self.put(question)
        if self._stream is not None and self._stream.has_unsent:
            with suppress(Disconnected, OSError):
                await self._write(deadline)

    async def receive(self, deadline: float) -> list[A]:
        """Wait, and return the answers that have come, if any. Raises `OSError` and `Disconnected`."""
        assert self._stream is not None
        await self._stream.readable(deadline)
        with self._lock:
            self._is_speaking = True
            try:
                data = self._stream.take()
                if data is None:
                    return []
                answers = [answer for _, answer in self._protocol.feed(data)]
                self._flush()
                return answers
            finally:
                self._is_speaking = False

    def _flush(self) -> None:
        assert self._stream is not None
        self._stream.put(self._protocol.outgoing())

    def close(self) -> None:
        with self._lock:  # no question is on its way while the socket's number becomes another's
            super().close()
