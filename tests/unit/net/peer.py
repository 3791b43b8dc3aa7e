"""What the tests of `net/` talk to: a small protocol, sans I/O, and a server of it on loopback.

A frame is its number, the length of its text, and the text. The server answers each with the text in
capitals, as soon as the test lets it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

from fencelock.net.connecting import Connector, Target
from fencelock.net.exchange import Connection
from fencelock.net.failures import Disconnected, Failures, WrongProtocol
from fencelock.net.pool import Pool
from fencelock.runtime.asyncio import AsyncioRuntime
from fencelock.runtime.base import Runtime
from fencelock.runtime.blocking import BlockingRuntime, run
from fencelock.runtime.clock import now

FLAVOURS = ["blocking", "asyncio", "uvloop"]
LOOPS = ["asyncio", "uvloop"]
HEAD = struct.Struct("!II")
FAR = 20.0
"""Seconds. A deadline that only ends what hangs."""
LARGEST = 1 << 26
FAILURES = Failures("paper", "it speaks something else")


def soon(seconds: float = FAR) -> float:
    """Return a deadline."""
    return now() + seconds


def drive(flavour: str, main: Callable[[Runtime], Awaitable[Any]]) -> Any:
    """Run a coroutine as a thread does, or on a loop."""

    async def on_loop() -> Any:
        return await main(AsyncioRuntime())

    async def on_thread() -> Any:
        return await main(BlockingRuntime())

    if flavour == "blocking":
        return run(on_thread())
    if flavour == "asyncio":
        return asyncio.run(on_loop())
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(on_loop())


class Frames:
    """The protocol."""

    is_urgent = False

    def __init__(self) -> None:
        self.is_over = False
        self._last = 0
        self._out = b""
        self._in = b""

    def ask(self, question: bytes) -> int:
        self._last += 1
        self._out += HEAD.pack(self._last, len(question)) + question
        return self._last

    def outgoing(self) -> bytes:
        out, self._out = self._out, b""
        return out

    def feed(self, data: bytes) -> Iterable[tuple[int, bytes]]:
        if not data:
            raise Disconnected("it closed the connection")
        self._in += data
        found = []
        while (frame := split(self._in)) is not None:
            number, text, self._in = frame
            self.is_over = self.is_over or text == b"BYE"
            found.append((number, text))
        return found


def split(data: bytes) -> tuple[int, bytes, bytes] | None:
    """Return the number and the text of the first frame, and what follows; `None` if it is not whole."""
    if len(data) < HEAD.size:
        return None
    number, length = HEAD.unpack_from(data)
    if length > LARGEST:
        raise WrongProtocol("no such frame")
    if len(data) < HEAD.size + length:
        return None
    return number, data[HEAD.size : HEAD.size + length], data[HEAD.size + length :]


class Peer:
    """The server. `asked` notes each question that was whole; an answer waits until `answers` is set."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.accepted = 0
        self.answers = threading.Event()
        self.answers.set()
        self.reads = threading.Event()
        self.reads.set()
        self.connections: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)  # less than long questions
        self.endpoint = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self.connections.append(sock)
                self.accepted += 1
                thread = threading.Thread(target=self._serve, args=(sock,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, sock: socket.socket) -> None:
        data = b""
        with contextlib.suppress(OSError), sock:
            while self.reads.wait(FAR) and (came := sock.recv(1 << 16)):
                data += came
                while (frame := split(data)) is not None:
                    number, text, data = frame
                    self.asked.append(text)
                    self.answers.wait(FAR)
                    sock.sendall(HEAD.pack(number, len(text)) + text.upper())

    @property
    def live(self) -> int:
        """How many connections are open."""
        return sum(sock.fileno() >= 0 for sock in list(self.connections))

    def cut(self) -> None:
        """End every connection."""
        for sock in list(self.connections):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.answers.set()
        self.reads.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(FAR)


@contextlib.contextmanager
def peer() -> Iterator[Peer]:
    """A server for a test."""
    one = Peer()
    try:
        yield one
    finally:
        one.close()


def connection(runtime: Runtime, endpoint: str) -> Connection[bytes, bytes]:
    """A connection to it that is yet to be opened."""
    return Connection(runtime, Connector(runtime), Target(endpoint), Frames())


def pool(runtime: Runtime, *, most: int = 1, idle: int = 1, share: int = 1) -> Pool[bytes, bytes]:
    """A pool of connections to it."""
    return Pool(
        runtime,
        FAILURES,
        lambda endpoint: connection(runtime, endpoint),
        most=most,
        idle=idle,
        share=share,
    )
