"""A connection, and the exchanges on it: a question, and its answer now or later.

A protocol is sans I/O: it makes bytes of questions, and answers of bytes. A connection has as many exchanges
under way as its protocol can. Of the threads or tasks that wait for an answer one reads, and hands the others
theirs. What the kernel has no room for waits in the stream's outbox, and one of them writes it. While answers
are awaited, what tasks ask in one turn of the loop is sent at once.

An exchange whose caller was interrupted or cancelled, or ran out of time, stays under way, under its tag:
cleanup must not overtake what it undoes, so it waits for that answer first (`settle`). If the caller left in
the middle of writing, nothing more can be written: the connection fails for all of them.

An attribute says whether one of them reads. It is tested and set with no call in between: neither a signal's
handler nor another thread can come there (docs/decisions/0025). A connection refers to nothing that refers
back to it, so one that an interrupt took out of its caller's hands is closed with the caller's frame.

Not promised: that a signal's handler can ask on a shared connection that its own thread is reading.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from typing import Generic, TypeVar

from fencelock.net.connecting import Connector, Target
from fencelock.net.failures import Disconnected
from fencelock.net.sansio import SansIO
from fencelock.net.stream import Stream
from fencelock.runtime import clock, locks
from fencelock.runtime.base import Runtime, Signal

__all__ = ["Connection"]

CONNECT = 1.5
"""Seconds that a server has to take a connection."""
Step = Callable[[float], Awaitable[None]]
GONE = "it closed the connection"
Q = TypeVar("Q")
A = TypeVar("A")


class Exchange(Generic[A]):
    """A question, and its answer once it has come."""

    __slots__ = ("answer", "number", "signal")

    def __init__(self) -> None:
        self.answer: A | None = None
        self.number: Hashable = None
        self.signal: Signal | None = None


class Connection(Generic[Q, A]):
    """One connection to one server."""

    def __init__(
        self, runtime: Runtime, connector: Connector, target: Target, protocol: SansIO[Q, A]
    ) -> None:
        self.endpoint = target.endpoint
        self.used = 0.0
        """When it last returned to its pool."""
        self.is_retired = False
        """Whether its pool has given its place to another."""
        self._runtime = runtime
        self._has_turns = runtime.flavour == "asyncio"
        """Its callers are tasks, which run in turns of a loop."""
        self._callers = 0
        """Some may have their answers, and have not run since: what they ask next goes with the others."""
        self._connector = connector
        self._target = target
        self._protocol = protocol
        self._stream: Stream | None = None
        self._lock = locks.rlock()
        self._open: dict[Hashable, Exchange[A]] = {}
        self._tagged: dict[str, Exchange[A]] = {}
        self._is_reading = self._is_writing = self._is_gathering = False
        self._is_torn = False
        """Half a question was sent, or an interrupt lost some of what had come: there is no more to it."""
        self._heard = 0.0
        self._has_abandoned = False
        """Some question was given up, and the kernel may not have sent it yet."""

    async def open(self, deadline: float) -> None:
        """Connect. Raises `OSError`."""
        self._stream = await self._connector.open(self._target, min(deadline, clock.now() + CONNECT))

    @property
    def is_open(self) -> bool:
        """Whether it was opened, and not closed since."""
        return self._stream is not None and self._stream.is_open

    @property
    def is_over(self) -> bool:
        """Whether no more may be asked here."""
        return self.is_retired or self._protocol.is_over or self._stream is None or not self._stream.is_open

    @property
    def load(self) -> int:
        """How many exchanges are under way."""
        return len(self._open)

    # Asking -------------------------------------------------------------------------------------

    async def ask(self, question: Q, deadline: float, tag: str = "") -> A:
        """Ask, and return the answer. Raises `OSError` and `Disconnected`."""
        began = clock.now()
        exchange: Exchange[A] = Exchange()
        self._callers += 1
        try:
            rest = self._put(question, exchange, tag)
            if rest is not None:
                await rest(deadline)
            answer = await self._answer(exchange, deadline)
        except BaseException as error:
            if isinstance(error, TimeoutError) and self._heard < began:
                self.retire()  # the server is silent to the others as well
            if not tag or self._is_torn:
                self._forget(exchange, tag)
            raise
        finally:
            self._callers -= 1
        if tag:
            self._tagged.pop(tag, None)
        return answer

    def _put(self, question: Q, exchange: Exchange[A], tag: str) -> Step | None:
        """Hand a question to the kernel; return what is left to be done for it."""
        assert self._stream is not None
        with self._lock:
            if self.is_over:
                raise Disconnected(GONE)
            try:
                exchange.number = number = self._protocol.ask(question)
                if tag:
                    self._tagged[tag] = exchange
                self._open[number] = exchange
                if self._is_gathering:
                    return None
                if self._has_turns and self._callers > 1:
                    self._is_gathering = True
                    return self._gather
                self._stream.put(self._protocol.outgoing())
            except BaseException:
                self.retire()  # how much was sent is not known
                raise
            return self._write if self._stream.has_unsent else None

    async def _gather(self, deadline: float) -> None:
        """Let other tasks ask in this turn of the loop, and send what all have asked: a write costs more."""
        try:
            await self._runtime.sleep(0.0)
        except BaseException:
            with suppress(OSError):
                if self._sends_gathered():
                    self._break()
            raise
        if self._sends_gathered():
            await self._write(deadline)

    def _sends_gathered(self) -> bool:
        """Send what was gathered; say whether the kernel had no room for all of it."""
        assert self._stream is not None
        with self._lock:
            self._is_gathering = False
            try:
                self._stream.put(self._protocol.outgoing())
            except BaseException:
                self._break()  # for the others as well, whose questions these are
                raise
            return self._stream.has_unsent and not self._is_writing

    async def _write(self, deadline: float) -> None:
        """Write the outbox, unless another does."""
        assert self._stream is not None
        try:
            with self._lock:
                if self._is_writing:
                    return
                self._is_writing = True
            while self._is_writing:
                await self._stream.writable(deadline)
                with self._lock:
                    self._stream.put(b"")
                    self._is_writing = self._stream.has_unsent
        except BaseException:
            self._break()
            raise

    def _break(self) -> None:
        """Half a question was sent, and nothing may follow it."""
        self._tear()
        self.hang_up()  # for the one that waits for data

    def _tear(self) -> None:
        self._is_torn = True
        self.retire()
        self._call_next_reader()

    async def _answer(self, exchange: Exchange[A], deadline: float) -> A:
        """Read, or wait while another does."""
        try:
            while exchange.answer is None:
                if self._is_torn:
                    raise Disconnected(GONE)
                if not self._is_reading:
                    self._is_reading = True
                    try:
                        while exchange.answer is None and not self._is_torn:
                            await self._read(deadline)
                    finally:
                        self._is_reading = False
                        if self._open:
                            self._call_next_reader()
                elif exchange.signal is None:
                    exchange.signal = self._runtime.signal()  # then look again: the reader may just have left
                elif (left := deadline - clock.now()) <= 0:
                    raise TimeoutError("no answer in time")
                else:
                    await exchange.signal.wait(left)
        except BaseException:
            exchange.signal = None
            if not self._is_reading:  # it may have been called to do it
                self._call_next_reader()
            raise
        return exchange.answer

    async def _read(self, deadline: float) -> None:
        assert self._stream is not None
        await self._stream.readable(deadline)
        try:
            data = self._stream.take()
            if data is None:
                return
            self._heard = clock.now()
            with self._lock:
                for number, answer in self._protocol.feed(data):
                    exchange = self._open.pop(number, None)
                    if exchange is not None:  # else its caller has left
                        exchange.answer = answer
                        if exchange.signal is not None:
                            exchange.signal.notify()
                if self._protocol.is_urgent:
                    self._stream.put(self._protocol.outgoing())
            if self._stream.has_unsent:
                await self._write(deadline)
        except BaseException:
            self._tear()
            raise

    def _call_next_reader(self) -> None:
        for exchange in list(self._open.values()):
            if exchange.signal is not None:
                exchange.signal.notify()
                if not self._is_torn:
                    return  # it reads; all others wait on

    # Between exchanges --------------------------------------------------------------------------

    def is_usable(self) -> bool:
        """Take in what has come since the last answer; say whether another question may be asked."""
        if self._stream is None or self.is_over:
            return False
        if self._open:
            return True  # one of those who wait for their answers reads
        try:
            while (data := self._stream.take()) is not None:
                for _ in self._protocol.feed(data):
                    return False  # an answer that was not asked for
        except (Disconnected, OSError):
            return False
        return True

    async def settle(self, tag: str, deadline: float) -> A | None:
        """Wait for the answer of the exchange of this tag; `None` if there is none any more."""
        exchange = self._tagged.get(tag)
        if exchange is None:
            return None
        answer = await self._answer(exchange, deadline)
        self._tagged.pop(tag, None)
        return answer

    def has(self, tag: str) -> bool:
        """Whether an exchange of this tag is under way."""
        return tag in self._tagged

    def forget(self, tag: str) -> None:
        """Wait no more for the exchange of this tag."""
        exchange = self._tagged.get(tag)
        if exchange is not None:
            self._forget(exchange, tag)

    def _forget(self, exchange: Exchange[A], tag: str) -> None:
        if self._open.pop(exchange.number, None) is not None:
            self._has_abandoned = True
        if self._tagged.get(tag) is exchange:
            self._tagged.pop(tag, None)

    # The end ------------------------------------------------------------------------------------

    def retire(self) -> None:
        """Take no more questions; the exchanges under way go on."""
        self.is_retired = True

    def hang_up(self) -> None:
        """Let those who wait here see the end at once. From any thread."""
        if self._stream is not None:
            self._stream.hang_up()

    def close(self) -> None:
        """Close it. A question that was given up and is not sent yet is not sent any more."""
        if self._stream is not None:
            self._stream.abort() if self._open or self._has_abandoned else self._stream.close()

    def drop(self) -> None:
        """In a forked child: close the child's copy of the socket, and nothing else."""
        if self._stream is not None:
            self._stream.drop()
