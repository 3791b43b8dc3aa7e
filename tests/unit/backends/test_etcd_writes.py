"""When a connection writes: with a call, and by itself only if the server may be waiting for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import h2.events
import pytest

from fencelock.backends.etcd.nonblocking import Line
from fencelock.runtime import clock
from unit.backends.etcd_server import CALL, Server, framed


class Paper(asyncio.Transport):
    """A transport that only notes what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return False

    def take(self) -> bytes:
        """Return what was written since the last time."""
        data = b"".join(self.writes)
        self.writes.clear()
        return data


async def talking() -> tuple[Line, Paper, Server]:
    line, paper, server = Line("h", "http"), Paper(), Server()
    line.connection_made(paper)
    server.take(paper.take())
    line.data_received(server.h2.data_to_send())
    server.take(paper.take())
    return line, paper, server


def pongs(server: Server, data: bytes) -> int:
    return sum(isinstance(event, h2.events.PingAckReceived) for event in server.h2.receive_data(data))


async def alone() -> None:
    line, paper, server = await talking()
    server.h2.ping(b"12345678")
    line.data_received(server.h2.data_to_send())
    assert len(paper.writes) == 1
    assert pongs(server, paper.take()) == 1


async def beside_a_call() -> None:
    line, paper, server = await talking()

    async def call() -> bytes:
        return await line.call(CALL, (), b"ping", clock.now() + 10)

    first = asyncio.create_task(call())
    await asyncio.sleep(0.01)
    server.take(paper.take())
    server.h2.ping(b"12345678")
    line.data_received(server.h2.data_to_send())
    assert paper.writes == []
    server.answer(1, b"pong")
    line.data_received(server.h2.data_to_send())
    assert await first == b"pong"
    assert paper.writes == []
    second = asyncio.create_task(call())
    await asyncio.sleep(0.01)
    assert len(paper.writes) == 1
    assert pongs(server, paper.take()) == 1
    server.answer(3, b"pong")
    line.data_received(server.h2.data_to_send())
    assert await second == b"pong"


async def room_for_the_rest() -> None:
    line, paper, server = await talking()
    server.generous = False
    call = asyncio.create_task(line.call(CALL, (), b"x" * 100_000, clock.now() + 10))
    await asyncio.sleep(0.01)
    server.take(paper.take())
    server.h2.increment_flow_control_window(1 << 20, 1)
    server.h2.increment_flow_control_window(1 << 20)
    line.data_received(server.h2.data_to_send())
    server.take(paper.take())
    assert server.bodies[1] == framed(b"x" * 100_000)
    server.answer(1, b"pong")
    line.data_received(server.h2.data_to_send())
    assert await call == b"pong"


@pytest.mark.parametrize("scene", [alone, beside_a_call, room_for_the_rest])
def test_writes(scene: Callable[[], Awaitable[None]]) -> None:
    async def play() -> None:
        await scene()

    asyncio.run(play())
