"""Connections: one reads for all, interrupted exchanges are settled, partial writes end cleanly."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import weakref

import pytest

from fencelock.net.exchange import Connection
from fencelock.net.failures import Disconnected
from fencelock.runtime.base import Runtime
from fencelock.runtime.blocking import BlockingRuntime, run
from unit.support import CancelAt, until, until_async

from .peer import FLAVOURS, LOOPS, Frames, connection, drive, peer, soon

BIG = os.urandom(1 << 23)
MANY = 16


async def opened(runtime: Runtime, endpoint: str) -> Connection[bytes, bytes]:
    one = connection(runtime, endpoint)
    await one.open(soon())
    return one


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_questions_are_answered(flavour: str) -> None:
    async def main(runtime: Runtime) -> None:
        with peer() as server:
            one = await opened(runtime, server.endpoint)
            for number in range(5):
                assert await one.ask(b"number %d" % number, soon()) == b"NUMBER %d" % number
            assert await one.ask(BIG, soon()) == BIG.upper()
            assert one.is_usable()
            assert await one.ask(b"bye", soon()) == b"BYE"
            one.close()
            assert not one.is_usable()

    drive(flavour, main)


@pytest.mark.parametrize("loop", LOOPS)
def test_tasks_share_a_connection(loop: str) -> None:
    async def main(runtime: Runtime) -> None:
        with peer() as server:
            one = await opened(runtime, server.endpoint)
            questions = [b"number %d" % number for number in range(200)]
            assert await asyncio.gather(*[one.ask(each, soon()) for each in questions]) == [
                each.upper() for each in questions
            ]
            assert (one.load, server.accepted) == (0, 1)
            one.close()

    drive(loop, main)


def test_threads_share_a_connection() -> None:
    with peer() as server:
        one = run(opened(BlockingRuntime(), server.endpoint))
        wrong: list[object] = []

        def work(name: int) -> None:
            for number in range(100):
                question = b"%d of %d " % (number, name) * (1 + 5000 * (number % 7 == 0))
                answer = run(one.ask(question, soon()))
                if answer != question.upper():
                    wrong.append((question, answer))

        threads = [threading.Thread(target=work, args=(name,)) for name in range(MANY)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not wrong
        assert (one.load, server.accepted, len(server.asked)) == (0, 1, 100 * MANY)
        one.close()


@pytest.mark.parametrize("loop", LOOPS)
def test_when_the_reader_leaves_another_reads(loop: str) -> None:
    """Whichever of them leaves, and however many have been told that it is their turn."""

    async def main(runtime: Runtime) -> None:
        with peer() as server:
            one = await opened(runtime, server.endpoint)
            server.answers.clear()
            tasks = [asyncio.create_task(one.ask(b"x", soon(), f"tag {n}")) for n in range(MANY)]
            assert await until_async(lambda: server.asked)
            for task in tasks[:-1]:
                task.cancel()
                if task in tasks[::3]:
                    await asyncio.sleep(0)
            server.answers.set()
            assert await tasks[-1] == b"X"
            for number in range(MANY - 1):
                assert await one.settle(f"tag {number}", soon()) == b"X"
                assert await one.settle(f"tag {number}", soon()) is None
            assert one.load == 0
            assert one.is_usable()
            one.close()

    drive(loop, main)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("loop", LOOPS)
def test_cancelling_at_each_await_leaves_a_connection_that_works(loop: str, late: bool) -> None:
    async def main(runtime: Runtime) -> None:
        with peer() as server:
            one = await opened(runtime, server.endpoint)
            for place in range(100):
                server.answers.clear()  # or the answer is there before it is waited for
                asyncio.get_running_loop().call_later(0.005, server.answers.set)
                work = CancelAt(one.ask(b"question", soon(), "tag"), place, late=late)

                async def step(work: CancelAt = work) -> None:
                    await work

                await asyncio.gather(asyncio.create_task(step()), return_exceptions=True)
                assert await one.settle("tag", soon()) in {None, b"QUESTION"}
                assert await one.ask(b"another", soon()) == b"ANOTHER"
                assert (one.load, len(server.asked)) == (0, 2 * place + 2)
                if not work.reached:
                    break
            assert place > 0
            one.close()

    drive(loop, main)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_question_that_is_cut_off_in_the_middle_ends_the_connection_for_all(loop: str) -> None:
    """Nothing may follow half a question: the server would take it for the other half."""

    async def main(runtime: Runtime) -> None:
        with peer() as server:
            one = await opened(runtime, server.endpoint)
            server.answers.clear()
            before = asyncio.create_task(one.ask(b"before", soon()))
            assert await until_async(lambda: server.asked)
            server.reads.clear()
            writer = asyncio.create_task(one.ask(BIG, soon(), "tag"))
            behind = [asyncio.create_task(one.ask(b"behind", soon())) for _ in range(3)]
            await asyncio.sleep(0.01)
            writer.cancel()
            for task in (before, *behind):
                with pytest.raises((Disconnected, ConnectionError)):
                    await task
            assert one.is_over
            assert await one.settle("tag", soon()) is None
            with pytest.raises(Disconnected):
                await one.ask(b"after", soon())
            one.close()
        assert set(server.asked) == {b"before"}

    drive(loop, main)


@pytest.mark.parametrize("loop", LOOPS)
def test_others_are_written_behind_a_long_question(loop: str) -> None:
    async def main(runtime: Runtime) -> None:
        with peer() as server:
            one = await opened(runtime, server.endpoint)
            server.reads.clear()
            tasks = [asyncio.create_task(one.ask(each, soon())) for each in (BIG, b"one", b"two")]
            await asyncio.sleep(0.01)
            tasks[1].cancel()  # it was not the one that writes
            await asyncio.sleep(0.01)
            server.reads.set()
            assert await tasks[0] == BIG.upper()
            assert await tasks[2] == b"TWO"
            assert server.asked == [BIG, b"one", b"two"]
            assert one.is_usable()
            one.close()

    drive(loop, main)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_server_that_falls_silent(flavour: str) -> None:
    async def main(runtime: Runtime) -> None:
        with peer() as server:
            one = await opened(runtime, server.endpoint)
            server.answers.clear()
            with pytest.raises(TimeoutError):
                await one.ask(b"question", soon(0.05), "tag")
            assert one.is_over
            server.answers.set()
            assert await one.settle("tag", soon()) == b"QUESTION"
            one.close()

    drive(flavour, main)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_was_not_asked_for_makes_it_unusable(flavour: str) -> None:
    async def main(runtime: Runtime) -> None:
        with peer() as server:
            for spoil in (b"\0\0\0\1\0\0\0\1x", b"\xff" * 8):
                one = await opened(runtime, server.endpoint)
                assert await one.ask(b"question", soon()) == b"QUESTION"
                server.connections[-1].send(spoil)
                assert until(lambda one=one: not one.is_usable())
                one.close()
            one = await opened(runtime, server.endpoint)
            assert await one.ask(b"question", soon()) == b"QUESTION"
            server.cut()
            assert until(lambda: not one.is_usable())
            one.close()

    drive(flavour, main)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_mistake_in_a_protocol_is_told_as_that(flavour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(runtime: Runtime) -> None:
        with peer() as server:
            for step in ("ask", "feed"):
                one = await opened(runtime, server.endpoint)
                with monkeypatch.context() as patch:
                    patch.setattr(Frames, step, lambda *_: None + 1)  # type: ignore[operator]
                    with pytest.raises(TypeError):
                        await one.ask(b"question", soon())
                assert one.is_over
                one.close()

    drive(flavour, main)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_connection_is_no_reference_cycle(flavour: str) -> None:
    """One that an interrupt took out of a thread's hands must end there, before garbage is collected."""

    async def main(runtime: Runtime) -> None:
        with peer() as server:
            server.answers.clear()
            one = await opened(runtime, server.endpoint)
            with pytest.raises(TimeoutError):
                await one.ask(b"question", soon(0.05), "tag")
            one.close()
            gone = weakref.ref(one)
            del one
            assert gone() is None

    gc.collect()
    gc.disable()
    try:
        drive(flavour, main)
    finally:
        gc.enable()


