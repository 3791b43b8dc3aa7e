"""Calls on a connection: when it writes, what the server says to a call, and how a watch ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import h2.events
import pytest

from fencelock.backends.etcd.calls import Calls, Question, Reply, Watching
from fencelock.net.connecting import Connector, Target
from fencelock.net.exchange import Connection
from fencelock.net.failures import Disconnected
from fencelock.net.stream import Stream
from fencelock.runtime import clock
from fencelock.runtime.asyncio import AsyncioRuntime
from unit.backends.etcd_server import CALL, Server, framed


class Paper(Connector):
    """Connects to the other end of a socket pair, and notes what is written."""

    def __init__(self, runtime: AsyncioRuntime) -> None:
        super().__init__(runtime)
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.theirs.setblocking(False)
        self.stream = Stream(self.ours, runtime.readiness(self.ours))

    async def open(self, target: Target, deadline: float) -> Stream:
        return self.stream

    def take(self) -> bytes:
        """Return what was written since the last time."""
        try:
            return self.theirs.recv(1 << 20)
        except BlockingIOError:
            return b""

    async def say(self, server: Server) -> None:
        """Let the server say what it has to say, and the client hear it."""
        self.theirs.sendall(server.h2.data_to_send())
        await asyncio.sleep(0.02)


class Talk:
    """A connection, and the server at its other end, which have greeted each other."""

    def __init__(self) -> None:
        runtime = AsyncioRuntime()
        self.paper, self.server = Paper(runtime), Server()
        target = Target("h:2379")
        self.connection: Connection[Question, Reply] = Connection(
            runtime, self.paper, target, Calls(target.endpoint, "http")
        )

    async def greet(self) -> None:
        await self.connection.open(clock.now() + 10)
        first = await self.ask(b"hello")
        await self.answer(1, b"hello")
        assert (await first).message == b"hello"

    async def ask(self, body: bytes) -> asyncio.Task[Reply]:
        """Ask in the background, up to where the question is written."""
        question = Question(CALL, (), body)
        task = asyncio.create_task(self.connection.ask(question, clock.now() + 10))
        await asyncio.sleep(0.02)
        return task

    async def answer(self, call: int, *messages: bytes) -> None:
        self.server.take(self.paper.take())
        self.server.answer(call, *messages)
        await self.paper.say(self.server)

    def pongs(self) -> int:
        events = self.server.h2.receive_data(self.paper.take())
        return sum(isinstance(event, h2.events.PingAckReceived) for event in events)


async def beside_a_call(talk: Talk) -> None:
    """That the client is there is said with the next call: a write by itself only wakes the server."""
    first = await talk.ask(b"ping")
    talk.server.take(talk.paper.take())
    talk.server.h2.ping(b"12345678")
    await talk.paper.say(talk.server)
    assert talk.paper.take() == b""
    talk.server.answer(3, b"pong")
    await talk.paper.say(talk.server)
    assert (await first).message == b"pong"
    assert talk.paper.take() == b""
    second = await talk.ask(b"ping")
    assert talk.pongs() == 1
    await talk.answer(5, b"pong")
    assert (await second).message == b"pong"


async def room_for_the_rest(talk: Talk) -> None:
    """What the server's window had no room for follows as soon as it has."""
    talk.server.generous = False
    call = await talk.ask(b"x" * 100_000)
    talk.server.take(talk.paper.take())
    assert len(talk.server.bodies[3]) < 100_000
    talk.server.h2.increment_flow_control_window(1 << 20, 3)
    talk.server.h2.increment_flow_control_window(1 << 20)
    await talk.paper.say(talk.server)
    await talk.answer(3, b"pong")
    assert talk.server.bodies[3] == framed(b"x" * 100_000)
    assert (await call).message == b"pong"


async def answers_out_of_order(talk: Talk) -> None:
    """Calls do not wait for each other, and each gets its own answer."""
    calls = [await talk.ask(b"%d" % number) for number in range(3)]
    for call in (7, 3, 5):
        await talk.answer(call, b"to %d" % call)
    assert [(await call).message for call in calls] == [b"to 3", b"to 5", b"to 7"]


async def refusals(talk: Talk) -> None:
    """A refusal is an answer, and so is one without a message."""
    refused, empty = await talk.ask(b"one"), await talk.ask(b"two")
    talk.server.take(talk.paper.take())
    talk.server.refuse(3, b"14", b"etcdserver: no leader")
    await talk.paper.say(talk.server)
    await talk.answer(5)
    reply = await refused
    assert (reply.status.code, reply.status.detail, reply.message) == (14, "etcdserver: no leader", None)
    reply = await empty
    assert (reply.status.code, reply.message) == (0, None)
    assert talk.connection.is_usable()


async def a_goodbye(talk: Talk) -> None:
    """Calls that the server knows are answered; none is made on that connection any more."""
    call = await talk.ask(b"ping")
    talk.server.take(talk.paper.take())
    talk.server.h2.close_connection(last_stream_id=3)
    farewell = talk.server.h2.data_to_send()
    talk.paper.theirs.sendall(farewell)
    await asyncio.sleep(0.02)
    assert not call.done()
    assert talk.connection.is_over
    with pytest.raises(Disconnected):
        await talk.connection.ask(Question(CALL, (), b"late"), clock.now() + 10)
    call.cancel()


async def one_that_left(talk: Talk) -> None:
    """The answer to a call that was cancelled is nobody's, and the others go on."""
    left, other = await talk.ask(b"one"), await talk.ask(b"two")
    left.cancel()
    await asyncio.sleep(0.02)
    await talk.answer(3, b"late")
    await talk.answer(5, b"pong")
    assert (await other).message == b"pong"
    assert talk.connection.load == 0


SCENES: list[Callable[[Talk], Awaitable[None]]] = [
    beside_a_call,
    room_for_the_rest,
    answers_out_of_order,
    refusals,
    a_goodbye,
    one_that_left,
]


@pytest.mark.parametrize("scene", SCENES)
def test_calls(scene: Callable[[Talk], Awaitable[None]]) -> None:
    async def play() -> None:
        talk = Talk()
        await talk.greet()
        try:
            await scene(talk)
        finally:
            talk.connection.close()
            talk.paper.theirs.close()

    asyncio.run(play())


def test_a_watch_is_one_call_of_many_messages() -> None:
    watching, server = Watching("h:2379", "http", CALL, (("token", "abc"),)), Server()

    def heard() -> list[tuple[int, Any]]:
        return list(watching.feed(server.h2.data_to_send()))

    assert watching.ask(b"one") == 1
    server.take(watching.outgoing())
    assert heard() == []
    assert server.headers[1][b"token"] == b"abc"
    assert (server.bodies[1], server.ended) == (framed(b"one"), [])
    server.begin(1)
    server.h2.send_data(1, framed(b"yes") + framed(b"and"))
    assert heard() == [(1, b"yes"), (1, b"and")]
    watching.ask(b"two")
    server.take(watching.outgoing())
    assert server.bodies[1] == framed(b"one") + framed(b"two")
    server.end(1, b"14", b"no leader")
    with pytest.raises(Disconnected, match="no leader"):
        heard()
