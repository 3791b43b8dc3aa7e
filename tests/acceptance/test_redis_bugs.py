"""Bugs that ship in well-known libraries, looked for on real servers, with a proxy where the wire misbehaves.

Each test is named after its bug. Times are bounded only where the contract bounds them; what a test means
by "soon" is "long before the ttl", which is a minute here.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import time
import types
import unicodedata
from collections.abc import Coroutine, Generator, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from crew import wait_until
from redis_desk import Desk, calls, desk_for, proxied, residue
from tools.servers import start

from fencelock import AcquireTimeout, AsyncClient, BackendUnavailable, LeaseLost, NotHeld
from fencelock.backends.redis.commands import ACQUIRE, LEAVE, RENEW, Script
from fencelock.core import cleanup
from fencelock.testing import TCPProxy
from fencelock.testing.conformance.expect import took
from fencelock.testing.faults import Match

LONG = 60.0
"""A ttl that no test waits for."""
SLACK = 10.0
"""For a machine that runs other tests at the same time."""

BOTH = pytest.mark.parametrize("kind", ["redis", "valkey"], indirect=True)


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param", "redis"))


@pytest.fixture
def group(kind: str) -> Iterator[Any]:
    with start(kind) as group:
        yield group


@pytest.fixture
def proxy(group: Any) -> Iterator[tuple[TCPProxy, str]]:
    with proxied(group.url) as pair:
        yield pair


@pytest.fixture
def shaky(proxy: tuple[TCPProxy, str], flavour: str, desk: Desk) -> Iterator[tuple[Desk, TCPProxy]]:
    """A client whose connection goes through the proxy; the server knows all scripts already."""
    warm_up(desk)
    with desk_for(flavour, proxy[1]) as shaky:
        warm_up(shaky)
        yield shaky, proxy[0]


def warm_up(desk: Desk) -> None:
    lease = desk.acquire("warm up")
    desk(lease.extend, 30)
    assert desk(lease.release)


def of(script: Script) -> Match:
    return lambda data: script.sha.encode() in data


def owners(desk: Desk, name: str) -> tuple[list[str], list[str]]:
    state = desk.inspect(name)
    return [entry.owner for entry in state.holders], [entry.owner for entry in state.waiters]


# Replies that are lost ------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("then", ["reset", "hang"])
def test_an_acquire_whose_reply_was_lost_does_not_lose_to_its_own_ghost(
    shaky: tuple[Desk, TCPProxy], desk: Desk, then: Any
) -> None:
    """redis-py: SET applied, reply lost, the retry loses to its own ghost for a whole ttl."""
    client, proxy = shaky
    with proxy.swallow(1, then=then, match=of(ACQUIRE)) as fault:
        started = time.monotonic()
        lease = client.acquire("job", ttl=LONG, timeout=30)
        assert time.monotonic() - started < LONG / 4
        assert fault.struck == 1
    assert client(lease.verify)
    assert owners(desk, "job") == ([lease.owner], [])
    assert client(lease.release)
    assert desk.inspect("job").is_free


def test_a_try_whose_reply_was_lost_is_recognised_or_leaves_nothing(
    shaky: tuple[Desk, TCPProxy], desk: Desk
) -> None:
    client, proxy = shaky
    with proxy.swallow(1, match=of(ACQUIRE)):
        lease = client(client.locks.lock("job", ttl=LONG).try_acquire)
    assert lease is not None
    assert owners(desk, "job") == ([lease.owner], [])
    assert client(lease.release)
    assert desk.inspect("job").is_free


@BOTH
@pytest.mark.parametrize("flavour", ["blocking"])  # what asyncio gives up is not sent any more
def test_an_acquire_that_was_given_up_and_arrives_after_its_withdrawal_leaves_no_ghost(
    shaky: tuple[Desk, TCPProxy], desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by `make chaos`: they travel on different connections, and the withdrawal may be faster."""
    monkeypatch.setattr(cleanup, "ECHO", 3.0)  # time enough to look at the ghost
    client, proxy = shaky
    pending = client.locks._session.cleanups
    with proxy.hold("requests", match=of(ACQUIRE)):
        with pytest.raises(BackendUnavailable):
            client.acquire("job", ttl=LONG, timeout=0.3)
        wait_until(lambda: [one.was_answered for one in pending.all()] == [True], "it was withdrawn")
        assert desk.inspect("job").is_free
    wait_until(lambda: desk.inspect("job").holders, "it is taken after all, by nobody")
    wait_until(lambda: desk.inspect("job").is_free, "it was withdrawn again")


