"""Session advisory locks on a real PostgreSQL: who gets them, who waits, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from advisory_desk import HELD, WAITED, advisory, backend_of, clean, keys, waits
from crew import wait_until
from postgres_desk import Desk, ask, desk_for, session
from tools.servers import start

from fencelock import (
    AcquireCancelled,
    AcquireTimeout,
    AsyncClient,
    BackendUnavailable,
    Client,
    ConfigurationError,
    LeaseLost,
    Unsupported,
)
from fencelock.backends.postgres.advisory.seat import ASKED
from fencelock.backends.postgres.advisory.seat import HELD as HELD_STATE
from fencelock.backends.postgres.keys import advisory_key
from fencelock.runtime import clock
from fencelock.testing import conformance, view
from unit.support import fork

LONG = 60.0


@pytest.fixture(scope="module")
def group() -> Iterator[Any]:
    with start("postgres") as group:
        yield group


@pytest.fixture
def server(group: Any) -> Iterator[Any]:
    server = group.members[0]
    yield server
    clean(server)


@pytest.fixture
def url(server: Any) -> str:
    return advisory(server.url)


@pytest.fixture
def desk(flavour: str, url: str) -> Iterator[Desk]:
    with desk_for(flavour, url) as desk:
        yield desk


# The server's own locks, on which all rests --------------------------------------------------------


def test_the_servers_queue_is_first_come_first_served_and_a_try_does_not_pass_it(server: Any) -> None:
    holder, *waiters = [session(server) for _ in range(4)]
    order: list[int] = []

    def wait(number: int) -> None:
        waiters[number].execute("SELECT pg_advisory_lock(42)")
        order.append(number)
        waiters[number].execute("SELECT pg_advisory_unlock(42)")

    holder.execute("SELECT pg_advisory_lock(42)")
    threads = []
    for number in range(3):
        threads.append(threading.Thread(target=wait, args=(number,)))
        threads[-1].start()
        waits(server, number + 1)
    with session(server) as reader:  # a reader may not pass the writers that wait, either
        assert reader.execute("SELECT pg_try_advisory_lock_shared(42)").fetchone() == (False,)
    holder.execute("SELECT pg_advisory_unlock(42)")
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2]
    for connection in (holder, *waiters):
        connection.close()


# Names -----------------------------------------------------------------------------------------


def meeting(part: Callable[[int], int]) -> tuple[str, str]:
    """Return two names whose keys agree in a part."""
    seen: dict[int, str] = {}
    for number in range(5_000_000):
        name = f"name-{number}"
        value = part(advisory_key("", name))
        if value in seen:
            return seen[value], name
        seen[value] = name
    raise AssertionError("no two names meet")


@pytest.mark.parametrize(
    ("bits", "part"),
    [
        ("the lower 16", lambda key: key & 0xFFFF),
        ("the lower 32", lambda key: key & 0xFFFFFFFF),
        ("the upper 32", lambda key: key >> 32),
    ],
)
def test_names_whose_keys_agree_in_part_do_not_block_each_other(
    url: str, bits: str, part: Callable[[int], int]
) -> None:
    one, two = meeting(part)
    assert part(advisory_key("", one)) == part(advisory_key("", two)), bits
    with Client(url) as first, Client(url) as second:
        leases = [first.lock(one).acquire(timeout=10), second.lock(two).acquire(timeout=10)]
        assert second.lock(one).try_acquire() is None
        assert [lease.release() for lease in leases] == [True, True]


# One client, many requests -----------------------------------------------------------------------


def test_a_release_is_not_held_up_by_waits_for_other_names(server: Any, desk: Desk, url: str) -> None:
    """Five requests wait on the server, for names that another client has; a sixth comes and goes."""
    names = [f"busy-{number}" for number in range(5)]
    with Client(url) as other:
        held = [other.lock(name, ttl=LONG).acquire(timeout=10) for name in names]
        mine = [desk.acquire(f"mine-{number}", ttl=LONG) for number in range(3)]
        calls = [desk.waiting(name) for name in names]
        waits(server, 5)
        for lease in mine:
            assert desk(lease.release) is True
        for _ in range(20):
            assert desk(desk.acquire("mine", ttl=LONG).release) is True
        assert len(ask(server, WAITED)) == 5 and not any(call.done() for call in calls)
        for lease in held:
            assert lease.release() is True
        for call in calls:
            assert desk(call.result(LONG).release) is True


def test_two_requests_of_one_client_never_share_a_lock(server: Any, desk: Desk) -> None:
    """Advisory locks are re-entrant in a session, and requests of a client share sessions."""
    lease = desk.acquire("job", ttl=LONG)
    assert desk(desk.locks.lock("job").try_acquire) is None
    waiting = desk.waiting("job", ttl=LONG)
    waits(server, 1)
    assert desk(lease.release) is True
    successor = waiting.result(LONG)
    assert successor.token > lease.token
    assert len(ask(server, HELD)) == 1
    assert desk(successor.release) is True
    assert ask(server, HELD) == []  # one unlock was enough


def test_a_reader_does_not_become_a_writer(desk: Desk) -> None:
    rw = desk.locks.rwlock("page", ttl=LONG)
    readers = [desk(rw.read().acquire, timeout=10) for _ in range(3)]
    assert desk(rw.write().try_acquire) is None
    for reader in readers[1:]:
        assert desk(reader.release) is True
    assert desk(rw.write().try_acquire) is None
    assert desk(readers[0].release) is True
    assert desk(desk(rw.write().acquire, timeout=10).release) is True


def test_a_reader_does_not_pass_a_writer_that_waits(server: Any, desk: Desk, url: str) -> None:
    """Though this client has a session that has the lock shared, and would get it again at once."""
    rw = desk.locks.rwlock("page", ttl=LONG)
    reader = desk(rw.read().acquire, timeout=10)
    with Client(url) as other:
        writer: Future[Any] = desk_for("blocking", url).begin(
            other.lock("page", ttl=LONG).acquire, timeout=LONG
        )
        waits(server, 1)
        assert desk(rw.read().try_acquire) is None
        late = desk.begin(rw.read().acquire, timeout=LONG)
        waits(server, 2)
        assert desk(reader.release) is True
        lease = writer.result(LONG)
        assert not late.done()
        assert lease.release() is True
        assert desk(late.result(LONG).release) is True


def test_more_readers_than_connections(server: Any, flavour: str) -> None:
    """Readers that waited have a connection each; one more is let in all the same."""
    with desk_for(flavour, advisory(server.url, pool_size=4)) as desk, Client(advisory(server.url)) as other:
        rw = desk.locks.rwlock("page", ttl=LONG)
        writer = other.lock("page", ttl=LONG).acquire(timeout=10)
        calls = [desk.begin(rw.read().acquire, timeout=LONG) for _ in range(8)]
        wait_until(lambda: len(other.inspect("page").waiters) == 8, "eight wait")
        assert len(ask(server, WAITED)) == 3
        writer.release()
        leases = [call.result(LONG) for call in calls]
        assert len(other.inspect("page").holders) == 8
        assert other.lock("page").try_acquire() is None
        assert len({lease.token for lease in leases}) == 8
        for lease in leases:
            assert desk(lease.verify) is True
            assert desk(lease.release) is True
        assert ask(server, HELD) == []


def test_a_reader_joins_others_of_whom_the_first_is_on_its_way(url: str) -> None:
    """It looked for a way in for ever, and with it stood the whole event loop."""
    with Client(url) as locks:
        rw = locks.rwlock("page", ttl=LONG)
        leases = [rw.read().acquire(timeout=10) for _ in range(2)]
        backend: Any = locks._session.backend
        first = backend._steps.holds[leases[0].owner]
        first.state = ASKED  # as it is while the server has yet to say whether it is let in
        joined = threading.Thread(target=lambda: leases.append(rw.read().acquire(timeout=10)), daemon=True)
        joined.start()
        joined.join(LONG)
        first.state = HELD_STATE
        assert len(leases) == 3
        assert [lease.release() for lease in leases] == [True] * 3


def test_semaphores_and_breaking_are_unsupported(desk: Desk) -> None:
    with pytest.raises(Unsupported, match="permit"):
        desk.locks.semaphore("s", 2)
    with pytest.raises(Unsupported, match="force_release"):
        desk(desk.locks.force_release, "s")


# Waits that end --------------------------------------------------------------------------------


def test_a_timeout_ends_the_wait_on_the_server(server: Any, desk: Desk, url: str) -> None:
    with Client(url) as other, other.lock("job", ttl=LONG):
        for _ in range(3):
            with pytest.raises(AcquireTimeout) as caught:
                desk.acquire("job", timeout=1)
            assert caught.value.holder is None or caught.value.holder.pid == os.getpid()
            assert ask(server, WAITED) == []
        assert len(ask(server, HELD)) == 1


def test_a_cancelled_wait_ends_on_the_server(server: Any, url: str) -> None:
    """At whatever moment it comes: in the queue, or just as the lock is granted."""

    async def main() -> None:
        async with AsyncClient(url) as locks, AsyncClient(url) as others:
            for turn in range(12):
                holder = await others.lock("job", ttl=LONG).acquire(timeout=10)
                task = asyncio.create_task(locks.lock("job", ttl=LONG).acquire(timeout=LONG))
                await asyncio.to_thread(waits, server, 1)
                if turn % 2:
                    await holder.release()
                    for _ in range(turn // 2):
                        await asyncio.sleep(0)
                task.cancel()
                try:
                    await (await task).release()
                except asyncio.CancelledError:
                    pass
                assert ask(server, WAITED) == []
                await holder.release()
                await asyncio.to_thread(wait_until, lambda: not ask(server, HELD), "it is free")

    asyncio.run(main())


def test_closing_a_client_ends_its_waits(server: Any, desk: Desk, flavour: str, url: str) -> None:
    holder = desk.acquire("job", ttl=LONG)
    with desk_for(flavour, url) as other:
        call = other.waiting("job")
        waits(server, 1)
        other(other.locks.close)
        with pytest.raises(AcquireCancelled):
            call.result(LONG)
        assert ask(server, WAITED) == []
    assert desk(holder.verify) is True
    assert desk(holder.release) is True


def test_a_server_that_is_slow_to_clean_up_is_asked_again(
    server: Any, desk: Desk, flavour: str, url: str
) -> None:
    """With two connections the second waiter polls: nobody sees it for longer than it waits."""
    holder = desk.acquire("job", ttl=LONG)
    with desk_for(flavour, advisory(server.url, pool_size=2)) as other:
        calls = [other.waiting("job", timeout=1.5) for _ in range(2)]
        wait_until(lambda: len(desk(desk.locks.inspect, "job").waiters) == 2, "two wait")
        server.pause()
        try:
            for call in calls:
                with pytest.raises((AcquireTimeout, BackendUnavailable)):
                    call.result(LONG)
        finally:
            server.resume()
        wait_until(lambda: not view.pending_cleanups(other.locks), "every cleanup was answered")
        # The server looks once a second whether the client of a wait is still there.
        wait_until(lambda: not desk(desk.locks.inspect, "job").waiters, "nobody waits")
    assert desk(holder.release) is True


def test_two_who_clean_up_after_a_waiter_both_find_it_gone(url: str, server: Any) -> None:
    """A caller that gives up and the renewer may meet: whoever is done first, nobody sees the waiter then."""

    async def main() -> None:
        async with (
            AsyncClient(url) as others,
            AsyncClient(advisory(server.url, pool_size=2)) as locks,
            others.lock("job", ttl=LONG),
        ):
            tasks = [asyncio.create_task(locks.lock("job").acquire(timeout=LONG)) for _ in range(2)]
            while len((await others.inspect("job")).waiters) < 2:
                await asyncio.sleep(0.01)
            backend: Any = locks._session.backend
            (polling,) = [hold for hold in backend._steps.holds.values() if hold.noted is not None]
            calls = [backend.abandon(polling.request, deadline=clock.now() + 5) for _ in range(2)]
            await next(asyncio.as_completed(calls))
            waiters = [waiter.owner for waiter in (await others.inspect("job")).waiters]
            assert polling.request.owner not in waiters
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())


def test_a_clean_up_that_is_cut_short_leaves_the_seat_to_the_next(url: str, server: Any) -> None:
    """The first takes over what an interrupted call had in use, and is cancelled before it lets go."""

    async def main() -> None:
        async with AsyncClient(url) as locks:
            lease = await locks.lock("job", ttl=LONG).acquire()
            backend: Any = locks._session.backend
            (hold,) = backend._steps.holds.values()
            seat = hold.seat
            seat.user[0] = hold.request.owner  # a call of its was interrupted

            async def never(*_: Any) -> bool:
                await asyncio.sleep(LONG)
                return True

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(backend._steps, "_unnote", never)
                task = asyncio.create_task(backend.abandon(hold.request, deadline=clock.now() + LONG))
                await asyncio.sleep(0.05)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            await backend.abandon(hold.request, deadline=clock.now() + 5)
            assert not seat.ended and keys(server) == set()
            assert await lease.release() is False

    asyncio.run(main())


def test_a_connection_whose_opening_was_interrupted_at_the_very_end_takes_nobodys_place(url: str) -> None:
    """Or a client would have one less for each such interrupt, and none in the end."""

    class Interrupted(list[Any]):
        def append(self, seat: Any) -> None:
            super().append(seat)
            raise KeyboardInterrupt

    with Client(url) as locks:
        seats = locks._session.backend._steps.seats
        seats._seats = Interrupted()
        with pytest.raises(KeyboardInterrupt):
            locks.lock("job", timeout=5).acquire()
        assert seats._seats == []
        seats._seats = []
        assert locks.lock("job", timeout=5).acquire().release() is True


# Loss ------------------------------------------------------------------------------------------


def test_a_session_that_is_given_up_ends_though_its_user_never_comes_back(server: Any, desk: Desk) -> None:
    lease = desk.acquire("job", ttl=LONG)
    (seat,) = desk.locks._session.backend._steps.seats._seats
    seat.user[0] = object()
    desk.locks._session.backend._steps.seats.died(seat, "it did not answer")
    wait_until(lambda: keys(server) == set(), "the server has let go", 10)
    wait_until(lease.lost.is_set, "the loss is known", 10)
    assert desk(desk.acquire("job").release) is True


def test_a_terminated_session_is_a_loss_before_the_next_holder_knows(
    server: Any, desk: Desk, url: str
) -> None:
    """The next renewal is twenty seconds away: the connection itself tells."""
    told: list[Any] = []
    lease = desk.acquire("job", ttl=LONG, on_lost=told.append)
    same = desk.acquire("other", ttl=LONG)
    assert backend_of(server, "job") == backend_of(server, "other")
    with Client(url) as next_one:
        waiting = desk_for("blocking", url).begin(next_one.lock("job", ttl=LONG).acquire, timeout=LONG)
        waits(server, 1)
        assert ask(server, f"SELECT pg_terminate_backend({backend_of(server, 'job')})") == [(True,)]
        successor = waiting.result(LONG)
        wait_until(lease.lost.is_set, "the loss is known", 10)
        wait_until(same.lost.is_set, "the loss of what shared the session is known", 10)
        assert successor.token > lease.token
        wait_until(lambda: told == [lease], "on_lost is called", 10)
        with pytest.raises(LeaseLost, match="session that held it has ended"):
            lease.check()
        assert desk(lease.release) is False
        assert successor.verify() is True  # no reconnect brings the old one back
        assert successor.release() is True
    assert desk(desk.acquire("job").release) is True


def test_a_lease_that_was_not_renewed_is_let_go(server: Any, desk: Desk) -> None:
    """By its own client, though other leases keep the session alive."""
    keep = desk.acquire("keep", ttl=1)
    lease = desk.acquire("short", ttl=0.5, timeout=10)
    desk(lease.release)
    lease = desk(desk.locks.lock("short", ttl=0.5, renew=False).acquire, timeout=10)
    wait_until(lambda: keys(server) == {advisory_key("", "keep")}, "it is let go", 10)
    assert not lease.is_held() and keep.is_held()
    assert desk(keep.release) is True


def test_replies_of_another_session_end_all_leases(server: Any, desk: Desk) -> None:
    """As behind a pooler that was switched to transaction mode under the client's feet."""
    lease = desk.acquire("job", ttl=LONG)
    (seat,) = desk.locks._session.backend._steps.seats._seats
    seat.pid_text = b"1"
    with pytest.raises(ConfigurationError, match="transaction mode"):
        desk(desk.locks.lock("other").try_acquire)
    wait_until(lease.lost.is_set, "the loss is known", 10)
    assert desk(desk.acquire("job").release) is True


