"""Faults between client and server, one at a time: lost replies at every step, silence, cancellation.

A proxy stands before the server. Whatever it does: a grant whose reply was lost is found again, a release
whose reply was lost counts as one, and nothing is left behind.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import time
import types
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import closing
from typing import Any

import pytest
from crew import wait_until
from postgres_desk import Desk, activity, ask, desk_for, listeners, nothing_left, proxied, residue, session
from tools.servers import start

from fencelock import AcquireTimeout, AsyncClient, BackendUnavailable, LeaseLost
from fencelock.testing import (
    boottime,
)

LONG = 60.0
TTL = 1.0
BOUND = TTL + 2.0
SLACK = 10.0
"""For a machine that runs other tests at the same time."""
FAULTS = 3.0
"""Seconds of faults in a run."""
STEPS = 16
"""About as many requests as a client has to make for anything here."""


@pytest.fixture(scope="module")
def group() -> Iterator[Any]:
    with start("postgres") as group:
        with desk_for("blocking", group.url) as desk:
            desk(desk.acquire("warm up").release)
        yield group


@pytest.fixture
def server(group: Any) -> Iterator[Any]:
    server = group.members[0]
    yield server
    wait_until(lambda: not activity(server), "nobody is connected")
    nothing_left(server)


# Replies that are lost --------------------------------------------------------------------------------


class Nth:
    """Matches one request: the one that is seen as the n-th."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.seen = 0

    def __call__(self, data: bytes) -> bool:
        if data[:1] == b"X":  # it says goodbye: there is no reply to lose
            return False
        self.seen += 1
        return self.seen == self.number


def insist(desk: Desk, function: Callable[..., Any], *args: Any) -> Any:
    """Call; if the backend does not answer, call again: an outage may show, but must leave no trace."""
    for _ in range(4):
        try:
            return desk(function, *args)
        except BackendUnavailable:
            continue
    return desk(function, *args)


def use_alone(desk: Desk, other: Desk) -> None:
    """Everything that one does with a lock that nobody else wants."""
    lease = insist(desk, functools.partial(desk.locks.lock("job", ttl=LONG).acquire, timeout=30))
    assert [entry.owner for entry in other.inspect("job").holders] == [lease.owner]
    assert [entry.token for entry in other.inspect("job").holders] == [lease.token]
    assert insist(desk, lease.verify)
    insist(desk, lease.extend, LONG)
    assert [state.name for state in insist(desk, desk.locks.list, "job")] == ["job"]
    insist(desk, lease.release)
    assert other.inspect("job").is_free


def use_waiting(desk: Desk, other: Desk) -> None:
    """Wait for a lock and get it."""
    held = other.acquire("job", ttl=LONG)
    acquire = functools.partial(desk.locks.lock("job", ttl=LONG).acquire, timeout=LONG)
    waits = desk.begin(acquire)
    wait_until(lambda: other.inspect("job").waiters or waits.done(), "it waits")
    time.sleep(0.05)
    assert other(held.release)
    lease = insist(desk, acquire) if waits.exception(30) else waits.result()
    (holder,) = other.inspect("job").holders
    assert (holder.owner, holder.token) == (lease.owner, lease.token)
    assert insist(desk, lease.verify)
    insist(desk, lease.release)
    assert other.inspect("job").is_free


def use_in_vain(desk: Desk, other: Desk) -> None:
    """Ask, wait and give up; then break the lock."""
    held = other.acquire("job", ttl=LONG)
    assert insist(desk, desk.locks.lock("job").try_acquire) is None
    with pytest.raises(AcquireTimeout):
        insist(desk, functools.partial(desk.locks.lock("job").acquire, timeout=0.2))
    wait_until(lambda: not other.inspect("job").waiters, "it waits no more")
    insist(desk, desk.locks.force_release, "job")
    wait_until(lambda: not other(held.verify), "the holder finds out")
    assert other.inspect("job").is_free


@pytest.mark.parametrize("use", [use_alone, use_waiting, use_in_vain], ids=["alone", "waiting", "in vain"])
@pytest.mark.parametrize("then", ["reset", "hang"])
def test_each_reply_is_lost_in_its_turn(
    server: Any, flavour: str, use: Callable[[Desk, Desk], None], then: Any
) -> None:
    """From the first greeting on. Where the connection hangs, it takes seconds each: only some of them."""
    struck = []
    with desk_for("blocking", server.url) as other:
        for number in range(1, STEPS) if then == "reset" else (2, 5):
            with proxied(server.url) as (proxy, url), desk_for(flavour, url) as desk:
                match = Nth(number)
                fault = proxy.swallow(1, then=then, match=match)
                try:
                    use(desk, other)
                except BaseException as error:
                    raise AssertionError(f"the reply to request {number} was lost: {error}") from error
                if not fault.struck:
                    break
                struck.append(number)
            assert residue(server) == [], number
    assert len(struck) >= (1 if then == "hang" else 6), struck