def test_a_waiter_whose_reply_was_lost_keeps_its_one_place(shaky: tuple[Desk, TCPProxy], desk: Desk) -> None:
    client, proxy = shaky
    first = desk.acquire("job", ttl=LONG)
    with proxy.swallow(1, match=of(ACQUIRE)) as fault:
        wait = client.waiting("job", ttl=LONG)
        wait_until(lambda: fault.struck, "the reply was lost")
        wait_until(lambda: desk.inspect("job").waiters, "it waits")
    behind = desk.waiting("job", ttl=LONG)
    wait_until(lambda: len(desk.inspect("job").waiters) == 2, "another waits behind it")
    assert desk(first.release)
    lease = wait.result(30)
    assert owners(desk, "job")[0] == [lease.owner]
    assert len(desk.inspect("job").waiters) == 1
    assert client(lease.release)
    assert desk(behind.result(30).release)
    assert desk.inspect("job").is_free


@BOTH
@pytest.mark.parametrize("then", ["reset", "hang"])
def test_a_release_whose_reply_was_lost_is_a_release_and_no_loss(
    shaky: tuple[Desk, TCPProxy], desk: Desk, then: Any
) -> None:
    """It was held until then, and nobody else has touched it: telling of a loss would be a lie."""
    client, proxy = shaky
    losses: list[Any] = []
    lease = client.acquire("job", ttl=LONG, on_lost=losses.append)
    with proxy.swallow(1, then=then, match=of(LEAVE)) as fault:
        assert client(lease.release)
        assert fault.struck == 1
    assert desk.inspect("job").is_free
    with pytest.raises(NotHeld):  # and not LeaseLost
        lease.check()
    assert client(lease.release) is False  # idempotent
    assert losses == []


def test_a_block_whose_release_is_done_and_not_heard_of_ends_well(
    shaky: tuple[Desk, TCPProxy], desk: Desk
) -> None:
    client, proxy = shaky
    faults = []

    def body(lease: Any) -> int:
        faults.append(proxy.swallow(1, match=of(LEAVE)))
        return int(lease.token)

    assert client.block(client.locks.lock("job", ttl=LONG), body)
    assert faults[0].struck == 1
    assert desk.inspect("job").is_free


def test_a_release_whose_reply_was_lost_spares_the_successor(
    shaky: tuple[Desk, TCPProxy], desk: Desk
) -> None:
    client, proxy = shaky
    lease = client.acquire("job", ttl=LONG)
    wait = desk.waiting("job", ttl=LONG)
    wait_until(lambda: desk.inspect("job").waiters, "a successor waits")
    with proxy.swallow(1, match=of(LEAVE)):
        client(lease.release)
    successor = wait.result(30)
    client(lease.release)
    assert desk(successor.verify)
    assert desk(successor.release)


# Errors on release ------------------------------------------------------------------------------


@BOTH
def test_a_connection_error_on_release_and_then_it_can_be_released(
    shaky: tuple[Desk, TCPProxy], desk: Desk
) -> None:
    """redis-py: release clears the local token before the network call, and never releases again."""
    client, proxy = shaky
    lease = client.acquire("job", ttl=LONG)
    proxy.refuse()
    proxy.reset()
    with pytest.raises(BackendUnavailable):
        client(lease.release)
    assert not lease.is_held()
    assert owners(desk, "job") == ([lease.owner], [])
    proxy.accept()
    client(lease.release)
    assert desk.inspect("job").is_free
    with pytest.raises(NotHeld):
        lease.check()


