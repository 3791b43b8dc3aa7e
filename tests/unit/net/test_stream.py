"""Streams, on socket pairs: partial writes, the end, signals and deadlines, hanging up, forks."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Iterator

import pytest

from fencelock.net.connecting import Connector, Target
from fencelock.net.stream import Stream
from fencelock.runtime.base import Runtime
from unit.support import in_fork

from .peer import FLAVOURS, LOOPS, Frames, drive, peer, soon

BIG = os.urandom(1 << 23)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.settimeout(20)
        yield ours, theirs


def receive(sock: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length and (came := sock.recv(1 << 16)):
        data += came
    return bytes(data)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_the_kernel_has_no_room_for_waits_in_order(
    flavour: str, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(receive(theirs, len(BIG) + 6)))

    async def main(runtime: Runtime) -> None:
        stream = Stream(ours, runtime.readiness(ours))
        stream.put(BIG)
        assert stream.has_unsent
        stream.put(b"behind")
        reader.start()
        while stream.has_unsent:
            await stream.writable(soon())
            stream.put(b"")
        stream.close()

    drive(flavour, main)
    reader.join(20)
    assert got == [BIG + b"behind"]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_wait_takes_nothing(flavour: str, pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair

    async def main(runtime: Runtime) -> None:
        stream = Stream(ours, runtime.readiness(ours))
        assert stream.take() is None
        with pytest.raises(TimeoutError):
            await stream.readable(soon(0.01))
        theirs.send(b"data")
        await stream.readable(soon())
        await stream.readable(soon())
        assert stream.take() == b"data"
        assert stream.take() is None
        theirs.close()
        await stream.readable(soon())
        assert stream.take() == b""
        stream.close()
        assert not stream.is_open
        with pytest.raises(ConnectionAbortedError):
            await stream.readable(soon())
        stream.close()

    drive(flavour, main)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_writer_waits_until_its_deadline(flavour: str, pair: tuple[socket.socket, socket.socket]) -> None:
    ours, _ = pair

    async def main(runtime: Runtime) -> None:
        stream = Stream(ours, runtime.readiness(ours))
        stream.put(BIG)
        with pytest.raises(TimeoutError):
            await stream.writable(soon(0.01))
        stream.close()

    drive(flavour, main)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_signals_do_not_move_a_deadline(flavour: str, pair: tuple[socket.socket, socket.socket]) -> None:
    """A wait that began anew with each signal would never end."""
    ours, _ = pair
    ticks: list[int] = []

    async def main(runtime: Runtime) -> None:
        stream = Stream(ours, runtime.readiness(ours))
        with pytest.raises(TimeoutError):
            await stream.readable(soon(0.2))
        stream.close()

    before = signal.signal(signal.SIGALRM, lambda *_: ticks.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    try:
        drive(flavour, main)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert ticks


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_hanging_up_ends_a_wait_of_another_thread(
    flavour: str, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, _ = pair

    async def main(runtime: Runtime) -> None:
        stream = Stream(ours, runtime.readiness(ours))
        timer = threading.Timer(0.05, stream.hang_up)
        timer.start()
        await stream.readable(soon())
        assert stream.take() == b""
        timer.join()
        stream.close()
        stream.hang_up()

    drive(flavour, main)


@pytest.mark.parametrize("loop", LOOPS)
def test_closing_ends_the_waits_of_other_tasks(loop: str, pair: tuple[socket.socket, socket.socket]) -> None:
    ours, _ = pair

    async def main(runtime: Runtime) -> None:
        stream = Stream(ours, runtime.readiness(ours))
        stream.put(BIG)
        waits = [asyncio.create_task(wait(soon())) for wait in (stream.readable, stream.writable)]
        await asyncio.sleep(0)
        stream.close()
        await asyncio.gather(*waits)

    drive(loop, main)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_wait_that_is_cancelled_can_be_made_again(
    loop: str, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair

    async def main(runtime: Runtime) -> None:
        stream = Stream(ours, runtime.readiness(ours))
        for _ in range(5):
            task = asyncio.create_task(stream.readable(soon()))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        theirs.send(b"x" * 10)  # the loop calls a few times for nothing, and stops
        for _ in range(10):
            await asyncio.sleep(0.001)
        await stream.readable(soon())
        assert stream.take() == b"x" * 10
        stream.close()

    drive(loop, main)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_forked_child_lets_go_of_the_parents_socket(
    flavour: str, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair

    async def main(runtime: Runtime) -> None:
        stream = Stream(ours, runtime.readiness(ours))
        with pytest.raises(TimeoutError):
            await stream.readable(soon(0.01))  # a loop watches it now

        def in_the_child() -> bool:
            stream.drop()
            stream.drop()
            return stream.is_open

        assert in_fork(in_the_child) is False
        theirs.send(b"data")
        await stream.readable(soon())
        assert stream.take() == b"data"
        stream.put(b"more")
        assert theirs.recv(10) == b"more"
        stream.close()

    drive(flavour, main)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_aborting_sends_no_more(flavour: str) -> None:
    async def main(runtime: Runtime) -> None:
        with peer() as server:
            server.reads.clear()
            stream = await Connector(runtime).open(Target(server.endpoint), soon())
            frames = Frames()
            frames.ask(BIG)
            stream.put(frames.outgoing())
            assert stream.has_unsent
            stream.abort()
            server.reads.set()
        assert server.asked == []

    drive(flavour, main)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_no_server_is_told_at_once(flavour: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = f"127.0.0.1:{listener.getsockname()[1]}"

    async def main(runtime: Runtime) -> None:
        with pytest.raises(ConnectionRefusedError):
            await Connector(runtime).open(Target(endpoint), soon())

    drive(flavour, main)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_server_that_does_not_take_the_connection(flavour: str) -> None:
    """Its queue is full, so the kernel drops what would open another."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        address = listener.getsockname()
        taken = [socket.socket() for _ in range(3)]
        for sock in taken:
            sock.setblocking(False)
            sock.connect_ex(address)

        async def main(runtime: Runtime) -> None:
            with pytest.raises(TimeoutError):
                await Connector(runtime).open(Target(f"127.0.0.1:{address[1]}"), soon(0.1))

        drive(flavour, main)
        for sock in taken:
            sock.close()
