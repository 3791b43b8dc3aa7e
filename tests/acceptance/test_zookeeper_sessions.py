"""Sessions of ZooKeeper's: what ends with them, what keeps them, and that none is left over."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from crew import wait_until
from kazoo.exceptions import NoNodeError, SessionExpiredError
from redis_desk import FLAVOURS, Desk, desk_for, proxied
from tools.servers import start
from zookeeper_desk import (
    count_endings,
    count_events,
    count_requests,
    delete,
    expire,
    operator,
    session_of,
    sessions,
    znodes,
    znodes_of,
)

from fencelock import AcquireTimeout, AsyncClient, BackendUnavailable, LeaseLost
from fencelock.backends.base import Renewal
from fencelock.testing.conformance.expect import took

NAMES = int(os.environ.get("FENCELOCK_NAMES", "2000"))
TASKS = 100
MANY = int(os.environ.get("FENCELOCK_LEASES", "2000"))
CROWD = 200
SLACK = 10.0
"""Seconds that a busy machine may add."""


@pytest.fixture(scope="module")
def group() -> Iterator[Any]:
    with start("zookeeper", settings={"maxSessionTimeout": "600000"}) as group:
        yield group


@pytest.fixture
def server(group: Any) -> Iterator[Any]:
    """The server, on which every test leaves nothing."""
    threads = threading.active_count()
    yield group.members[0]
    wait_until(lambda: not znodes(group.members[0]), "no znode is left")
    wait_until(lambda: not sessions(group.members[0]), "no session is left")
    wait_until(lambda: threading.active_count() <= threads, "no thread is left")


@pytest.fixture(params=FLAVOURS)
def desk(group: Any, server: Any, request: pytest.FixtureRequest) -> Iterator[Desk]:
    with desk_for(request.param, group.url) as desk:
        yield desk


def test_a_session_that_expires_is_lost_to_whoever_holds_in_it_at_once(desk: Desk, server: Any) -> None:
    lease = desk.acquire("job", ttl=60)
    (path,) = znodes_of(server, lease.owner)
    expire(server, desk.locks, session_of(server, path))
    wait_until(lambda: not lease.is_held(), "the loss is known, before the first renewal", 2 + SLACK)
    with pytest.raises(LeaseLost, match="session"):
        lease.check()
    again = desk.acquire("job", ttl=20)
    assert again.token > lease.token
    assert desk(again.release)


def test_a_session_that_ends_while_it_is_asked_takes_no_other_with_it(desk: Desk) -> None:
    """Found by chaos: each session it was then looked for in was given up alive, with its znodes."""
    kept = desk.acquire("kept", ttl=30)
    lease = desk.acquire("job", ttl=20)
    store = desk.locks._session.backend._store
    place = desk.locks._session.backend._places[lease.owner]
    store._unsure[lease.owner] = ending = place.tenure.ident
    before = set(store._zk.sessions)
    mine, asked = store._reader.mine, []

    async def ask(request: Any, session: Any, deadline: float) -> Any:
        asked.append(session.ident)
        if session.ident == ending:
            raise SessionExpiredError
        return await mine(request, session, deadline)

    store._reader.mine = ask
    assert desk(lease.release)
    assert asked[0] == ending
    assert set(store._zk.sessions) == before
    assert desk(kept.verify)
    assert desk(kept.release)


@pytest.mark.parametrize("swept", [True, False], ids=["swept", "left behind"])
def test_a_place_that_was_lost_is_not_taken_up_again(
    desk: Desk, server: Any, group: Any, monkeypatch: pytest.MonkeyPatch, swept: bool
) -> None:
    """Found by chaos: a session ended for its client, not yet for a server that had been restarted.

    The client stood in line anew, was taken to stand where its old znode was, and held. When that was gone,
    so did the one who stood between.
    """
    with desk_for("blocking", group.url) as other, desk_for("blocking", group.url) as third:
        held = other.acquire("job", ttl=20)
        waits = desk.waiting("job", ttl=20)
        wait_until(lambda: len(other.inspect("job").waiters) == 1, "one waits")
        (owner,) = (entry.owner for entry in other.inspect("job").waiters)
        between = third.waiting("job", ttl=20)
        wait_until(lambda: len(other.inspect("job").waiters) == 2, "another waits")
        store = desk.locks._session.backend._store
        if not swept:
            remove = store._zk.delete

            async def delete(paths: Any, session: Any, deadline: float) -> bool:
                left = paths and owner in paths[0] and paths[0] in ghosts
                return True if left else await remove(paths, session, deadline)

            monkeypatch.setattr(store._zk, "delete", delete)
        ghosts = set(znodes_of(server, owner))
        ended = list(store._zk.sessions.values())
        for session in ended:
            session._end("its server is being restarted")  # which is all that the server hears of it
        wait_until(lambda: set(znodes_of(server, owner)) - ghosts, "it stands in line anew")
        assert other(held.release)
        if swept:
            lease = between.result(20)
            for session in ended:
                session.end()
        else:  # in everybody's way, until the server knows
            time.sleep(0.3)
            assert not waits.done()
            assert not between.done()
            for session in ended:
                session.end()
            lease = between.result(20)
        wait_until(lambda: not ghosts & set(znodes_of(server, owner)), "nothing is left of its first place")
        time.sleep(0.2)
        assert not waits.done(), "two hold it"
        assert third(lease.release)
        mine = waits.result(20)
        assert mine.token > lease.token
        assert desk(mine.release)


def test_a_znode_that_is_deleted_is_lost_at_the_next_renewal(desk: Desk, server: Any) -> None:
    lease, other = desk.acquire("job", ttl=3), desk.acquire("other", ttl=3)
    time.sleep(1.2)  # it was renewed: from now on the server would tell of a deletion
    (path,) = znodes_of(server, lease.owner)
    delete(server, path)
    wait_until(lambda: not lease.is_held(), "the loss is known", 3 + SLACK)
    assert desk(other.verify)
    assert desk(other.release)


def test_a_znode_that_is_deleted_before_the_first_renewal_is_not_verified(desk: Desk, server: Any) -> None:
    lease = desk.acquire("job", ttl=20)
    assert desk(lease.verify)
    delete(server, *znodes_of(server, lease.owner))
    assert not desk(lease.verify)
    assert not lease.is_held()


def test_a_waiter_whose_session_expires_waits_on(desk: Desk, server: Any) -> None:
    held = desk.acquire("job", ttl=20)
    wait = desk.waiting("job", ttl=20)
    waiter = wait_until(lambda: desk.inspect("job").waiters, "one waits")[0]
    path = wait_until(lambda: [p for p in znodes_of(server, waiter.owner) if ".w" in p], "it has moved")[0]
    expire(server, desk.locks, session_of(server, path))
    wait_until(lambda: [w.token > waiter.token for w in desk.inspect("job").waiters] == [True], "it is back")
    assert not wait.done()
    assert desk(held.release)
    lease = wait.result(10)
    assert desk(lease.verify)
    assert lease.token > held.token
    assert desk(lease.release)


def test_a_waiter_whose_session_ends_as_its_turn_comes_is_not_admitted_on_it(desk: Desk, server: Any) -> None:
    held = desk.acquire("job", ttl=20)
    wait = desk.waiting("job", ttl=20)
    waiter = wait_until(lambda: desk.inspect("job").waiters, "one waits")[0]
    path = wait_until(lambda: [p for p in znodes_of(server, waiter.owner) if ".w" in p], "it has moved")[0]
    expire(server, desk.locks, session_of(server, path))
    delete(server, *znodes_of(server, held.owner))
    lease = wait.result(30)
    assert lease.token > waiter.token
    assert desk(lease.verify)
    assert desk(lease.release)
    assert not desk(held.verify)


@pytest.mark.parametrize("how", ["its session ends", "its znode is deleted"])
def test_one_that_has_waited_leaves_nothing_when_it_loses_the_lock(desk: Desk, server: Any, how: str) -> None:
    """It has a second znode, in the session of those who wait, which must not stand in the way of others."""
    held = desk.acquire("job", ttl=4)
    wait = desk.waiting("job", ttl=4)
    wait_until(lambda: desk.inspect("job").waiters, "one waits")
    assert desk(held.release)
    lease = wait.result(10)
    moved = wait_until(lambda: znodes_of(server, lease.owner)[1:], "its first renewal has moved it")
    holding, waiting = znodes_of(server, lease.owner)
    assert moved == [waiting]
    assert (".h" in holding, ".w" in waiting) == (True, True)
    if how == "its session ends":
        expire(server, desk.locks, session_of(server, holding))
    else:
        delete(server, holding)
    wait_until(lambda: not lease.is_held(), "the loss is known", 4 + SLACK)
    again = desk.acquire("job", ttl=4, timeout=2 + SLACK)
    assert again.token > lease.token
    assert desk(again.release)


def called(desk: Desk) -> Any:
    """Return a lease that was had by waiting, and not yet renewed: it is held where it waited."""
    backend = desk.locks._session.backend
    for _ in range(10):
        held = desk.acquire("job", ttl=30)
        wait = desk.waiting("job", ttl=30)
        wait_until(lambda: desk.inspect("job").waiters, "one waits")
        assert desk(held.release)
        lease = wait.result(10)
        if backend._places[lease.owner].tenure.class_ == backend._store.waiting:
            return lease
        assert desk(lease.release)  # it was slow, and had to ask
    raise AssertionError("nobody holds where it waited")


@pytest.mark.parametrize("known", [True, False], ids=["the move is known", "it has no answer yet"])
def test_a_lease_that_is_released_while_a_renewal_moves_it_leaves_nothing(
    desk: Desk, server: Any, known: bool
) -> None:
    """The release had looked where the znode was, and the move was done before that znode was deleted."""
    store, runtime = desk.locks._session.backend._store, desk.locks._session.runtime
    move, result, delete = store.move, store._zk.result, store._zk.delete
    done: list[str] = []
    movers: list[object] = []

    async def after(word: str) -> None:
        while word not in done:
            await runtime.sleep(0.005)

    async def move_late(*words: Any) -> Any:
        movers.append(runtime.current())
        done.append("renewal")
        await after("release")
        queue = await move(*words)
        done.append("known")
        return queue

    async def answer_late(*words: Any) -> Any:
        answer = await result(*words)
        if runtime.current() in movers and "move" not in done:
            done.append("move")
            await after("end")
        return answer

    async def delete_later(*words: Any) -> Any:
        done.append("release")
        await after("known" if known else "move")
        return await delete(*words)

    lease = called(desk)
    store.move, store._zk.delete = move_late, delete_later
    if not known:
        store._zk.result = answer_late
    wait_until(lambda: "renewal" in done, "the first renewal is about to move it")
    assert desk(lease.release)
    done.append("end")
    wait_until(lambda: not znodes_of(server, lease.owner), "nothing is left of it", 1 + SLACK)
    again = desk.acquire("job", ttl=30, timeout=1 + SLACK)
    assert desk(again.release)


def test_tokens_rise_when_an_operator_deletes_everything(desk: Desk, server: Any) -> None:
    """The numbers in the names begin again with their parent; the tokens do not."""
    lease = desk.acquire("job", ttl=20)
    with operator(server) as client:
        client.delete("/fencelock", recursive=True)
    again = desk.acquire("job", ttl=20)
    assert again.token > lease.token
    assert desk(again.release)
    assert not desk(lease.verify)


def test_failed_and_cancelled_attempts_leave_no_session(group: Any, server: Any) -> None:
    async def main() -> list[int]:
        async with AsyncClient(group.url) as locks, locks.lock("job", ttl=30):
            counts = []
            for _ in range(2):
                for _ in range(50):
                    tries = [locks.lock("job", ttl=20).try_acquire() for _ in range(10)]
                    assert await asyncio.gather(*tries) == [None] * 10
                waits = [asyncio.ensure_future(locks.lock("job", ttl=20).acquire()) for _ in range(500)]
                await asyncio.sleep(0.3)
                for wait in waits:
                    wait.cancel()
                for result in await asyncio.gather(*waits, return_exceptions=True):
                    assert isinstance(result, asyncio.CancelledError)
                await asyncio.to_thread(wait_until, lambda: len(znodes(server)) == 1, "only one is left")
                counts.append(len(sessions(server)))
            assert threading.active_count() <= threads + 6  # no thread for each waiter
            return counts

    threads = threading.active_count()
    assert max(asyncio.run(main())) <= 3  # the holder's, the attempts', the waiters'


def test_failed_attempts_of_a_thread_leave_no_session(group: Any, server: Any) -> None:
    with desk_for("blocking", group.url) as desk:
        held = desk.acquire("job", ttl=30)
        for _ in range(1000):
            assert desk.locks.lock("job", ttl=20).try_acquire() is None
        for _ in range(20):
            with pytest.raises((AcquireTimeout, BackendUnavailable)):  # a busy one may not answer by then
                desk.acquire("job", ttl=20, timeout=0.1)
        assert len(sessions(server)) <= 3
        wait_until(lambda: len(znodes(server)) == 1, "only one is left")
        assert desk(held.release)


def test_with_two_hundred_waiters_a_release_tells_one_of_them(
    group: Any, server: Any, monkeypatch: pytest.MonkeyPatch, record_property: Any
) -> None:
    events, endings = count_events(monkeypatch), count_endings(monkeypatch)

    async def main() -> list[int]:
        async with AsyncClient(group.url) as locks:
            lease = await locks.lock("job", ttl=30).acquire()
            waits = {asyncio.ensure_future(locks.lock("job", ttl=30).acquire()) for _ in range(CROWD)}
            await asyncio.to_thread(
                wait_until,
                lambda: sum(".w" in path for path in znodes(server)) == CROWD,
                "all of them wait",
            )
            before = -1
            while len(events) > before:  # some look again until they know whom to watch
                before = len(events)
                await asyncio.sleep(1.0)
            counts = []
            for _ in range(10):
                events.clear()
                await lease.release()
                done, waits = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                if endings:
                    break
                (one,) = done
                assert one.result().token > lease.token
                lease = one.result()
                await asyncio.sleep(0.1)
                # One that was renewed watches its own znode as well.
                counts.append(sum(".h" not in (path or "") for _, path in events))
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
            await lease.release()
            return counts

    counts = asyncio.run(main())
    record_property("events", counts)
    assert endings == []
    assert counts == [1] * 10


def test_many_leases_cost_one_heartbeat(group: Any, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> tuple[list[str], int]:
        async with AsyncClient(group.url) as locks:
            leases: list[Any] = []
            for part in range(0, MANY, 500):
                taken = [locks.lock(f"job-{part + number}", ttl=500).acquire() for number in range(500)]
                leases += await asyncio.gather(*taken)
            backend = locks._session.backend

            async def renew() -> list[str]:
                requests.clear()
                renewed = await backend.renew(
                    [renewal(lease) for lease in leases], deadline=backend.runtime.now() + 20
                )
                assert {outcome.value for outcome in renewed} == {"renewed"}
                return list(requests)

            requests = count_requests(monkeypatch)
            first = await renew()
            assert first.count("Exists") == MANY  # once for each lease: a watch
            second = await renew()
            held = sum(lease.is_held() for lease in leases)
            monkeypatch.undo()
            for part in range(0, MANY, 500):
                await asyncio.gather(*(lease.release() for lease in leases[part : part + 500]))
            return second, held

    during, held = asyncio.run(main())
    assert held == MANY
    assert sorted(set(during)) == ["Sync", "Transaction"]
    assert during.count("Transaction") == 1


def renewal(lease: Any) -> Renewal:
    hold = lease._hold
    return Renewal(hold.request, hold.token, hold.ttl, True)


def test_distinct_names_leave_nothing(group: Any, server: Any, record_property: Any) -> None:
    async def main() -> float:
        numbers = iter(range(NAMES))

        async def work(locks: AsyncClient) -> None:
            for number in numbers:
                lease = await locks.lock(f"{uuid.UUID(int=number)}#send_email").acquire()
                await lease.release()

        async with AsyncClient(group.url) as locks:
            began = time.monotonic()
            async with asyncio.TaskGroup() as tasks:
                for _ in range(TASKS):
                    tasks.create_task(work(locks))
            assert znodes(server) == []
            assert len(sessions(server)) == 2  # the one of their ttl, and the one of those who wait
            return time.monotonic() - began

    told = f"{NAMES} names in {asyncio.run(main()):.1f}s"
    record_property("residue", told)
    print(told)


@pytest.mark.timing
def test_a_timeout_ends_in_time_whatever_wakes_in_between(desk: Desk, server: Any) -> None:
    """The places before it come and go all the time, and none of that restarts its clock: 1.3 s at rest."""
    held = desk.acquire("job", ttl=30)
    noise = [desk.waiting("job", timeout=0.1 * number, ttl=30) for number in range(1, 9)]
    wait_until(lambda: len(desk.inspect("job").waiters) > 3, "they wait")
    began = time.monotonic()
    with pytest.raises(AcquireTimeout):
        desk.acquire("job", timeout=1, ttl=30)
    waited = time.monotonic() - began
    for wait in noise:
        assert isinstance(wait.exception(30), AcquireTimeout)
    assert desk(held.release)
    took(1.0, waited, 1.5, "the wait")


def test_leaders_are_observed_by_watch(
    desk: Desk, group: Any, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is asked while nothing changes."""
    election = desk.locks.election("leader")
    seen: list[str | None] = []

    def observe() -> None:
        for entry in election.observe():
            seen.append(entry and entry.owner)
            if len(seen) == 3:
                return

    async def observe_tasks() -> None:
        async for entry in election.observe():
            seen.append(entry and entry.owner)
            if len(seen) == 3:
                return

    watching = desk.begin(observe_tasks if isinstance(desk.locks, AsyncClient) else observe)
    wait_until(lambda: seen == [None], "nobody leads")
    time.sleep(0.2)
    requests = count_requests(monkeypatch)
    time.sleep(1.0)
    assert [request for request in requests if request != "Sync"] == []  # the heartbeat's proof apart
    monkeypatch.undo()
    with desk_for("blocking", group.url) as other:
        lease = other.locks.election("leader").lead().acquire(timeout=10)
        wait_until(lambda: len(seen) == 2, "somebody leads", 2 + SLACK)
        assert lease.release()
        watching.result(2 + SLACK)
    assert seen == [None, lease.owner, None]