def test_a_release_that_failed_is_made_up_for_in_the_background(
    shaky: tuple[Desk, TCPProxy], desk: Desk
) -> None:
    client, proxy = shaky
    lease = client.acquire("job", ttl=LONG)
    proxy.refuse()
    proxy.reset()
    with pytest.raises(BackendUnavailable):
        client(lease.release)
    proxy.accept()
    wait_until(lambda: desk.inspect("job").is_free, "the release was made up for", LONG / 2)


@BOTH
def test_a_late_release_never_frees_the_lock_of_the_successor(desk: Desk) -> None:
    """redis-py asyncio: tasks share one owner, so a late release frees the successor's lock."""
    lock = desk.locks.lock("job", ttl=0.3, renew=False)
    late = desk(lock.acquire, timeout=5)
    successor = desk.acquire("job", ttl=LONG, timeout=30)  # of the same client, through the same lock's name
    assert successor.token > late.token
    assert desk(late.release) is False
    assert desk(successor.verify)
    assert owners(desk, "job") == ([successor.owner], [])
    assert desk(successor.release)


def test_a_second_try_on_a_held_lock_does_not_harm_the_first(desk: Desk) -> None:
    """pottery: a second acquire(blocking=False) on a held object destroys its ownership."""
    lock = desk.locks.lock("job", ttl=LONG)
    lease = desk(lock.acquire, timeout=5)
    for _ in range(3):
        assert desk(lock.try_acquire) is None
    assert lease.is_held()
    assert desk(lease.verify)
    assert owners(desk, "job") == ([lease.owner], [])
    assert desk(lease.release)
    assert desk.inspect("job").is_free


# Extension and renewal ------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["expired", "deleted", "taken"])
def test_extend_never_revives(desk: Desk, server: Any, group: Any, flavour: str, end: str) -> None:
    """aioredlock: extend sets the key if it is missing, so an expired lock comes back to life."""
    lease = desk.acquire("job", ttl=LONG if end == "deleted" else 0.3, renew=False)
    if end == "deleted":
        assert server.ask("DEL", *residue(server)) == 1
    elif end == "expired":
        wait_until(lambda: not residue(server), "its key has expired")
    else:
        other = desk.acquire("job", ttl=LONG)
    with pytest.raises(LeaseLost):
        desk(lease.extend, LONG)
    assert not lease.is_held()
    assert desk(lease.release) is False
    if end == "taken":
        assert desk(other.verify)
        assert desk(other.release)
    assert residue(server) == []


@BOTH
def test_one_failed_renewal_does_not_end_renewing(shaky: tuple[Desk, TCPProxy], desk: Desk) -> None:
    """python-redis-lock: one failed renewal kills the renewal thread in silence."""
    client, proxy = shaky
    ttl = 3.0
    lease = client.acquire("job", ttl=ttl)
    with proxy.fail(1, match=of(RENEW)) as fault:
        wait_until(lambda: fault.struck == 1, "a renewal failed")
    taken = time.monotonic()
    while time.monotonic() < taken + 2 * ttl:
        assert lease.is_held()
        assert owners(desk, "job")[0] == [lease.owner]
        time.sleep(0.05)
    assert client(lease.release)


def test_renewals_that_all_fail_are_one_loss_and_nothing_revives_it(
    shaky: tuple[Desk, TCPProxy], desk: Desk, server: Any
) -> None:
    client, proxy = shaky
    losses: list[Any] = []
    lease = client.acquire("job", ttl=1.0, on_lost=losses.append)
    fault = proxy.fail(match=of(RENEW))
    wait_until(lambda: losses, "it was lost")
    assert fault.struck
    assert not lease.is_held()
    fault.cancel()
    successor = desk.acquire("job", ttl=LONG, timeout=30)
    assert successor.token > lease.token
    assert client(lease.verify) is False
    with pytest.raises(LeaseLost):
        client(lease.extend, LONG)
    assert client(lease.release) is False
    assert desk(successor.verify)
    assert desk(successor.release)
    assert len(losses) == 1


