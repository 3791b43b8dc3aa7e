"""Channels: both sides speak when they want to, from any thread and in the middle of anything."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

from fencelock.net.channel import Channel
from fencelock.net.connecting import Connector, Target
from fencelock.net.failures import Disconnected
from fencelock.runtime.base import Runtime
from fencelock.runtime.blocking import BlockingRuntime, run

from .peer import FLAVOURS, Frames, Peer, drive, peer, soon

BIG = os.urandom(1 << 23)
MANY = 16


async def opened(runtime: Runtime, server: Peer, protocol: Frames | None = None) -> Channel[bytes, bytes]:
    channel = Channel(runtime, Connector(runtime), Target(server.endpoint), protocol or Frames())
    await channel.open(soon())
    return channel


async def received(channel: Channel[bytes, bytes], count: int) -> list[bytes]:
    answers: list[bytes] = []
    while len(answers) < count:
        answers += await channel.receive(soon())
    return answers


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_answers_come_by_themselves(flavour: str) -> None:
    async def main(runtime: Runtime) -> None:
        with peer() as server:
            channel = await opened(runtime, server)
            channel.put(b"one")
            channel.put(b"two")
            await channel.send(b"three", soon())
            assert await received(channel, 3) == [b"ONE", b"TWO", b"THREE"]
            with pytest.raises(TimeoutError):
                while True:  # a wait may end early
                    assert await channel.receive(soon(0.05)) == []
            channel.put(b"four")
            assert await received(channel, 1) == [b"FOUR"]
            channel.close()

    drive(flavour, main)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_the_kernel_has_no_room_for_is_written_in_the_end(flavour: str) -> None:
    async def main(runtime: Runtime) -> None:
        with peer() as server:
            server.reads.clear()
            channel = await opened(runtime, server)
            channel.put(BIG)
            channel.put(b"small")
            assert server.asked == []
            server.reads.set()
            await channel.send(b"last", soon())
            assert await received(channel, 3) == [BIG.upper(), b"SMALL", b"LAST"]
            channel.close()

    drive(flavour, main)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_an_answer_takes_along_what_was_left(flavour: str) -> None:
    class Chatty(Frames):
        """Has something to say to each answer, by itself."""

        def feed(self, data: bytes) -> Any:
            found = super().feed(data)
            if self._last < 3:
                self.ask(b"and %d" % self._last)
            return found

    async def main(runtime: Runtime) -> None:
        with peer() as server:
            channel = await opened(runtime, server, Chatty())
            channel.put(b"one")
            assert await received(channel, 3) == [b"ONE", b"AND 1", b"AND 2"]
            channel.close()

    drive(flavour, main)


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("by", ["server", "hang up", "close"])
def test_the_end_is_seen_by_who_receives(flavour: str, by: str) -> None:
    async def main(runtime: Runtime) -> None:
        with peer() as server:
            channel = await opened(runtime, server)
            channel.put(b"one")
            assert await received(channel, 1) == [b"ONE"]
            {"server": server.cut, "hang up": channel.hang_up, "close": channel.close}[by]()
            with pytest.raises((Disconnected, OSError)) as raised:
                while True:
                    await channel.receive(soon())
            assert not isinstance(raised.value, TimeoutError)
            channel.put(b"too late")
            await channel.send(b"too late", soon())
            channel.close()

    drive(flavour, main)


def test_threads_send_on_one_channel() -> None:
    with peer() as server:
        channel = run(opened(BlockingRuntime(), server))

        def work(name: int) -> None:
            for number in range(100):
                run(channel.send(b"%d of %d " % (number, name) * (1 + 500 * (number % 7 == 0)), soon()))

        threads = [threading.Thread(target=work, args=(name,)) for name in range(MANY)]
        for thread in threads:
            thread.start()
        answers = run(received(channel, 100 * MANY))
        for thread in threads:
            thread.join(60)
        assert {answer.upper() for answer in server.asked} == set(answers)
        channel.close()


def test_another_thread_hangs_up() -> None:
    with peer() as server:
        channel = run(opened(BlockingRuntime(), server))
        threading.Timer(0.1, channel.hang_up).start()
        with pytest.raises(Disconnected):
            run(channel.receive(soon()))
        channel.close()


def in_the_middle(step: Callable[[], Any], what: Callable[[], Any], place: int) -> bool:
    """Take a step, and do something at one of its places; say whether there is such a place."""
    left = [place]

    def look(frame: FrameType, event: str, function: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            sys.setprofile(None)
            what()

    sys.setprofile(look)
    try:
        step()
        sys.setprofile(None)
    except KeyboardInterrupt:
        pass
    return left[0] <= 0


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("by", ["an interrupt", "another question"])
def test_a_question_is_whole_or_the_last_one(by: str) -> None:
    with peer() as server:
        heard: list[list[bytes]] = []
        is_there = True
        while is_there:
            channel = run(opened(BlockingRuntime(), server))
            first, second = partial(channel.put, b"first"), partial(channel.put, b"second")
            what = second if by == "another question" else interrupt
            is_there = in_the_middle(first, what, len(heard) + 1)
            if by == "an interrupt" or not is_there:
                second()
            heard.append(whole(channel))
            channel.close()
    assert len(heard) > 5
    assert heard[-1] == [b"FIRST", b"SECOND"]
    assert any(b"SECOND" not in answers for answers in heard), "in the middle of one nothing can be sent"


def whole(channel: Channel[bytes, bytes]) -> list[bytes]:
    """Receive until the second answer has come, or the channel has ended."""
    answers: list[bytes] = []
    try:
        while b"SECOND" not in answers:
            answers += run(channel.receive(soon()))
    except (Disconnected, OSError) as error:
        assert not isinstance(error, TimeoutError)
    assert set(answers) <= {b"FIRST", b"SECOND"}
    return answers