def test_a_guarded_transaction_is_done_while_the_lease_is_held_and_not_after(desk: Desk, server: Any) -> None:
    lease = desk.acquire("job", ttl=20)
    with operator(server) as client:
        client.ensure_path("/stock")
        change = client.transaction()
        lease.guard(change)
        change.set_data("/stock", b"41")
        late = client.transaction()
        lease.guard(late)
        late.set_data("/stock", b"wrong")
        assert not [result for result in change.commit() if isinstance(result, Exception)]
        assert desk(lease.release)
        assert any(isinstance(result, NoNodeError) for result in late.commit())
        assert client.get("/stock")[0] == b"41"
        client.delete("/stock")


@pytest.fixture(scope="module")
def brief() -> Iterator[Any]:
    """A server on which a session that its client never heard of does not last."""
    with start("zookeeper", settings={"maxSessionTimeout": "8000"}) as group:
        yield group
        wait_until(lambda: not sessions(group.members[0]), "no session is left")


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("then", ["reset", "hang"])
def test_each_reply_is_lost_in_its_turn(brief: Any, flavour: str, then: Any) -> None:
    """The request has reached the server, its reply does not come: done or not, it is found out.

    Where the connection hangs it takes seconds: only one of them.
    """
    struck, server = [], brief.members[0]
    for number in range(1, 16) if then == "reset" else (8,):
        with proxied(brief.url) as (proxy, url), desk_for(flavour, url) as desk:
            fault = proxy.swallow(1, then=then, match=Nth(number))
            first = insist(desk, desk.locks.lock("job", ttl=4).acquire)
            wait = desk.waiting("job", ttl=4)
            wait_until(lambda d=desk: seen(d, "job", waiters=1), "one waits")
            assert insist(desk, first.release)
            second = wait.result(30)
            assert second.token > first.token
            assert insist(desk, second.verify)
            assert insist(desk, second.release)
            if fault.struck:
                struck.append(number)
            wait_until(lambda: znodes(server) == [], f"nothing is left after request {number}")
    assert len(struck) >= (1 if then == "hang" else 12), struck