# Timeouts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [0, 0.05, 0.5, 1.7])
def test_timeouts_are_kept_fractions_and_zero_included(desk: Desk, timeout: float) -> None:
    """python-redis-lock: 0.5 blocks for ever; pals, pottery: 0 is ignored."""
    held = desk.acquire("job", ttl=LONG)
    started = time.monotonic()
    with pytest.raises(AcquireTimeout) as caught:
        desk.acquire("job", timeout=timeout)
    waited = time.monotonic() - started
    assert timeout <= waited <= timeout + SLACK
    assert caught.value.holder.owner == held.owner
    assert desk.inspect("job").waiters == ()
    assert desk(held.release)


def test_wake_ups_do_not_restart_the_timeout(desk: Desk, group: Any, flavour: str) -> None:
    """python-redis-lock: timeout=2 takes 8 s, since each wake restarts the clock."""
    held = desk.acquire("job", ttl=LONG)
    started = time.monotonic()
    wait = desk.waiting("job", timeout=2.0)
    while not wait.done():  # each force release of a waiter, and each broken subscription, is a wake-up
        group.members[0].ask("CLIENT", "KILL", "TYPE", "pubsub")
        time.sleep(0.05)
    assert time.monotonic() - started <= 2.0 + SLACK
    with pytest.raises(AcquireTimeout):
        wait.result()
    assert desk(held.release)


@pytest.mark.timing
@pytest.mark.parametrize("script", ["acquire", "subscribe"])
def test_a_timeout_holds_when_the_server_falls_silent(
    shaky: tuple[Desk, TCPProxy], desk: Desk, script: str
) -> None:
    client, proxy = shaky
    held = desk.acquire("job", ttl=LONG)
    match = of(ACQUIRE) if script == "acquire" else lambda data: b"SUBSCRIBE" in data
    for _ in range(3):
        with proxy.hold("replies", match=match) as fault:
            started = time.monotonic()
            error = client.waiting("job", timeout=0.4).exception(30)
            took(0.0, time.monotonic() - started, 0.4 + 0.8, "the wait")
            assert fault.struck
        assert isinstance(error, AcquireTimeout | BackendUnavailable)
    assert desk(held.release)


# Validity --------------------------------------------------------------------------------------


@BOTH
def test_validity_counts_from_the_request_and_not_from_the_reply(
    shaky: tuple[Desk, TCPProxy], desk: Desk
) -> None:
    """DistributedLock: a reply that is longer on its way than the ttl is no grant."""
    client, proxy = shaky
    ttl = 0.5
    hold = proxy.hold("replies", match=of(ACQUIRE))
    wait = client.waiting("job", ttl=ttl, renew=False, timeout=20)
    assert hold.wait(30)
    wait_until(lambda: desk.inspect("job").is_free, "the grant has run out on the server")
    other = desk.acquire("job", ttl=LONG, timeout=20)
    hold.cancel()
    time.sleep(0.3)  # the late grant is delivered, and must not be believed
    assert not wait.done() or wait.exception() is not None
    assert owners(desk, "job")[0] == [other.owner]
    assert desk(other.release)
    if wait.exception(30) is None:
        lease = wait.result()
        assert lease.token > other.token
        client(lease.release)


def test_a_grant_is_never_longer_than_the_ttl_less_its_way(shaky: tuple[Desk, TCPProxy]) -> None:
    client, proxy = shaky
    with proxy.delay(0.6, "replies", match=of(ACQUIRE)):
        lease = client.acquire("job", ttl=5.0, renew=False)
        assert 0 < lease.remaining() <= 5.0 - 0.6
    assert client(lease.release)


# Waiters and readers that die --------------------------------------------------------------------


def test_a_live_waiter_is_not_evicted_however_long_it_waits(desk: Desk, group: Any, flavour: str) -> None:
    """Redisson: live waiters are evicted from the fair queue, and hang."""
    held = desk.acquire("job", ttl=LONG)
    with desk_for(flavour, group.url) as other:
        wait = other.waiting("job", ttl=LONG)
        wait_until(lambda: desk.inspect("job").waiters, "it waits")
        (first,) = desk.inspect("job").waiters
        ends = time.monotonic() + 7.0  # more than twice its patience
        while time.monotonic() < ends:
            (waiter,) = desk.inspect("job").waiters
            assert (waiter.owner, waiter.token) == (first.owner, first.token)
            time.sleep(0.05)
        assert desk(held.release)
        lease = wait.result(30)
        assert lease.token == first.token
        assert other(lease.release)


