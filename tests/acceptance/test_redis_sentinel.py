"""Sentinel, with real servers: any Sentinel may be down, and the primary may change while others work.

What a failover may cost is declared in `guarantees`: a lock may have two holders, since replication
is asynchronous. Nothing else may happen: tokens stay unique and rise (the clocks agree, they are one),
the guarded resource loses nothing, a loss is told once, and the work goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from crew import PATIENCE, wait_until
from redis_crowd import Crowd
from redis_desk import FLAVOURS, desk_for
from tools.servers import NotReady, start

import fencelock
from fencelock.backends.base import Origin, Request
from fencelock.backends.redis.keys import Places
from fencelock.backends.redis.sentinel import SentinelBackend
from fencelock.runtime import clock
from fencelock.runtime.blocking import run

UNDECLARED = ("unique-token", "token-order", "guard", "loss")
NAMES = ["one", "two", "three"]


@pytest.fixture(scope="module")
def steady() -> Iterator[Any]:
    """A group whose primary stays what it is."""
    with start("sentinel") as group:
        yield group


@pytest.fixture
def failing() -> Iterator[Any]:
    """A group to break."""
    with start("sentinel") as group:
        yield group


def servers(group: Any) -> list[Any]:
    return [group.primary, *group.replicas]


def primary_by_sentinel(group: Any) -> int:
    """The port of the primary that all Sentinels name, 0 while they differ."""
    named = {
        sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster")[1] for sentinel in group.sentinels
    }
    return int(named.pop()) if len(named) == 1 else 0


# Without a failover -----------------------------------------------------------------------


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_usual(steady: Any, flavour: str) -> None:
    with desk_for(flavour, steady.url) as desk, desk_for(flavour, steady.url) as other:
        lease = desk.acquire("smoke")
        assert other(other.locks.lock("smoke").try_acquire) is None
        waiting = other.waiting("smoke")
        wait_until(lambda: desk.inspect("smoke").waiters, "a waiter")
        assert desk(lease.release)
        assert waiting.result(PATIENCE).token > lease.token
        shared = [each(each.locks.rwlock("rw").read().acquire) for each in (desk, other)]
        permit = desk(desk.locks.semaphore("s", 2).acquire)
        assert [state.name for state in desk(desk.locks.list)] == ["rw", "s", "smoke"]
        assert len(desk(desk.locks.force_release, "smoke")) == 1
        assert all([desk(shared[0].release), other(shared[1].release), desk(permit.release)])
        assert desk(desk.locks.list) == []


def test_the_data_is_in_the_database_of_the_url(steady: Any) -> None:
    with (
        fencelock.Client(steady.url) as zero,
        fencelock.Client(f"{steady.url}/3") as three,
        three.lock("elsewhere"),
    ):
        assert zero.inspect("elsewhere").is_free
        assert not three.inspect("elsewhere").is_free


def test_a_service_that_nobody_knows_is_one_clear_line(steady: Any) -> None:
    url = steady.url.replace("mymaster", "nobody")
    with fencelock.Client(url) as locks, pytest.raises(fencelock.BackendUnavailable) as caught:
        locks.lock("x").acquire(timeout=5)
    assert not caught.value.transient
    assert "knows no service 'nobody'" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_sentinel_says_so(steady: Any) -> None:
    url = f"redis+sentinel://{steady.primary.address}/mymaster"
    with (
        fencelock.Client(url) as locks,
        pytest.raises(fencelock.BackendUnavailable, match="it is no Sentinel"),
    ):
        locks.lock("x").acquire(timeout=5)


@pytest.mark.parametrize("state", ["down", "paused", "wrong"])
def test_one_sentinel_is_no_good(steady: Any, state: str) -> None:
    first = steady.sentinels[0]
    url = f"redis+sentinel://{first.address},{steady.sentinels[1].address}/mymaster"
    if state == "down":
        url = f"redis+sentinel://127.0.0.1:1,{steady.sentinels[1].address}/mymaster"
    elif state == "wrong":  # it never heard of the service
        url = f"redis+sentinel://{steady.replicas[0].address},{steady.sentinels[1].address}/mymaster"
    else:
        first.pause()
    try:
        with fencelock.Client(url) as locks:
            for _ in range(3):
                assert locks.lock("x").acquire(timeout=10).release()
    finally:
        first.resume()


def test_a_sentinel_that_tells_of_old_times_is_not_believed(steady: Any) -> None:
    """It names a replica, as it would after it missed a failover; the other one is asked as well."""
    wrong, right = steady.sentinels[:2]
    replica = steady.replicas[0]
    wrong.ask("SENTINEL", "MONITOR", "elsewhere", replica.host, replica.port, 3)
    right.ask("SENTINEL", "MONITOR", "elsewhere", steady.primary.host, steady.primary.port, 3)
    try:
        assert wrong.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "elsewhere")[1] == str(replica.port)
        url = f"redis+sentinel://{wrong.address},{right.address}/elsewhere"
        with fencelock.Client(url) as locks, locks.lock("x", timeout=10):
            assert key_of("x") in steady.primary.ask("KEYS", "*")
    finally:
        wrong.ask("SENTINEL", "REMOVE", "elsewhere")
        right.ask("SENTINEL", "REMOVE", "elsewhere")


def test_sentinels_have_credentials_of_their_own(steady: Any) -> None:
    for sentinel in steady.sentinels:
        sentinel.ask("ACL", "SETUSER", "watcher", "on", ">open sesame", "+@all")
    with fencelock.Client(f"{steady.url}?sentinel_username=watcher&sentinel_password=open%20sesame") as locks:
        assert locks.lock("x").acquire(timeout=10).release()
    with fencelock.Client(f"{steady.url}?sentinel_username=watcher&sentinel_password=wrong") as locks:
        with pytest.raises(fencelock.BackendUnavailable, match="password is wrong") as caught:
            locks.lock("x").acquire(timeout=10)
        assert "sesame" not in str(caught.value)


# min_replicas_acked -----------------------------------------------------------------------


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_grant_that_replicas_did_not_get_is_withdrawn(steady: Any, flavour: str) -> None:
    with desk_for(flavour, f"{steady.url}?min_replicas_acked=2") as desk:
        first = desk.acquire("acked")
        assert desk(first.release)
        steady.replicas[0].pause()
        try:
            with pytest.raises(fencelock.BackendUnavailable, match="1 of 2 replicas acknowledged") as caught:
                desk.acquire("acked", timeout=10)
            assert caught.value.transient
            wait_until(lambda: desk.inspect("acked").is_free, "the grant is withdrawn")
        finally:
            steady.replicas[0].resume()
        steady.wait()
        again = desk.acquire("acked")
        assert again.token > first.token
        assert desk(again.release)


def test_nobody_waits_behind_a_grant_that_was_withdrawn(steady: Any) -> None:
    backend = SentinelBackend.from_url(f"{steady.url}?min_replicas_acked=3")
    with fencelock.Client(backend), fencelock.Client(steady.url) as locks:
        request = Request("f" * 32, "acked", "exclusive", 0, 30.0, Origin("test", "here", 1), None)
        with pytest.raises(fencelock.BackendUnavailable, match="2 of 3 replicas"):
            run(backend.acquire(request, wait=True, deadline=clock.now() + 5.0))
        assert locks.inspect("acked").is_free


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_pushed_grant_does_not_count_by_itself(steady: Any, flavour: str) -> None:
    with (
        desk_for(flavour, f"{steady.url}?min_replicas_acked=2") as desk,
        fencelock.Client(steady.url) as locks,
    ):
        assert any("no consensus" in caveat for caveat in desk.locks.guarantees.caveats)
        for pushed in (True, False):
            lease = locks.lock("pushed").acquire()
            waiting = desk.waiting("pushed")
            wait_until(lambda: locks.inspect("pushed").waiters, "a waiter")
            wait_until(lambda: steady.primary.ask("PUBSUB", "CHANNELS", "fencelock:*"), "it listens")
            if pushed:
                assert lease.release()
                assert desk(waiting.result(PATIENCE).release)
                continue
            steady.replicas[0].pause()
            try:
                assert lease.release()
                with pytest.raises(fencelock.BackendUnavailable, match="1 of 2 replicas acknowledged"):
                    waiting.result(PATIENCE)
            finally:
                steady.replicas[0].resume()
    steady.wait()


# Failover ---------------------------------------------------------------------------------


def test_the_primary_is_killed_under_load(failing: Any) -> None:
    with fencelock.Client(failing.url) as keeper, Crowd(failing.url, NAMES) as crowd:
        kept = keeper.lock("kept", ttl=30).acquire()
        crowd.everybody_gets_on()
        failing.primary.ask("WAIT", 2, 1000)  # the replicas have what was kept
        failing.primary.kill()
        wait_until(lambda: primary_by_sentinel(failing) not in {0, failing.primary.port}, "a new primary")
        crowd.everybody_gets_on()
        assert kept.verify(), "a lease that was replicated survives"
        kept.extend(30)
    assert crowd.violations(*UNDECLARED) == []
    with fencelock.Client(failing.url) as locks:
        wait_until(lambda: locks.list() == [], "nothing is left")


def test_a_stale_primary_wakes_up(failing: Any) -> None:
    """It stood still while another was promoted, and takes itself for the primary when it wakes up."""
    old = failing.primary
    with fencelock.Client(failing.url) as idle, Crowd(failing.url, NAMES) as crowd:
        assert idle.lock("idle").acquire().release()
        crowd.everybody_gets_on()
        old.pause()
        wait_until(lambda: primary_by_sentinel(failing) not in {0, old.port}, "a new primary")
        new = next(server for server in failing.replicas if server.is_primary())
        crowd.everybody_gets_on()
        old.resume()
        wait_until(lambda: answers(old), "it is awake")
        lease = idle.lock(
            "idle", timeout=20
        ).acquire()  # it has a connection to the old one, and knows better
        assert key_of("idle") in new.ask("KEYS", "*")
        crowd.everybody_gets_on()
        wait_until(lambda: is_replica(old), "the old primary is demoted")
        with pytest.raises(NotReady, match="READONLY"):
            old.ask("SET", "x", "y")
        assert lease.verify()
        lease.release()
        crowd.everybody_gets_on()
    assert crowd.violations(*UNDECLARED) == []


def answers(server: Any) -> bool:
    try:
        return bool(server.ask("PING") == "PONG")
    except OSError:
        return False


def key_of(name: str) -> str:
    return Places("").find(name).key.decode()


def is_replica(server: Any) -> bool:
    try:
        return not server.is_primary()
    except OSError:
        return False


def test_a_loss_in_a_failover_is_noticed(failing: Any) -> None:
    """The replicas are cut off while the lock is granted: the new primary does not know of it."""
    with fencelock.Client(failing.url) as locks:
        before = locks.lock("lost").acquire()
        before.release()
        cut_off_replicas(failing.primary)
        lease = locks.lock("lost", ttl=6).acquire(timeout=5)
        failing.primary.kill()
        wait_until(lambda: primary_by_sentinel(failing) not in {0, failing.primary.port}, "a new primary")
        assert lease.lost.wait(60)
        with pytest.raises(fencelock.LeaseLost):
            lease.check()
        after = wait_until(lambda: attempt(locks, "lost"), "a grant on the new primary")
        assert after.token > lease.token > before.token
        assert after.release()


def cut_off_replicas(primary: Any) -> None:
    """End replication, and let nobody begin it anew; whoever is connected already may go on."""
    with redis.Redis(port=primary.port, single_connection_client=True) as operator:
        operator.execute_command("CONFIG", "SET", "requirepass", "nobody knows")
        operator.execute_command("CLIENT", "KILL", "TYPE", "replica")
        wait_until(lambda: operator.info("replication")["connected_slaves"] == 0, "no replica")


def attempt(locks: fencelock.Client, name: str) -> fencelock.Lease | None:
    try:
        return locks.lock(name).acquire(timeout=1)
    except (fencelock.BackendUnavailable, fencelock.AcquireTimeout):
        return None