# Fork, and the whole -----------------------------------------------------------------------------


def test_a_forked_child_takes_nothing_with_it(server: Any, url: str) -> None:
    with Client(url) as locks:
        lease = locks.lock("job", ttl=LONG).acquire(timeout=10)
        holder = backend_of(server, "job")
        child = fork()
        if child == 0:
            status = 1
            try:
                same = locks.lock("job").try_acquire() is None and not lease.is_held()
                with locks.lock("other", timeout=10):
                    status = 0 if same else 2
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert backend_of(server, "job") == holder
        assert lease.verify() is True
        assert locks.lock("more", timeout=10).acquire().release() is True
        assert lease.release() is True


CHECKS = [
    "readers_share",
    "writers_exclude_each_other",
    "killed_holder",
    "killed_waiter",
    "paused_past_the_ttl",
    "a_wait_cut_short_anywhere_leaves_nothing",
    "an_acquire_cut_short_anywhere_leaves_nothing",
    "ctrl_c_while_waiting",
    "many_dead_waiters_delay_by_a_few_seconds",
    "closed_clients_leave_nothing",
    "fork",
]


def test_checks_that_end_badly_leave_no_session_and_no_lock(server: Any, url: str) -> None:
    known = {check.name for check in conformance.checks()}
    summary = conformance.run(url, only=[name for name in CHECKS if name in known], parallel=4)
    assert [
        (result.check.name, result.detail) for result in summary.results if result.outcome == "failed"
    ] == []
    clean(server)
    wait_until(
        lambda: not ask(server, "SELECT pid FROM pg_stat_activity WHERE application_name = 'fencelock'"),
        "no session is left",
    )