@pytest.mark.parametrize("is_lost", [False, True], ids=["all replies", "a lost reply"])
def test_a_push_is_the_grant_unless_a_reply_was_lost(
    server: Any, flavour: str, is_lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then its row may have had a token that its client does not know: it looks at the row first."""
    monkeypatch.setattr("fencelock.core.acquire.patience", lambda ttl: LONG)
    seen = []

    def is_of_job(step: bytes, data: bytes) -> bool:
        if is_it := step in data and b"job" in data:
            seen.append(step)
        return is_it

    with (
        desk_for("blocking", server.url) as other,
        proxied(server.url) as (proxy, url),
        desk_for(flavour, url) as desk,
    ):
        held = [other.acquire(name, ttl=LONG) for name in ("busy", "job")]
        helper = desk.waiting("busy", ttl=LONG)
        wait_until(lambda: listeners(server), "its client listens")
        for step in (b"settle", b"look"):
            proxy.delay(0.0, "requests", match=functools.partial(is_of_job, step))
        if is_lost:
            proxy.swallow(1, match=functools.partial(is_of_job, b"acquire"))
        waits = desk.waiting("job", ttl=LONG)
        wait_until(lambda: b"settle" in seen, "its place is being put on disk")
        time.sleep(0.3)
        assert other(held[1].release)
        lease = waits.result(30)
        assert [entry.owner for entry in other.inspect("job").holders] == [lease.owner]
        assert seen.count(b"look") == is_lost
        assert desk(lease.release)
        assert other(held[0].release)
        assert desk(helper.result(30).release)


@pytest.mark.parametrize("what", ["acquire", "leave", "renew", "settle", "LISTEN"])
def test_requests_that_never_arrive(server: Any, flavour: str, what: str) -> None:
    """The connection is reset on each such request, for a while."""
    with (
        desk_for("blocking", server.url) as other,
        proxied(server.url) as (proxy, url),
        desk_for(flavour, url) as desk,
    ):
        desk(desk.acquire("warm up").release)
        busy = other.acquire("busy", ttl=LONG)
        helper = desk.waiting("busy", ttl=LONG)
        wait_until(lambda: other.inspect("busy").waiters, "a helper waits")
        with proxy.fail(3, match=lambda data: what.encode() in data) as fault:
            if what == "LISTEN":
                proxy.reset()  # the helper may listen already, for all who will wait: it has to do so again
            use_alone(desk, other)
            use_waiting(desk, other)
            assert fault.struck
        assert other(busy.release)
        if helper.exception(30) is None:
            assert insist(desk, helper.result().release)


def test_a_release_that_never_arrives_is_made_up_for_by_the_ttl(server: Any, flavour: str) -> None:
    with (
        desk_for("blocking", server.url) as other,
        proxied(server.url) as (proxy, url),
        desk_for(flavour, url) as desk,
    ):
        lease = desk.acquire("job", ttl=TTL)
        with proxy.blackhole():
            release = desk.begin(lease.release)
            taken = other.acquire("job", timeout=30)
            assert taken.token > lease.token
            assert not lease.is_held(), "two hold it"
        release.exception(30)  # the backend did not answer; or it did when all was over
        assert other(taken.release)


# Silence ----------------------------------------------------------------------------------------------


def test_a_holder_that_is_cut_off_knows_by_its_deadline_and_others_go_on(server: Any, flavour: str) -> None:
    with (
        desk_for("blocking", server.url) as other,
        proxied(server.url) as (proxy, url),
        desk_for(flavour, url) as desk,
    ):
        lost: list[float] = []
        lease = desk.acquire("job", ttl=TTL, on_lost=lambda _: lost.append(boottime()))
        waits = other.waiting("job", ttl=LONG)
        wait_until(lambda: desk.inspect("job").waiters, "another waits")
        hole = proxy.blackhole()
        cut = boottime()
        taken = waits.result(30)
        assert not lease.is_held(), "two hold it"
        wait_until(lambda: lost, "it was told")
        assert len(lost) == 1
        assert lost[0] - cut <= TTL + SLACK
        assert boottime() - cut <= BOUND + SLACK
        with pytest.raises(LeaseLost):
            lease.check()
        hole.cancel()
        assert insist(desk, lease.verify) is False
        assert taken.is_held()
        assert other(taken.release)
        assert desk(desk.acquire("job", timeout=30).release)


def test_a_block_of_one_that_is_cut_off_ends_with_the_loss(server: Any, flavour: str) -> None:
    with proxied(server.url) as (proxy, url), desk_for(flavour, url) as desk:

        def body(lease: Any) -> None:
            holes.append(proxy.blackhole())
            wait_until(lambda: not lease.is_held(), "it is lost")

        holes: list[Any] = []
        with pytest.raises(LeaseLost):
            desk.block(desk.locks.lock("job", ttl=TTL), body)
        holes[0].cancel()
        assert desk(desk.acquire("job", timeout=30).release)


def test_a_waiter_that_is_cut_off_is_passed_within_seconds(server: Any, flavour: str) -> None:
    with (
        desk_for("blocking", server.url) as other,
        proxied(server.url) as (proxy, url),
        desk_for(flavour, url) as desk,
    ):
        held = other.acquire("job", ttl=LONG)
        cut = desk.waiting("job", ttl=LONG, timeout=LONG)
        wait_until(lambda: len(other.inspect("job").waiters) == 1, "it waits")
        behind = other.waiting("job", ttl=LONG)
        wait_until(lambda: len(other.inspect("job").waiters) == 2, "another waits behind it")
        hole = proxy.blackhole()
        assert other(held.release)
        lease = behind.result(30)
        hole.cancel()
        assert not cut.done() or isinstance(cut.exception(), BackendUnavailable)
        assert other(lease.release)
        if cut.exception(30) is None:  # it came back in time
            assert cut.result().token > lease.token
            assert insist(desk, cut.result().release)
        wait_until(lambda: not residue(server), "nothing is left of it")


# Cancellation -----------------------------------------------------------------------------------------

ROUNDS = 80


@types.coroutine
def cancelled_at(number: int, work: Coroutine[Any, Any, Any]) -> Generator[Any, None, Any]:
    """Do the work, and cancel the task that does it when it is suspended for that time."""
    task = asyncio.current_task()
    assert task is not None
    step = functools.partial(work.send, None)
    for suspended in itertools.count(1):
        try:
            awaited = step()
        except StopIteration as done:
            return done.value
        if suspended == number:
            task.get_loop().call_soon(task.cancel)  # before anything that was awaited can have come
        try:
            yield awaited
        except BaseException as error:
            step = functools.partial(work.throw, error)
        else:
            step = functools.partial(work.send, None)


async def _awaiting(work: Any) -> Any:
    return await work


@pytest.mark.parametrize("contended", [False, True], ids=["free", "contended"])
def test_cancelling_an_acquire_at_every_await_in_turn_leaves_no_row(server: Any, contended: bool) -> None:
    """Connecting, asking, listening, waiting, asking again: each is cancelled in its turn."""

    async def main() -> set[int]:
        hit = set()
        async with AsyncClient(server.url) as other:
            held = await other.lock("job", ttl=LONG).acquire() if contended else None
            number = 0
            for _ in range(ROUNDS):
                number += 1
                async with AsyncClient(server.url) as locks:
                    work = cancelled_at(
                        number, locks.lock("job", ttl=LONG).acquire(timeout=1 if contended else 10)
                    )
                    try:
                        lease = await asyncio.create_task(_awaiting(work))
                    except asyncio.CancelledError:
                        hit.add(number)
                    except AcquireTimeout:
                        number = 0  # all of its awaits have had their turn
                    else:
                        number = 0
                        await lease.release()
                    state = await other.inspect("job")
                    assert [entry.owner for entry in state.holders] == ([held.owner] if held else []), number
                    assert state.waiters == (), number
            if held is not None:
                assert await held.release()
        return hit

    hit = asyncio.run(main())
    assert len(hit) >= (8 if contended else 4), hit
    assert hit == set(range(1, max(hit) + 1))
    assert residue(server) == []


@pytest.mark.parametrize("contended", [False, True], ids=["free", "contended"])
def test_cancelling_an_acquire_at_any_time_leaves_no_row(server: Any, contended: bool) -> None:
    async def main() -> int:
        cancelled = 0
        async with AsyncClient(server.url) as locks, AsyncClient(server.url) as other:
            held = await other.lock("job", ttl=LONG).acquire() if contended else None
            for steps in range(ROUNDS):
                task = asyncio.create_task(locks.lock("job", ttl=LONG).acquire(timeout=60))
                for _ in range(steps % 40):
                    await asyncio.sleep(0 if steps % 2 else 0.0005)
                cancelled += task.cancel()
                try:
                    lease = await task
                except asyncio.CancelledError:
                    pass
                else:
                    await lease.release()
                state = await other.inspect("job")
                assert [entry.owner for entry in state.holders] == ([held.owner] if held else []), steps
                assert state.waiters == (), steps
            if held is not None:
                assert await held.release()
        return cancelled

    cancelled = asyncio.run(main())
    assert cancelled > 10
    assert residue(server) == []


def test_a_step_that_is_cancelled_while_it_waits_for_the_latch_leaves_no_row(server: Any) -> None:
    """It goes on in the server, and must not be applied after it was abandoned."""

    async def main() -> None:
        async with AsyncClient(server.url) as locks:
            await (await locks.lock("job").acquire()).release()
            for _ in range(5):
                with closing(session(server)) as latch:
                    latch.execute("BEGIN")
                    latch.execute("SELECT 1 FROM fencelock.buckets FOR UPDATE")
                    task = asyncio.create_task(locks.lock("job", ttl=LONG).acquire())
                    await asyncio.to_thread(wait_until, lambda: blocked(server), "its step waits")
                    task.cancel()
                    await asyncio.sleep(0.05)
                    latch.execute("COMMIT")
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert residue(server) == []

    asyncio.run(main())


def blocked(server: Any) -> list[Any]:
    return ask(server, "SELECT pid FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0")