def seen(desk: Desk, name: str, waiters: int) -> bool:
    try:
        return len(desk.inspect(name).waiters) == waiters
    except BackendUnavailable:
        return False


class Nth:
    """Matches one request: the one that is seen as the n-th."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.seen = 0

    def __call__(self, data: bytes) -> bool:
        self.seen += 1
        return self.seen == self.number


def insist(desk: Desk, function: Any) -> Any:
    """Call; if the backend does not answer, call again: an outage may show, but must leave no trace."""
    for _ in range(4):
        try:
            return desk(function)
        except BackendUnavailable:
            continue
    return desk(function)


def test_a_holder_whose_renewals_stop_loses_its_lease_and_others_get_it(group: Any, server: Any) -> None:
    """kazoo's thread goes on, but it does not keep alive what nobody renews."""
    with desk_for("blocking", group.url) as stuck, desk_for("blocking", group.url) as other:
        lease = stuck.acquire("job", ttl=2)
        stuck.locks._session.renewer.licence.clear()
        stuck.locks._session.timekeeper.licence.clear()
        began = time.monotonic()
        taken = other.acquire("job", ttl=2, timeout=20)
        waited = time.monotonic() - began
        assert not lease.is_held()
        assert taken.token > lease.token
        assert waited <= 2 + 2 + SLACK
        assert other(taken.release)


