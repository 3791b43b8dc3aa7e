"""Redlock on five real servers: outages, late answers, and what it leaves behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from crew import wait_until
from redlock_nodes import MEMORY, async_client, behind_proxies, client, is_everywhere, keys, no_keys, url
from tools.servers import Group, start

import fencelock
from fencelock.backends.redlock import QuorumState, RedlockBackend
from fencelock.runtime.blocking import run
from unit.support import fork

FEW_PAIRS = 50


@pytest.fixture
def group() -> Iterator[Any]:
    with start("redlock") as group:
        yield group


@pytest.fixture(scope="module")
def calm() -> Iterator[Any]:
    """Five servers that no test does any harm to."""
    with start("redlock") as group:
        yield group


def pair(locks: fencelock.Client, name: str = "job", **terms: Any) -> int:
    lease = locks.lock(name, **terms).acquire(timeout=10)
    assert lease.release()
    return lease.token


def meet(locks: fencelock.Client, group: Group) -> None:
    """Use a client until it reaches every node: it begins as soon as it has connections to a quorum."""

    def reaches_all() -> bool:
        before = [evalsha(member) for member in group.members]
        pair(locks)
        return all(evalsha(member) > count for member, count in zip(group.members, before, strict=True))

    wait_until(reaches_all, "it reaches every node")
    wait_until(lambda: no_keys(group.members), "the last node has heard of the last release")


# The usual way ------------------------------------------------------------------------------


def evalsha(member: Any) -> int:
    told = member.info("INFO", "commandstats").get("cmdstat_evalsha", "calls=0")
    return int(told.split("calls=")[1].split(",")[0])


def test_a_pair_is_two_round_trips(calm: Group) -> None:
    with client(calm.members) as locks:
        for _ in range(3):
            pair(locks, "trips")
        before = [evalsha(member) for member in calm.members]
        tokens = [pair(locks, "trips") for _ in range(FEW_PAIRS)]
        expected = [count + 2 * FEW_PAIRS for count in before]
        wait_until(
            lambda: [evalsha(member) for member in calm.members] >= expected, "all nodes have caught up"
        )
        assert [evalsha(member) for member in calm.members] == expected
    assert tokens == [*range(tokens[0], tokens[0] + FEW_PAIRS)]


def test_inspect_shows_the_votes(calm: Group) -> None:
    with client(calm.members) as locks, locks.lock("shown") as lease:
        state = locks.inspect("shown")
        assert isinstance(state, QuorumState)
        assert [entry.token for entry in state.holders] == [lease.token]
        assert state.votes == {member.address: f"held by {lease.owner[:8]}" for member in calm.members}
        assert state.as_dict()["votes"] == state.votes


def test_names_leave_nothing_behind(calm: Group) -> None:
    with client(calm.members) as locks:
        for number in range(1000):
            pair(locks, f"job-{number}#send_email")
    wait_until(lambda: no_keys(calm.members), "no key is left of a thousand names")
    assert [member.ask("DBSIZE") for member in calm.members] == [1] * 5
    fields = [member.ask("HLEN", MEMORY) for member in calm.members]
    assert max(fields) <= 2 * 1024 + 3, "a counter and a writer for each bucket, and no more"


def test_many_contenders_make_progress(calm: Group) -> None:
    done: list[int] = []

    def work() -> None:
        with client(calm.members) as locks:
            for _ in range(5):
                with locks.lock("crowd", ttl=10, timeout=60) as lease:
                    done.append(lease.token)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(done) == 30
    assert done == sorted(set(done)), "tokens are unique, and rise with the grants"


def test_scripts_that_were_flushed_are_sent_again(calm: Group) -> None:
    with client(calm.members) as locks:
        first = pair(locks)
        for member in calm.members:
            member.ask("SCRIPT", "FLUSH")
        assert pair(locks) > first


def test_scripts_that_were_flushed_are_sent_again_under_asyncio(calm: Group) -> None:
    async def main() -> None:
        async with async_client(calm.members) as locks:
            first = await locks.lock("job").acquire(timeout=10)
            for member in calm.members:
                member.ask("SCRIPT", "FLUSH")
            assert await first.release()
            async with locks.lock("job", timeout=10) as second:
                assert second.token > first.token

    asyncio.run(main())


# Outages ------------------------------------------------------------------------------------


def test_a_minority_that_is_down_costs_nothing(group: Group) -> None:
    with client(group.members) as locks:
        tokens = [pair(locks)]
        for member in group.members[:2]:
            member.kill()
            tokens += [pair(locks) for _ in range(10)]
        assert tokens == sorted(set(tokens))
        assert locks.inspect("job").is_free
        with locks.lock("job", ttl=2) as lease:
            lease.extend(3)
            assert lease.verify()


def test_a_majority_that_is_down_is_no_quorum_and_not_a_lock_that_is_held(group: Group) -> None:
    with client(group.members) as locks:
        pair(locks)
        for member in group.members[:3]:
            member.kill()
        for timeout in (0, 0.5):
            for _ in range(5):  # a node that is busy may not answer in time
                with pytest.raises(fencelock.QuorumNotReached) as told:
                    locks.lock("job").acquire(timeout=timeout)
                votes = told.value.votes
                granted = [vote for vote in votes.values() if vote == "granted"]
                if len(granted) == 2:
                    break
            assert list(votes) == [member.address for member in group.members]
            assert granted == ["granted"] * 2
            assert "\n" not in str(told.value)
            assert not isinstance(told.value, fencelock.AcquireTimeout)
            assert isinstance(told.value, fencelock.BackendUnavailable), "so that waiters ride it out"
        with pytest.raises(fencelock.QuorumNotReached):
            locks.inspect("job")
    wait_until(lambda: no_keys(group.members[3:]), "the two votes were taken back")


def test_held_and_down_are_told_apart(group: Group) -> None:
    with client(group.members) as one, client(group.members) as other:
        lease = one.lock("job", ttl=30).acquire(timeout=10)
        for member in group.members[:2]:
            member.kill()
        with pytest.raises(fencelock.AcquireTimeout) as told:
            other.lock("job").acquire(timeout=0.3)
        assert told.value.holder is not None
        assert told.value.holder.owner == lease.owner
        group.members[2].kill()
        with pytest.raises(fencelock.QuorumNotReached):
            other.lock("job").acquire(timeout=0.3)
        with pytest.raises(fencelock.BackendUnavailable):
            lease.verify()
        assert lease.is_held(), "nobody else can have it either"


def test_waiters_ride_out_a_short_outage(group: Group) -> None:
    with client(group.members) as one, client(group.members) as other:
        lease = one.lock("job", ttl=30).acquire(timeout=10)
        got: list[int] = []
        waiting = threading.Thread(target=lambda: got.append(pair(other, timeout=60)))
        waiting.start()
        wait_until(lambda: group.members[4].ask("PUBSUB", "CHANNELS"), "it listens")
        for member in group.members[:3]:
            member.pause()
        for member in group.members[:3]:
            member.resume()
        assert lease.release()
        waiting.join(60)
        assert got > [lease.token]


def test_quorum_reached_although_one_node_failed(group: Group) -> None:
    """redlock-py raises then, and keeps the keys."""
    group.members[0].ask("CONFIG", "SET", "maxmemory", "1")
    with client(group.members) as locks:
        assert pair(locks) < pair(locks)
        wait_until(lambda: no_keys(group.members), "nothing is left")
        for member in group.members[1:3]:
            member.ask("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(fencelock.QuorumNotReached, match="out of memory"):
            locks.lock("job").try_acquire()


def test_an_even_number_of_nodes(group: Group) -> None:
    four = group.members[:4]
    with client(four) as locks:
        first = pair(locks)
        four[0].kill()
        assert pair(locks) > first
        four[1].kill()
        with pytest.raises(fencelock.QuorumNotReached):
            locks.lock("job").try_acquire()


# Slow nodes ---------------------------------------------------------------------------------


def test_a_hung_node_is_not_waited_for_and_keeps_nothing(group: Group) -> None:
    with client(group.members, node_timeout=20) as locks:  # whoever waited for it would be seen to
        pair(locks)
        hung = group.members[1]
        hung.pause()
        tokens = [pair(locks) for _ in range(FEW_PAIRS)]
        assert tokens == sorted(set(tokens))
        hung.resume()
        wait_until(lambda: not keys(hung), "what it was asked while it hung was undone")
        assert pair(locks) > tokens[-1]


def test_a_hung_node_under_asyncio(group: Group) -> None:
    async def main() -> None:
        async with async_client(group.members, node_timeout=20) as locks:
            lock = locks.lock("job")
            async with lock:
                pass
            hung = group.members[1]
            hung.pause()
            for _ in range(FEW_PAIRS):
                async with lock:
                    pass
            hung.resume()
            await asyncio.to_thread(wait_until, lambda: not keys(hung), "nothing is left there")

    asyncio.run(main())


def test_a_late_grant_is_undone(group: Group) -> None:
    """Two nodes answer when the lock was released long ago, by another thread over other connections."""
    with behind_proxies(group, 2) as (places, proxies), client(places, node_timeout=20) as locks:
        pair(locks)
        holds = [proxy.hold("requests") for proxy in proxies]
        lease = locks.lock("job", ttl=60).acquire(timeout=10)
        assert all(hold.wait() for hold in holds)
        releasing = threading.Thread(target=lease.release)
        releasing.start()
        releasing.join(30)
        assert not lease.is_held()
        for proxy in proxies:
            proxy.let_go()
        wait_until(lambda: no_keys(group.members), "the late grants were undone")
        assert pair(locks) > lease.token


def test_a_late_grant_of_a_try_that_failed_is_undone(group: Group) -> None:
    with (
        behind_proxies(group, 2) as (places, proxies),
        client(places, node_timeout=20) as locks,
        client(group.members) as other,
    ):
        for each in (locks, other):
            meet(each, group)
        holder = other.lock("job", ttl=60).acquire(timeout=10)
        wait_until(lambda: is_everywhere(group.members, holder), "it is held everywhere")
        for member in group.members[:2]:
            member.ask("DEL", *keys(member))
        holds = [proxy.hold("requests") for proxy in proxies]
        assert locks.lock("job", ttl=60).try_acquire() is None
        assert all(hold.wait() for hold in holds)
        for proxy in proxies:
            proxy.let_go()
        assert pair(locks, "another"), "so both proxies have passed on what they held"
        wait_until(lambda: no_keys(group.members[:2]), "votes that came too late were taken back")
        assert holder.verify()
        assert holder.release()


def test_a_reply_that_was_lost_costs_nothing(group: Group) -> None:
    with behind_proxies(group, 2) as (places, proxies), client(places) as locks:
        first = pair(locks)
        for proxy in proxies:
            proxy.swallow(1)
        assert pair(locks) > first
        wait_until(lambda: no_keys(group.members), "nothing is left")


# Renewal ------------------------------------------------------------------------------------


def test_a_lease_is_lost_when_no_quorum_can_have_it_and_only_then(group: Group) -> None:
    with client(group.members) as locks:
        meet(locks, group)
        lease = locks.lock("job", ttl=30).acquire(timeout=10)
        wait_until(lambda: is_everywhere(group.members, lease), "all nodes have it")
        for member in group.members[:2]:
            member.ask("DEL", *keys(member))
        assert lease.verify()
        lease.extend(30)
        group.members[2].kill()
        with pytest.raises(fencelock.BackendUnavailable):
            lease.verify()  # the node that is down may have it
        assert lease.is_held()
        group.members[3].ask("DEL", *keys(group.members[3]))
        assert lease.verify() is False
        with pytest.raises(fencelock.LeaseLost):
            lease.extend(30)
        assert no_keys(group.members[:2]), "an extension never revives"


# Interruptions ------------------------------------------------------------------------------


def test_cancelled_at_every_await_nothing_is_left(calm: Group) -> None:
    async def main() -> None:
        async with async_client(calm.members) as locks:
            lock = locks.lock("cancelled", ttl=60)
            async with lock:
                pass
            for turn in range(200):
                task = asyncio.ensure_future(lock.acquire())
                for _ in range(turn % 20):
                    await asyncio.sleep(0)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await (await task).release()
            async with locks.lock("cancelled", timeout=10):
                pass

    asyncio.run(main())
    wait_until(lambda: no_keys(calm.members), "nothing is left")


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # hit before its first step
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupted_anywhere_nothing_is_left(calm: Group) -> None:
    class Interrupt(BaseException):
        pass

    armed = False

    def interrupt(signum: int, frame: object) -> None:
        if armed:  # else it comes when its turn is over, and would hit the test instead
            raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with client(calm.members) as locks:
            lock = locks.lock("interrupted", ttl=60)
            pair(locks, "interrupted")
            for turn in range(60):
                with contextlib.suppress(Interrupt):
                    armed = True
                    signal.setitimer(signal.ITIMER_REAL, 0.00002 * (turn + 1))
                    lock.acquire(timeout=10).release()
                    armed = False
                signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_IGN)
            wait_until(lambda: lock.acquire(timeout=10).release(), "it works as before")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    wait_until(lambda: no_keys(calm.members), "nothing is left")


def test_a_forked_child_has_connections_of_its_own(calm: Group) -> None:
    with client(calm.members) as locks:
        lease = locks.lock("parent", ttl=30).acquire(timeout=10)
        child = fork()
        if child == 0:
            try:
                mine = not lease.is_held() and pair(locks, "child") > 0
                os._exit(0 if mine and locks.lock("parent").try_acquire() is None else 1)
            except BaseException:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert lease.verify()
        assert lease.release()


def test_a_step_that_a_handler_closes_the_client_in_leaves_no_lock(calm: Group) -> None:
    """The handler has withdrawn the request before the step goes on and asks the nodes for the lock."""
    with client(calm.members) as locks:
        pair(locks)
        wire: Any = locks._session.backend._wire  # type: ignore[attr-defined]
        take = wire.take

        def interrupted(owner: str = "") -> Any:
            wire.take = take
            line = take(owner)
            locks.close()
            return line

        wire.take = interrupted
        with pytest.raises(fencelock.AcquireCancelled):
            locks.lock("job", ttl=200).acquire(timeout=10)
    wait_until(lambda: no_keys(calm.members), "no node has the lock")


# The doctor ---------------------------------------------------------------------------------


def test_the_doctor_says_what_the_nodes_mean_for_a_lock(group: Group) -> None:
    nodes = group.members
    with client(nodes, max_ttl=60) as locks:
        pair(locks)
        nodes[0].kill()
        nodes[1].ask("FLUSHALL")
        wait_until(
            lambda: pair(locks) and nodes[1].ask("HEXISTS", MEMORY, "joining"), "the wiped node is left out"
        )
        nodes[2].ask("CONFIG", "SET", "maxmemory", "100mb")
        nodes[2].ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        nodes[3].ask("CONFIG", "SET", "appendonly", "yes")
        nodes[3].ask("CONFIG", "SET", "appendfsync", "always")
        found = [(each.subject, each.severity, each.detail) for each in run(locks._session.backend.doctor())]

    def said(subject: str, severity: str, word: str) -> bool:
        return any(one == subject and two == severity and word in told for one, two, told in found)

    assert said("nodes", "warning", f"{nodes[0].address}: connection refused")
    assert said(nodes[1].address, "warning", "lost its memory")
    assert said(nodes[2].address, "critical", "allkeys-lru")
    assert said(nodes[3].address, "ok", "a restart loses nothing")
    assert said(nodes[4].address, "notice", "appendonly no")
    assert said("clocks", "ok", "differ by")


# What cannot be ---------------------------------------------------------------------------


def test_a_wrong_password_is_told_without_it() -> None:
    with start("redlock") as group:
        for member in group.members:
            member.ask("CONFIG", "SET", "requirepass", "s3cret-right")
        places = ",".join(member.address for member in group.members)
        for login, word in ((":s3cret-wrong@", "wrong"), ("", "password")):
            with fencelock.Client(RedlockBackend.from_url(f"redlock://{login}{places}")) as locks:
                with pytest.raises(fencelock.QuorumNotReached, match=word) as told:
                    locks.lock("job").acquire(timeout=5)
                assert "s3cret" not in str(told.value)
                assert "\n" not in str(told.value)
                assert not told.value.transient, "waiting does not make it right"
        with fencelock.Client(RedlockBackend.from_url(f"redlock://:s3cret-right@{places}")) as locks:
            assert pair(locks)


def test_a_node_that_is_no_redis(group: Group) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        stop = threading.Event()

        def serve() -> None:
            server.settimeout(0.1)
            while not stop.is_set():
                with contextlib.suppress(OSError):
                    peer, _ = server.accept()
                    with peer:
                        peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                        peer.recv(1000)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with client(group.members) as locks:
                pair(locks)  # nodes begin together, so all must be there once
            backend = RedlockBackend.from_url(f"{url(group.members)},127.0.0.1:{server.getsockname()[1]}")
            with fencelock.Client(backend) as locks:
                assert pair(locks), "one that is no Redis is as one that is down"
                findings = run(backend.doctor())
                assert [each.severity for each in findings if each.subject == "nodes"] == ["warning"]
        finally:
            stop.set()
            thread.join()


def test_two_addresses_of_one_server_are_refused(calm: Group) -> None:
    first = calm.members[0]
    locks = fencelock.Client(RedlockBackend.from_url(f"{url(calm.members)},localhost:{first.port}"))
    with locks, pytest.raises(fencelock.ConfigurationError, match="are one server"):
        locks.lock("job").acquire(timeout=5)


def test_a_ttl_beyond_the_longest_is_refused(calm: Group) -> None:
    with client(calm.members, max_ttl=10) as locks:
        with pytest.raises(fencelock.ConfigurationError, match="redlock keeps at most 10s"):
            locks.lock("job", ttl=11)
        lease = locks.lock("job", ttl=10).acquire(timeout=10)
        with pytest.raises(fencelock.ConfigurationError, match="redlock keeps at most 10s"):
            lease.extend(11)
        assert lease.release()