# Several at a time --------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", LOOPS)
def test_what_tasks_ask_in_one_turn_is_written_at_once(loop: str) -> None:
    async def main(runtime: Runtime) -> None:
        with peer() as server:
            one = await opened(runtime, server.endpoint)
            writes = count_writes(one)

            async def work(name: int) -> None:
                for number in range(10):
                    question = b"%d of %d" % (number, name)
                    assert await one.ask(question, soon()) == question.upper()

            await asyncio.gather(*[work(name) for name in range(MANY)])
            assert len(server.asked) == 10 * MANY
            assert len(writes) < 5 * MANY
            writes.clear()
            assert await one.ask(b"alone", soon()) == b"ALONE"
            assert len(writes) == 1
            one.close()

    drive(loop, main)


@pytest.mark.parametrize("loop", LOOPS)
def test_what_was_gathered_is_sent_though_its_task_is_cancelled(loop: str) -> None:
    async def main(runtime: Runtime) -> None:
        with peer() as server:
            server.answers.clear()
            one = await opened(runtime, server.endpoint)
            first, *others = [
                asyncio.create_task(one.ask(question, soon())) for question in (b"one", b"two", b"three")
            ]
            await asyncio.sleep(0)
            others[0].cancel()
            server.answers.set()
            assert await first == b"ONE"
            assert await asyncio.wait_for(others[1], 5) == b"THREE"
            assert others[0].cancelled()
            assert server.asked == [b"one", b"two", b"three"]
            one.close()

    drive(loop, main)


def count_writes(one: Connection[bytes, bytes]) -> list[int]:
    """Return a list that gets the length of each write from now on."""
    writes: list[int] = []
    stream = one._stream
    assert stream is not None

    class Counted(type(stream)):  # type: ignore[misc]
        __slots__ = ()

        def put(self, data: bytes) -> None:
            writes.append(len(data))
            super().put(data)

    stream.__class__ = Counted
    return writes