@pytest.mark.timing
def test_a_heartbeat_that_the_leader_may_not_know_of_does_not_count(group: Any, server: Any) -> None:
    """The member that answered it is cut off right after that: until when it is safe to hold is as before."""
    ttl, session = 6.0, 7.0
    with proxied(group.url) as (proxy, url), desk_for("blocking", url) as desk:
        began = time.monotonic()
        lease = desk.acquire("job", ttl=ttl)
        acquired = time.monotonic()
        first = lease.remaining()
        wait_until(lambda: lease.remaining() > first - 1.0 and time.monotonic() - acquired > 1.5, "renewed")
        proxy.blackhole()
        renewed = time.monotonic()
        wait_until(lambda: not lease.is_held(), "it lets go", session + SLACK)
        ended = time.monotonic()
        assert ended >= began + ttl
        assert session < renewed - acquired + ttl, "the renewal was too early to tell"
        took(0.0, ended - acquired, session + 1.0, "holding it")
        with pytest.raises(LeaseLost, match="run out"):
            lease.check()


def test_a_client_that_is_idle_keeps_its_session(group: Any, server: Any) -> None:
    """So that the next lock is one create, and not a connection as well."""
    with desk_for("blocking", group.url) as desk:
        assert desk(desk.acquire("job", ttl=1).release)
        before = sessions(server)
        time.sleep(3)
        assert sessions(server) == before


def test_a_server_that_is_restarted(group: Any, server: Any, desk: Desk) -> None:
    """Sessions and znodes are on disk: whoever held before holds still, and tokens rise."""
    lease = desk.acquire("job", ttl=20)
    wait = desk.waiting("job", ttl=20)
    wait_until(lambda: desk.inspect("job").waiters, "one waits")
    server.restart()
    wait_until(lambda: quietly(desk, lease), "it is held still")
    assert not wait.done()
    assert desk(lease.release)
    second = wait.result(30)
    assert second.token > lease.token
    assert desk(second.release)


def quietly(desk: Desk, lease: Any) -> bool:
    try:
        return bool(desk(lease.verify))
    except BackendUnavailable:
        return False
