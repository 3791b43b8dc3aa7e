"""Connections of a client: what is read off before something is undone, and who is given one next."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from fencelock.backends.base import PoolExhausted
from fencelock.backends.postgres.address import Address
from fencelock.backends.postgres.pools import Seat, TaskPool, ThreadPool
from fencelock.errors import BackendUnavailable
from fencelock.runtime import blocking, clock

LONG = 60.0
ONE, _ = Address.from_url("postgresql://127.0.0.1/test?pool_size=1")


class Late:
    """A connection whose answer comes when the test says so."""

    def __init__(self) -> None:
        self.answer = threading.Event()
        self.is_read = threading.Event()
        self.closed = False

    def drain(self, until: float) -> None:
        self.is_read.set()
        self.answer.wait(until - clock.now())

    def close(self) -> None:
        self.closed = True


def test_a_clean_up_waits_for_answers_that_another_one_reads_off(monkeypatch: Any) -> None:
    """Or it would undo what the server has yet to do."""
    monkeypatch.setattr("fencelock.backends.postgres.pools.DRAIN", 60.0)
    address, _ = Address.from_url("postgresql://127.0.0.1/test")
    pool, link = ThreadPool(address), Late()
    pool._late.append(link)  # type: ignore[arg-type]

    def settle() -> None:
        blocking.run(pool.settled(clock.now() + 60.0))

    first, second = threading.Thread(target=settle), threading.Thread(target=settle)
    first.start()
    assert link.is_read.wait(60)
    second.start()
    second.join(0.2)
    assert second.is_alive()
    link.answer.set()
    first.join(60)
    second.join(60)
    assert link.closed
    assert not second.is_alive()
    assert not pool._late


def test_a_clean_up_does_not_wait_for_longer_than_it_may() -> None:
    address, _ = Address.from_url("postgresql://127.0.0.1/test")
    pool, link = ThreadPool(address), Late()
    pool._late.append(link)  # type: ignore[arg-type]
    blocking.run(pool.settled(clock.now() + 0.01))
    assert link.closed
    assert not pool._late


# Whose turn it is ---------------------------------------------------------------------------


def pool_of_one() -> tuple[ThreadPool, Any]:
    """Return a pool whose only connection is taken."""
    pool, link = ThreadPool(ONE), Late()
    link.seat = Seat()  # type: ignore[attr-defined]
    pool._seats.add(link.seat)  # type: ignore[attr-defined]
    pool._idle.append(link)  # type: ignore[arg-type]
    return pool, blocking.run(pool.take(clock.now()))


def until(condition: Any) -> None:
    end = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_thread_that_gives_a_connection_back_stands_behind_those_who_wait() -> None:
    pool, link = pool_of_one()
    taken: list[Any] = []
    waiter = threading.Thread(target=lambda: taken.append(blocking.run(pool.take(clock.now() + LONG))))
    waiter.start()
    until(lambda: pool._line)
    pool.give(link)
    with pytest.raises(BackendUnavailable):  # and not the one that it has just given back
        blocking.run(pool.take(clock.now()))
    waiter.join(LONG)
    assert taken == [link]
    pool.give(link)
    assert blocking.run(pool.take(clock.now())) is link
    assert not pool._line


def test_threads_have_their_turns_in_order() -> None:
    pool, link = pool_of_one()
    order: list[int] = []

    def work(number: int) -> None:
        mine = blocking.run(pool.take(clock.now() + LONG))
        order.append(number)
        pool.give(mine)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for number, thread in enumerate(threads, 1):
        thread.start()
        until(lambda number=number: len(pool._line) == number)
    pool.give(link)
    for thread in threads:
        thread.join(LONG)
    assert order == list(range(8))


def test_closing_tells_every_thread_in_line() -> None:
    pool, _ = pool_of_one()
    failures: list[BackendUnavailable] = []

    def work() -> None:
        try:
            blocking.run(pool.take(clock.now() + LONG))
        except BackendUnavailable as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    until(lambda: len(pool._line) == 4)
    blocking.run(pool.close())
    for thread in threads:
        thread.join(LONG)
    assert [failure.transient for failure in failures] == [False] * 4


async def tasks_of_one() -> tuple[TaskPool, Any]:
    pool, link = TaskPool(ONE), Late()
    pool._count = 1
    pool._idle.append(link)  # type: ignore[arg-type]
    return pool, await pool.take(clock.now())


def test_a_task_that_gives_a_connection_back_stands_behind_those_who_wait() -> None:
    async def main() -> None:
        pool, link = await tasks_of_one()
        waits = [asyncio.create_task(pool.take(clock.now() + LONG)) for _ in range(2)]
        await asyncio.sleep(0)
        pool.give(link)
        again = asyncio.create_task(pool.take(clock.now() + LONG))
        for wait in (*waits, again):  # in this order
            assert await wait is link
            assert not again.done() or wait is again
            pool.give(link)
        assert pool._idle == [link]

    asyncio.run(main())


def test_a_task_that_is_cancelled_as_it_is_given_one_passes_it_on() -> None:
    async def main() -> None:
        pool, link = await tasks_of_one()
        first, second = (asyncio.create_task(pool.take(clock.now() + LONG)) for _ in range(2))
        await asyncio.sleep(0)
        pool.give(link)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await second is link

    asyncio.run(main())


def test_a_connection_that_is_gone_leaves_its_seat_to_the_next_task(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        pool, link = await tasks_of_one()
        link.seat = True
        other = Late()

        async def connect(deadline: float) -> Any:
            return other

        monkeypatch.setattr(pool, "_connect", connect)
        first, second = (asyncio.create_task(pool.take(clock.now() + LONG)) for _ in range(2))
        await asyncio.sleep(0)
        pool.discard(link)
        assert await first is other
        assert pool._count == 1
        pool.discard(await first)
        assert await second is other
        pool.discard(await second)
        assert pool._count == 0

    asyncio.run(main())


def test_closing_tells_every_task_in_line() -> None:
    async def main() -> None:
        pool, _ = await tasks_of_one()
        waits = [asyncio.create_task(pool.take(clock.now() + LONG)) for _ in range(3)]
        await asyncio.sleep(0)
        await pool.close()
        for failure in await asyncio.gather(*waits, return_exceptions=True):
            assert isinstance(failure, BackendUnavailable) and not failure.transient

    asyncio.run(main())


# No turn by the deadline --------------------------------------------------------------------


def test_a_thread_without_a_turn_is_told_whether_the_server_answers_others() -> None:
    pool, link = pool_of_one()
    with pytest.raises(BackendUnavailable) as caught:
        blocking.run(pool.take(clock.now() + 0.01))
    assert not isinstance(caught.value, PoolExhausted), "the server answered no request meanwhile"
    first = threading.Thread(target=lambda: blocking.run(pool.take(clock.now() + LONG)))
    first.start()
    until(lambda: len(pool._line) == 1)
    threading.Timer(0.05, lambda: pool.give(link)).start()
    with pytest.raises(PoolExhausted, match="this client's other requests had every connection"):
        blocking.run(pool.take(clock.now() + 0.5))
    first.join(LONG)


def test_a_task_without_a_turn_is_told_whether_the_server_answers_others() -> None:
    async def main() -> None:
        pool, link = await tasks_of_one()
        with pytest.raises(BackendUnavailable) as caught:
            await pool.take(clock.now() + 0.01)
        assert not isinstance(caught.value, PoolExhausted), "the server answered no request meanwhile"
        first = asyncio.create_task(pool.take(clock.now() + LONG))
        second = asyncio.create_task(pool.take(clock.now() + 0.1))
        await asyncio.sleep(0)
        pool.give(link)
        assert await first is link
        with pytest.raises(PoolExhausted):
            await second

    asyncio.run(main())
