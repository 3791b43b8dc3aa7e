"""GET_LOCK: what a connection holds is lost with it, at once, and nothing brings it back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from crew import Crew, wait_until
from mysql_desk import ask, cut, desk_for, getlock, nothing_left, ours, proxied
from tools.servers import start

from fencelock import AcquireTimeout, BackendUnavailable, Client, LeaseLost, Unsupported
from fencelock.backends.mysql.getlock import lock_name
from fencelock.testing import boottime, kill, pause, resume

SLACK = 10.0


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with start("mariadb") as group:
        yield group.members[0]


@pytest.fixture
def url(server: Any) -> str:
    return getlock(server.url)


def holder_of(server: Any, name: str) -> int | None:
    found = ask(server, f"SELECT IS_USED_LOCK('{lock_name('fencelock', '', name)}')")[0][0]
    return None if found is None else int(found)


def test_the_loss_of_a_killed_connection_is_told_before_the_next_grant(
    server: Any, url: str, flavour: str
) -> None:
    lost: list[float] = []
    with desk_for(flavour, url) as desk, Client(url) as others:
        lock = desk.locks.lock("job", ttl=30, on_lost=lambda lease: lost.append(boottime()))
        lease = desk(lock.acquire, timeout=5)
        granted: list[float] = []

        def wait() -> None:
            with others.lock("job", ttl=30) as next_one:
                granted.append(boottime())
                assert next_one.token > lease.token

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.3)
        killed = boottime()
        ask(server, f"KILL {holder_of(server, 'job')}")
        wait_until(lambda: not lease.is_held(), "the loss is told")
        thread.join(60)
        wait_until(lambda: lost, "on_lost was called")
        assert granted
        assert lost[0] <= granted[0] + SLACK
        assert lost[0] - killed < SLACK
        assert not desk(lease.verify)
        assert not desk(lease.release)
        with pytest.raises(LeaseLost, match="connection"):
            lease.check()
    nothing_left(server)


def test_a_reconnect_does_not_revive(server: Any, url: str, flavour: str) -> None:
    with desk_for(flavour, url) as desk:
        lease = desk.acquire("job", ttl=30)
        other = desk.acquire("other", ttl=30)
        for number in ours(server):
            cut(server, number)
        wait_until(lambda: not lease.is_held() and not other.is_held(), "both are lost", 10)
        again = desk.acquire("job", ttl=30)
        assert again.token > lease.token
        assert not desk(lease.verify)
        assert desk(again.verify)
        assert desk(again.release)


def test_a_connection_that_was_closed_while_idle_goes_unnoticed(server: Any, url: str, flavour: str) -> None:
    with desk_for(flavour, url) as desk:
        for _ in range(5):
            assert desk(desk.acquire("job", ttl=30).release)
            for number in ours(server):
                cut(server, number)
            lease = desk(desk.locks.lock("job").try_acquire)
            assert lease is not None
            assert desk(lease.release)


def test_one_client_never_holds_a_lock_twice(url: str, flavour: str) -> None:
    """GET_LOCK is re-entrant on a connection; leases are not."""
    with desk_for(flavour, url) as desk:
        lease = desk.acquire("job", ttl=30)
        assert desk(desk.locks.lock("job").try_acquire) is None
        with pytest.raises(AcquireTimeout):
            desk.acquire("job", timeout=1)
        waiting = desk.waiting("job", ttl=30)
        time.sleep(0.2)
        assert not waiting.done()
        assert desk(lease.release)
        later = waiting.result(20)
        assert later.token > lease.token
        assert desk(later.release)


def test_a_wait_holds_up_no_release(server: Any, url: str, flavour: str) -> None:
    """Many locks, many waits on others, one client: each release is done at once."""
    with desk_for(flavour, url) as desk, Client(url) as others:
        held = [others.lock(f"held-{number}", ttl=60).acquire() for number in range(12)]
        mine = [desk.acquire(f"mine-{number}", ttl=60) for number in range(5)]
        waiting = [desk.waiting(f"held-{number}", ttl=60) for number in range(12)]  # more than connections
        time.sleep(0.5)
        for lease in mine:
            assert desk(lease.release)
            assert holder_of(server, lease.name) is None
        for lease in held:
            lease.release()
        for future in waiting:
            assert desk(future.result(30).release)
        assert len(ours(server)) <= 9 + 9
    nothing_left(server)


def test_a_lease_that_is_not_renewed_is_released_on_the_server(server: Any, url: str, flavour: str) -> None:
    with desk_for(flavour, url) as desk:
        lease = desk(desk.locks.lock("job", ttl=0.5, renew=False).acquire, timeout=5)
        assert holder_of(server, "job") is not None
        wait_until(lambda: holder_of(server, "job") is None, "it is free", 10)
        assert not lease.is_held()


def test_a_stopped_process_is_freed_by_the_server(server: Any, url: str, flavour: str) -> None:
    """Its connection is silent for longer than its ttl, so the server closes it."""
    with Crew() as crew, Client(url) as locks:
        member = crew.start("redis_waiter", url, flavour, "job", 2.0)
        token = member.hear()["token"]
        pause(member.pid)
        lease = locks.lock("job").acquire(timeout=30)
        assert lease.token > token
        resume(member.pid)
        lease.release()
        assert kill(member.process) == -9


def test_a_killed_process_is_freed_at_once(server: Any, url: str, flavour: str) -> None:
    with Crew() as crew, Client(url) as locks:
        member = crew.start("redis_waiter", url, flavour, "job", 60.0)
        token = member.hear()["token"]
        assert locks.lock("job").try_acquire() is None
        assert kill(member.process) == -9
        lease = locks.lock("job").acquire(timeout=30)
        assert lease.token > token
        lease.release()


def test_a_connection_that_falls_silent(server: Any, url: str, flavour: str) -> None:
    """Nothing arrives any more: the holder gives up at its deadline, and the server soon after."""
    with proxied(url) as (proxy, through), desk_for(flavour, through) as desk, Client(url) as others:
        lease = desk.acquire("job", ttl=2)
        with proxy.blackhole():
            wait_until(lambda: not lease.is_held(), "the loss is told", 15)
            later = others.lock("job").acquire(timeout=30)
            assert later.token > lease.token
        later.release()


def test_what_it_cannot_do(url: str, flavour: str) -> None:
    with desk_for(flavour, url) as desk:
        for call in (
            lambda: desk.locks.semaphore("job", 2),
            lambda: desk.locks.rwlock("job"),
            lambda: desk(desk.locks.inspect, "job"),
            lambda: desk(desk.locks.list),
            lambda: desk(desk.locks.force_release, "job"),
        ):
            with pytest.raises(Unsupported):
                call()


def test_a_proxy_that_changes_connections_is_refused(url: str, monkeypatch: Any) -> None:
    from fencelock.backends.mysql.blocking import BlockingLink

    monkeypatch.setattr(BlockingLink, "number", 1)
    with Client(url) as locks, pytest.raises(BackendUnavailable, match="a proxy stands between") as caught:
        locks.lock("job").acquire(timeout=2)
    assert not caught.value.transient


def test_galera_is_refused(url: str, monkeypatch: Any) -> None:
    from fencelock.backends.mysql import getlock

    told = "SELECT 'wsrep_on', 'ON' UNION SELECT 'wsrep_provider', '/usr/lib/galera/libgalera_smm.so'"
    monkeypatch.setattr(getlock, "GALERA", told)
    with Client(url) as locks, pytest.raises(BackendUnavailable, match="Galera") as caught:
        locks.lock("job").acquire(timeout=2)
    assert not caught.value.transient


def test_the_tables_are_made_again(server: Any, url: str, flavour: str) -> None:
    with desk_for(flavour, url) as desk:
        first = desk.acquire("job", ttl=30)
        assert desk(first.release)
        ask(server, "DROP TABLE fencelock_tokens")
        second = desk.acquire("job", ttl=30)
        assert second.token > first.token
        assert desk(second.release)
