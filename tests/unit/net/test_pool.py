"""Pools: bounded, first come first served, and whole again after whatever befell their users."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from fencelock.errors import BackendUnavailable
from fencelock.net.failures import Disconnected
from fencelock.net.pool import Call, Pool
from fencelock.runtime.base import Runtime
from fencelock.runtime.blocking import BlockingRuntime, run
from fencelock.testing.conformance.scripts import Interrupter
from unit.support import CancelAt, in_fork, until, until_async

from .peer import FLAVOURS, LOOPS, Peer, drive, peer, pool, soon

MANY = 12


def ask(pool: Pool[bytes, bytes], server: Peer, question: bytes, **options: Any) -> Any:
    return pool.ask(server.endpoint, question, soon(), **options)


def counted(pool: Pool[bytes, bytes]) -> int:
    return sum(not one.is_retired for one in pool._all)


def all_at_once(*works: Callable[[], Any]) -> list[Any]:
    """Run each on a thread of its own; return what they returned, or raised."""
    results: list[Any] = [None] * len(works)

    def work(number: int) -> None:
        try:
            results[number] = works[number]()
        except BaseException as error:
            results[number] = error

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return results


# How many, and who is next ------------------------------------------------------------------------------


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_connection_is_used_again(flavour: str) -> None:
    async def main(runtime: Runtime) -> None:
        with peer() as server:
            some = pool(runtime, most=4)
            for _ in range(5):
                assert await ask(some, server, b"question") == b"QUESTION"
            assert server.accepted == 1
            await some.close()
            with pytest.raises(BackendUnavailable, match="the client is closed"):
                await ask(some, server, b"question")

    drive(flavour, main)


@pytest.mark.parametrize("share", [1, 4])
def test_threads_never_have_more_than_they_may(share: int) -> None:
    with peer() as server:
        some = pool(BlockingRuntime(), most=3, idle=3, share=share)

        def work() -> None:
            for _ in range(30):
                assert run(ask(some, server, b"question")) == b"QUESTION"

        assert all_at_once(*[work] * MANY) == [None] * MANY
        assert 1 <= server.accepted <= 3
        run(some.close())


@pytest.mark.parametrize("share", [1, 4])
@pytest.mark.parametrize("loop", LOOPS)
def test_tasks_never_have_more_than_they_may(loop: str, share: int) -> None:
    async def main(runtime: Runtime) -> None:
        with peer() as server:
            some = pool(runtime, most=3, idle=3, share=share)
            answers = await asyncio.gather(*[ask(some, server, b"%d" % n) for n in range(100)])
            assert answers == [b"%d" % n for n in range(100)]
            assert 1 <= server.accepted <= 3
            await some.close()
            assert await until_async(lambda: server.live == 0)

    drive(loop, main)


@pytest.mark.parametrize("loop", LOOPS)
def test_tasks_are_served_in_the_order_in_which_they_came(loop: str) -> None:
    async def main(runtime: Runtime) -> None:
        with peer() as server:
            some = pool(runtime)
            tasks = [asyncio.create_task(ask(some, server, b"%d" % n)) for n in range(20)]
            await asyncio.sleep(0)
            tasks[7].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert server.asked == [b"%d" % n for n in range(20) if n != 7]
            await some.close()

    drive(loop, main)


def test_threads_are_served_in_the_order_in_which_they_came() -> None:
    with peer() as server:
        some = pool(BlockingRuntime())
        server.answers.clear()
        threads = []
        for number in range(MANY):
            threads.append(threading.Thread(target=lambda n=number: run(ask(some, server, b"%d" % n))))
            threads[-1].start()
            assert until(lambda n=number: server.asked if n == 0 else len(some._turns.line) == n)
        server.answers.set()
        for thread in threads:
            thread.join(60)
        assert server.asked == [b"%d" % number for number in range(MANY)]
        run(some.close())


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_place_that_is_not_free_in_time(flavour: str) -> None:
    async def main(runtime: Runtime) -> None:
        with peer() as server:
            some = pool(runtime)
            assert await ask(some, server, b"zero") == b"ZERO"
            server.answers.clear()
            with pytest.raises(TimeoutError):
                await some.ask(server.endpoint, b"one", soon(0.05), "tag")
            with pytest.raises(TimeoutError):  # the first is kept for its answer, and does not count
                await some.ask(server.endpoint, b"two", soon(0.05))
            server.answers.set()
            assert await some.settle("tag", soon(), "here") == b"ONE"
            assert await some.settle("tag", soon(), "here") is None
            assert await ask(some, server, b"three") == b"THREE"
            await some.close()

    drive(flavour, main)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_idle_connections_that_the_server_cut_are_replaced(flavour: str) -> None:
    async def main(runtime: Runtime) -> None:
        with peer() as server:
            some = pool(runtime)
            for _ in range(3):
                assert await ask(some, server, b"question") == b"QUESTION"
                server.cut()
                assert (
                    await until_async(lambda: server.live == 0)
                    if flavour != "blocking"
                    else until(lambda: server.live == 0)
                )
            assert server.accepted == 3
            await some.close()

    drive(flavour, main)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_another_server_is_asked_on_another_connection(flavour: str) -> None:
    async def main(runtime: Runtime) -> None:
        with peer() as one, peer() as two:
            some = pool(runtime, most=1)
            assert await ask(some, one, b"question") == b"QUESTION"
            assert await ask(some, two, b"question") == b"QUESTION"
            assert until(lambda: one.live == 0)
            await some.close()

    drive(flavour, main)


# Shared connections -------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", LOOPS)
def test_a_shared_connection_is_closed_by_its_last_user(loop: str) -> None:
    """One of them is told that the server ends it, another goes elsewhere: a third still gets its answer."""

    async def main(runtime: Runtime) -> None:
        with peer() as server, peer() as other:
            some = pool(runtime, share=8)
            assert await ask(some, server, b"first") == b"FIRST"
            server.answers.clear()
            bye, last = (asyncio.create_task(ask(some, server, text)) for text in (b"bye", b"last"))
            assert await until_async(lambda: server.asked[-1] == b"bye")
            assert await ask(some, other, b"elsewhere") == b"ELSEWHERE"
            server.answers.set()
            assert [await bye, await last] == [b"BYE", b"LAST"]
            assert server.accepted == 1
            assert await until_async(lambda: server.live == 0)
            await some.close()

    drive(loop, main)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_shared_connection_serves_others_while_one_is_settled(loop: str) -> None:
    async def main(runtime: Runtime) -> None:
        with peer() as server:
            some = pool(runtime, share=8)
            assert await ask(some, server, b"first") == b"FIRST"
            server.answers.clear()
            task = asyncio.create_task(ask(some, server, b"interrupted", tag="tag"))
            assert await until_async(lambda: server.asked[-1] == b"interrupted")
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            others = [asyncio.create_task(ask(some, server, b"other")) for _ in range(3)]
            settled = asyncio.create_task(some.settle("tag", soon(), "here"))
            await asyncio.sleep(0.01)
            server.answers.set()
            assert await settled == b"INTERRUPTED"
            assert await asyncio.gather(*others) == [b"OTHER"] * 3
            assert server.accepted == 1
            await some.close()

    drive(loop, main)


@pytest.mark.parametrize("loop", LOOPS)
def test_closing_ends_what_is_under_way(loop: str) -> None:
    async def main(runtime: Runtime) -> None:
        with peer() as server:
            for share in (1, 4):
                some = pool(runtime, most=2, share=share)
                server.answers.clear()
                tasks = [asyncio.create_task(ask(some, server, b"question")) for _ in range(MANY)]
                assert await until_async(lambda: server.asked)
                await some.close()
                for task in tasks:
                    with pytest.raises((Disconnected, ConnectionError, BackendUnavailable)):
                        await task
                server.answers.set()
                assert await until_async(lambda: server.live == 0)
                server.asked.clear()

    drive(loop, main)


# Interrupts, cancelling, signal handlers, forks ---------------------------------------------------------


def test_an_interrupt_at_any_point_leaks_no_place() -> None:
    with peer() as server, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # what was torn away is closed when it is garbage
        warnings.simplefilter("ignore", RuntimeWarning)
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            some = pool(BlockingRuntime())
            place = 0
            while True:
                place += 1
                interrupter = Interrupter(place)
                try:
                    with interrupter:
                        run(ask(some, server, b"interrupted", tag="tag"))
                except KeyboardInterrupt:
                    server.asked.append(b"cleanup")
                    run(some.settle("tag", soon(), "here"))
                else:
                    if not interrupter.where:
                        break
                server.asked.append(b"settled")
                assert run(ask(some, server, b"next")) == b"NEXT", interrupter.where
                late = server.asked[server.asked.index(b"settled") :]
                assert b"interrupted" not in late, f"cleanup overtook it: {interrupter.where}"
                server.asked.clear()
                assert counted(some) <= 1
                assert not some._kept
            assert place > 50
            run(some.close())
        finally:
            sys.unraisablehook = hook
        assert until(lambda: server.live == 0)


@pytest.mark.parametrize("share", [1, 4])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("loop", LOOPS)
def test_cancelling_at_each_await_leaks_no_place(loop: str, late: bool, share: int) -> None:
    async def main(runtime: Runtime) -> None:
        with peer() as server:
            for warm in (False, True):
                for place in range(100):
                    some = pool(runtime, share=share)
                    if warm:
                        await ask(some, server, b"first")
                    server.answers.clear()  # or the answer is there before it is waited for
                    asyncio.get_running_loop().call_later(0.005, server.answers.set)
                    work = CancelAt(ask(some, server, b"question", tag="tag"), place, late=late)

                    async def step(work: CancelAt = work) -> None:
                        await work

                    await asyncio.gather(asyncio.create_task(step()), return_exceptions=True)
                    assert await some.settle("tag", soon(), "here") in {None, b"QUESTION"}
                    assert await ask(some, server, b"next") == b"NEXT"
                    assert counted(some) == 1
                    await some.close()
                    if not work.reached:
                        break
                assert place > 0
            assert await until_async(lambda: server.live == 0)

    drive(loop, main)


@pytest.mark.parametrize("warm", [False, True])
def test_a_signals_handler_may_close_it_at_any_point(warm: bool) -> None:
    """It waits for nothing that its own thread has, and no connection is left."""
    with peer() as server:
        place, reached = 0, True
        while reached:
            place += 1
            some = pool(BlockingRuntime())
            if warm:
                run(ask(some, server, b"first"))
            left = [place]

            def look(frame: FrameType, event: str, function: Any, left: list[int] = left) -> None:
                left[0] -= 1
                if left[0] == 0:
                    sys.setprofile(None)
                    run(some.close())  # noqa: B023

            def work() -> None:
                sys.setprofile(look)
                try:
                    run(ask(some, server, b"second"))  # noqa: B023
                finally:
                    sys.setprofile(None)

            (result,) = all_at_once(work)
            reached = left[0] <= 0
            assert result is None or isinstance(
                result, (Disconnected, ConnectionError, BackendUnavailable)
            ), result
            if reached:
                assert until(lambda: server.live == 0), f"a connection is left at place {place}"
        assert place > 50
        run(some.close())


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_forked_child_lets_go_of_every_connection(flavour: str) -> None:
    async def main(runtime: Runtime) -> None:
        with peer() as server:
            some = pool(runtime, most=4, idle=4)
            assert await ask(some, server, b"question") == b"QUESTION"
            server.answers.clear()
            with pytest.raises(TimeoutError):
                await some.ask(server.endpoint, b"kept", soon(0.05), "tag")
            mine = [sock.getpeername() for sock in server.connections]

            def in_the_child() -> list[Any]:
                some.drop()
                left = []
                for descriptor in range(3, 256):
                    try:
                        with socket.socket(fileno=descriptor) as sock:
                            if sock.getsockname() in mine and f"127.0.0.1:{sock.getpeername()[1]}" == (
                                server.endpoint
                            ):
                                left.append(descriptor)
                            sock.detach()
                    except OSError:
                        continue
                return left

            assert in_fork(in_the_child) == []
            server.answers.set()
            assert await some.settle("tag", soon(), "here") == b"KEPT"
            assert await ask(some, server, b"question") == b"QUESTION"
            await some.close()

    drive(flavour, main)


# Calls that are hung up ---------------------------------------------------------------------------------


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_call_is_ended_from_another_thread(flavour: str) -> None:
    async def main(runtime: Runtime) -> None:
        with peer() as server:
            some = pool(runtime)
            server.answers.clear()
            call = Call()
            threading.Thread(target=lambda: until(lambda: server.asked) and call.hang_up()).start()
            with pytest.raises((Disconnected, ConnectionError)):
                await ask(some, server, b"question", call=call)
            server.answers.set()
            assert await ask(some, server, b"next") == b"NEXT"
            await some.close()

    drive(flavour, main)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_call_that_is_hung_up_before_it_begins_is_not_made(flavour: str) -> None:
    async def main(runtime: Runtime) -> None:
        with peer() as server:
            some = pool(runtime)
            call = Call()
            call.hang_up()
            with pytest.raises(Disconnected):
                await ask(some, server, b"question", call=call)
            assert await ask(some, server, b"next") == b"NEXT"
            assert server.asked == [b"next"]
            await some.close()

    drive(flavour, main)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_hanging_up_on_a_call_that_was_answered_ends_no_other(flavour: str) -> None:
    async def main(runtime: Runtime) -> None:
        with peer() as server:
            some = pool(runtime)
            call = Call()
            assert await ask(some, server, b"question", call=call) == b"QUESTION"
            call.hang_up()
            assert await ask(some, server, b"next") == b"NEXT"
            assert server.accepted == 1
            await some.close()

    drive(flavour, main)