@pytest.mark.parametrize("mode", ["write", "read"])
def test_a_dead_waiter_does_not_block(
    shaky: tuple[Desk, TCPProxy], desk: Desk, group: Any, flavour: str, mode: str
) -> None:
    """Redisson: dead waiters block everyone. Here one that fell silent is passed over in seconds."""
    client, proxy = shaky
    held = desk.acquire("job", ttl=LONG)
    dead = client.begin(getattr(client.locks.rwlock("job", ttl=LONG), mode)().acquire, timeout=60)
    wait_until(lambda: desk.inspect("job").waiters, "it waits")
    with proxy.blackhole(), desk_for(flavour, group.url) as other:
        wait = other.waiting("job", ttl=LONG)
        wait_until(lambda: len(desk.inspect("job").waiters) == 2, "another waits behind it")
        assert desk(held.release)
        started = time.monotonic()
        lease = wait.result(30)
        assert time.monotonic() - started <= 5.0 + SLACK
        assert other(lease.release)
    settle(client, dead)


def settle(desk: Desk, wait: Future[Any]) -> None:
    """Give back what a waiter was granted in the end, if anything."""
    if wait.exception(60) is None:
        desk(wait.result().release)


def test_a_crashed_reader_does_not_block_a_writer_while_another_reader_renews(
    shaky: tuple[Desk, TCPProxy], desk: Desk
) -> None:
    """DistributedLock on Redis: a crashed reader blocks writers as long as any other reader renews."""
    client, proxy = shaky
    ttl = 1.5
    read = desk.locks.rwlock("job", ttl=ttl).read()
    crashed = client(client.locks.rwlock("job", ttl=ttl).read().acquire, timeout=5)
    living = desk(read.acquire, timeout=5)
    with proxy.blackhole():
        wait_until(
            lambda: [entry.owner for entry in desk.inspect("job").holders] == [living.owner],
            "only the living reader is left",
            ttl + 2.0 + SLACK,
        )
        wait = desk.begin(desk.locks.rwlock("job", ttl=ttl).write().acquire, timeout=60)
        wait_until(lambda: desk.inspect("job").waiters, "the writer waits")
        assert desk(living.release)
        writer = wait.result(30)
        assert not crashed.is_held()
        assert desk(writer.release)


# Names -----------------------------------------------------------------------------------------------

ALIKE = [
    *("a/b", "a:b", "a%2Fb", "a%3Ab", "a b", "a b ", " a b", "a\tb", "a\nb", "a\r\nb", "a*b", "a?b", "a[b]"),
    *(
        "a\\b",
        "{a}b",
        "a{b}",
        "{a:b}",
        "}a{",
        "A/B",
        "a/B",
        "fencelock:{1}",
        "queue",
        "holders",
        "*",
        "[a-z]",
        "^",
    ),
    *("{1}", ":", "::", "é", unicodedata.normalize("NFD", "é"), "ﬁ", "fi", "ß", "ss", "ı", "i", "𝔞", "a"),
]


@BOTH
def test_names_that_look_alike_do_not_meet(desk: Desk, server: Any) -> None:
    """tooz: unrelated names block each other."""
    leases = {name: desk(desk.locks.lock(name).try_acquire) for name in ALIKE}
    assert all(leases.values())
    assert [state.name for state in desk(desk.locks.list)] == sorted(ALIKE)
    for name, lease in leases.items():
        state = desk.inspect(name)
        assert [entry.owner for entry in state.holders] == [lease.owner], name
    for name, lease in leases.items():
        assert desk(lease.release), name
    assert residue(server) == []


def test_namespaces_do_not_meet_either(group: Any, flavour: str) -> None:
    spaces = ["", "a", "a:b", "a%3Ab", "a%", "A", "*", "a*", "{a}", "é"]
    names = ["x", "b:x", ":x", "a:x", "a:b:x"]
    desks = {space: desk_for(flavour, group.url, namespace=space) for space in spaces}
    try:
        leases = [
            (desks[space], desks[space](desks[space].locks.lock(name).try_acquire))
            for space, name in itertools.product(spaces, names)
        ]
        assert all(lease for _, lease in leases)
        for desk in desks.values():
            assert [state.name for state in desk(desk.locks.list)] == sorted(names)
        for desk, lease in leases:
            assert desk(lease.release)
    finally:
        for desk in desks.values():
            desk.close()


