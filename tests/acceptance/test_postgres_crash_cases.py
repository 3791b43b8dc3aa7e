"""Crashes at chosen moments: what may be lost then must harm nobody (see the head of `schema.sql`).

Handovers and places in the queue are written asynchronously. WAL is flushed by nobody but the steps
themselves here (`wal_writer_delay`), so everything that may be lost is lost. Counters are ahead of the
server's clock, as after it was set back: so a token whose draw was lost may be drawn again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from crew import wait_until
from postgres_desk import ask, desk_for, listeners, proxied, residue, session
from tools.servers import start

from fencelock.backends.postgres.records import Places
from fencelock.backends.postgres.schema import BUCKETS

LONG = 180.0
THEIRS = (61.0, 62.0, 63.0)
BLOCKED = "SELECT pid FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0"
COUNTER = "SELECT token FROM fencelock.buckets WHERE bucket = %s"
AHEAD = "UPDATE fencelock.buckets SET token = token + 1000000000000"
LAZY = {"wal_writer_delay": "10000", "wal_writer_flush_after": "1GB"}


@pytest.fixture
def group() -> Iterator[Any]:
    with start("postgres", settings=LAZY) as group:
        yield group


class Patience:
    """How long a waiter may be silent: the usual time, but while a server starts longer than that takes.

    The waiters that the crash is about are known by their ttl.
    """

    def __init__(self) -> None:
        self.is_up = False

    def __call__(self, ttl: float) -> float:
        return LONG if ttl in THEIRS and not self.is_up else 5.0


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> Patience:
    patience = Patience()
    monkeypatch.setattr("fencelock.core.acquire.patience", patience)
    monkeypatch.setattr("fencelock.core.acquire.STEP_LIMIT", LONG)
    monkeypatch.setattr("fencelock.core.acquire.RIDE_OUT", LONG)
    monkeypatch.setattr("fencelock.backends.postgres.patience", lambda ttl: LONG)
    return patience


@contextlib.contextmanager
def unsettled(proxy: Any, silent: str) -> Iterator[Callable[[], bool]]:
    """Keep a request for "job" from having its place put on disk; yield whether it has come so far.

    Either that very step does not come through, or the step before gets no reply, and cannot be repeated.
    """
    if silent == "settle":
        with proxy.hold("requests", match=lambda data: b"settle" in data) as hold:
            yield lambda: hold.struck
        return
    sent: list[bytes] = []

    def is_sent_again(data: bytes) -> bool:
        if is_acquire(data):
            sent.append(data)
        return len(sent) > 1 and is_acquire(data)

    with proxy.hold("requests", match=is_sent_again) as hold, proxy.swallow(1, match=is_acquire):
        yield lambda: hold.struck


def is_acquire(data: bytes) -> bool:
    return b"acquire" in data and b"job" in data


@pytest.mark.parametrize("silent", ["settle", "acquire"])
@pytest.mark.parametrize("passed", [False, True], ids=["first again", "another came first"])
def test_a_push_from_before_the_crash_is_not_believed(
    group: Any, flavour: str, passed: bool, silent: str, patience: Patience
) -> None:
    """Pushed, and crashed before its own place in the queue was on disk: after that it is nobody again.

    It asks once more when the server is back. Neither may it take the old push for an answer, though the
    counter has fallen back and it may draw the very same token again, nor pass one that came before it.
    Every round shows that; at least one must have lost something.
    """
    rounds = (a_push_before_a_crash(group, flavour, passed, silent, patience) for _ in range(8))
    assert any(rounds), "nothing was ever lost"


def a_push_before_a_crash(group: Any, flavour: str, passed: bool, silent: str, patience: Patience) -> bool:
    """Return whether the place in the queue was lost: anybody's commit may have taken it to the disk.

    The client notices nothing of the crash until the server is back: how long that takes is of no account.
    """
    server = group.members[0]
    patience.is_up = False
    with (
        desk_for("blocking", group.url) as holder,
        desk_for("blocking", group.url) as other,
        proxied(group.url) as (proxy, url),
        desk_for(flavour, url) as desk,
    ):
        busy = holder.acquire("busy", ttl=300)
        ask(server, AHEAD)
        helpers = [desk.waiting("busy", ttl=ttl) for ttl in THEIRS[1:]]  # so that its client listens
        wait_until(lambda: listeners(server), "it listens")
        time.sleep(0.1)
        held = holder.acquire("job", ttl=300, renew=False)
        with unsettled(proxy, silent) as is_there:
            for _ in range(10):  # each draws a token that nobody gets
                assert other(other.locks.lock("job").try_acquire) is None
            waits = desk.waiting("job", ttl=THEIRS[0])
            wait_until(lambda: other.inspect("job").waiters, "it waits")
            wait_until(is_there, "it is about to have its place put on disk")
            assert holder(held.release)
            wait_until(lambda: [e.token for e in other.inspect("job").holders] != [held.token], "handed over")
            time.sleep(0.1)  # the push is there
            (pushed,) = [entry.token for entry in other.inspect("job").holders]
            proxy.hold("replies")  # and with them the end of its connections
            server.kill()
            server.restart()
            was_lost = [row[1] for row in residue(server) if row[0] == b"\0job"] == [held.token]
            waiting = {waits: desk}
            if passed:
                waiting[other.waiting("job", ttl=60)] = other
                wait_until(lambda: other.inspect("job").waiters, "another waits")
            bucket = int(Places("", BUCKETS).find("job").bucket)
            while ask(server, COUNTER, bucket)[0][0] < pushed - 1:  # until the next would be the same again
                assert other(other.locks.lock("job").try_acquire) is None
            assert not waits.done()
            patience.is_up = True
            proxy.reset()
            proxy.let_go()
        if was_lost:
            wait_until(
                lambda: (
                    len(other.inspect("job").waiters) == len(waiting) or any(one.done() for one in waiting)
                ),
                "it waits again",
            )
            time.sleep(0.3)
            assert [one.result() for one in waiting if one.done()] == [], "two hold it"
            other(other.locks.force_release, "job")
        last = held.token
        while waiting:
            done = wait_until(lambda: [one for one in waiting if one.done()], "somebody has it")
            assert len(done) == 1
            lease, owner = done[0].result(), waiting.pop(done[0])
            time.sleep(1.0)  # whoever else believes that it has it says so by then
            assert not any(one.done() for one in waiting), "two hold it"
            assert lease.is_held()
            assert owner(lease.verify), "it holds, and the server knows nothing of it"
            assert lease.token > last
            last = lease.token
            assert owner(lease.release)
        holder(busy.release)
        while helpers:
            done = wait_until(lambda: [one for one in helpers if one.done()], "a helper has it")
            helpers.remove(done[0])
            desk(done[0].result().release)
    return was_lost


def test_a_row_that_is_swept_while_its_waiter_asks_is_no_grant(group: Any, flavour: str) -> None:
    """Rows that have expired are swept without the latch: one may go while its owner's step is under way."""
    server = group.members[0]
    with desk_for("blocking", group.url) as holder, desk_for(flavour, group.url) as desk:
        held = holder.acquire("job", ttl=60)
        waits = desk.waiting("job", ttl=60)
        wait_until(lambda: holder.inspect("job").waiters, "it waits")
        (token,) = [row[1] for row in residue(server) if not row[3]]
        with contextlib.closing(session(server)) as sweeper:
            sweeper.execute("BEGIN")
            sweeper.execute("SELECT 1 FROM fencelock.queue WHERE token = %s FOR UPDATE", [token])
            wait_until(lambda: ask(server, BLOCKED), "its next step has found the row, and waits for it")
            sweeper.execute("DELETE FROM fencelock.queue WHERE token IN (%s, %s)", [token, held.token])
            sweeper.execute("COMMIT")
        lease = waits.result(60)
        assert (lease.token, lease.owner) in [row[1:3] for row in residue(server)], "a grant of nothing"
        assert desk(lease.verify)
        assert desk(lease.release)
        assert not holder(held.release)


def test_a_lease_that_was_broken_does_not_come_back(group: Any, flavour: str) -> None:
    """Its holder need not have heard of it yet, and would renew it, while the next in line has the lock."""
    server = group.members[0]
    url = f"{group.url}?options=-c%20synchronous_commit%3Doff"
    with desk_for("blocking", url) as holder, desk_for(flavour, url) as desk:
        held = holder.acquire("job", ttl=LONG, renew=False)
        assert [row[1] for row in residue(server)] == [held.token]
        (broken,) = desk(desk.locks.force_release, "job")
        assert broken.token == held.token
        server.kill()
        server.restart()
        assert residue(server) == [], "its holder may renew it"
        assert not holder(held.verify)