def test_a_prefix_is_taken_by_the_letter(desk: Desk) -> None:
    leases = [desk.acquire(name) for name in ALIKE]
    for prefix in [*ALIKE, "a", "a[", "a?", "a\\", "{", "^a", "e", "zz"]:
        expected = sorted(name for name in ALIKE if name.startswith(prefix))
        assert [state.name for state in desk(desk.locks.list, prefix)] == expected, prefix
    for lease in leases:
        desk(lease.release)


# Cancellation ------------------------------------------------------------------------------------------

ROUNDS = 200


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


@BOTH
@pytest.mark.parametrize("contended", [False, True], ids=["free", "contended"])
def test_cancelling_an_acquire_at_every_await_in_turn_leaves_no_key(
    group: Any, server: Any, contended: bool
) -> None:
    """Connecting, asking, listening, waiting, asking again: each is cancelled in its turn."""

    async def main() -> set[int]:
        hit = set()
        async with AsyncClient(group.url) as other:
            held = await other.lock("job", ttl=LONG).acquire() if contended else None
            number = 0
            for _ in range(ROUNDS):
                number += 1
                async with AsyncClient(group.url) as locks:
                    work = cancelled_at(number, locks.lock("job", ttl=LONG).acquire(timeout=0.5))
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
                    assert [entry.owner for entry in state.holders] == ([held.owner] if held else [])
                    assert state.waiters == ()
            if held is not None:
                assert await held.release()
        return hit

    hit = asyncio.run(main())
    assert len(hit) >= (8 if contended else 4), hit
    assert hit == set(range(1, max(hit) + 1))
    assert residue(server) == []
    assert server.ask("DBSIZE") == 1


async def _awaiting(work: Any) -> Any:
    return await work


@BOTH
@pytest.mark.parametrize("contended", [False, True], ids=["free", "contended"])
def test_cancelling_an_acquire_at_any_time_leaves_no_key(group: Any, server: Any, contended: bool) -> None:
    """redis-py asyncio: cancelling acquire() leaves keys behind, 12 of 200 attempts."""

    async def main() -> int:
        cancelled = 0
        async with AsyncClient(group.url) as locks, AsyncClient(group.url) as other:
            held = await other.lock("job", ttl=LONG).acquire() if contended else None
            for steps in range(ROUNDS):
                # Every await of an acquire takes a few turns of the loop at most: all are met in turn.
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
                assert [entry.owner for entry in state.holders] == ([held.owner] if held else [])
                assert state.waiters == ()
            if held is not None:
                assert await held.release()
        return cancelled

    cancelled = asyncio.run(main())
    assert cancelled > 10
    assert residue(server) == []
    assert server.ask("DBSIZE") == 1  # the counter of the one bucket
    wait_until(lambda: calls(server) >= cancelled / 2, "the requests had been under way")


def test_cancelling_the_first_acquire_of_a_client_leaves_neither_key_nor_connection(
    group: Any, server: Any
) -> None:
    """Connecting, listening, waiting: each is cancelled in turn."""

    async def main() -> None:
        async with AsyncClient(group.url) as other:
            held = await other.lock("job", ttl=LONG).acquire()
            before = len(str(server.ask("CLIENT", "LIST")).splitlines())
            for steps in range(60):
                async with AsyncClient(group.url) as locks:
                    task = asyncio.create_task(locks.lock("job", ttl=LONG).acquire(timeout=60))
                    for _ in range(steps):
                        await asyncio.sleep(0)
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task
                assert (await other.inspect("job")).waiters == ()
            await asyncio.sleep(0)
            await held.release()
            wait_until(
                lambda: len(str(server.ask("CLIENT", "LIST")).splitlines()) <= before,
                "nobody else is connected",
            )

    asyncio.run(main())
    assert residue(server) == []
