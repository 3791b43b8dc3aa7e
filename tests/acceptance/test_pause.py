"""SIGSTOP for longer than the ttl: a holder that slept knows on waking that it holds nothing.

A process is stopped inside its section; the lock runs out and the test takes it, with a higher
token. When the sleeper wakes, `is_held()` is false at once, before any I/O; `check()` raises;
`on_lost` comes once; nothing revives the lease. Its late write is refused by the resource that
knows tokens. The resource that knows none takes it and loses an update: the fault was real.

A process that is stopped while it waits loses its place, and nothing else: the others are held
up for a few seconds at most, and when it wakes it queues again.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from crew import Crew, sqlite_url, stop_between_steps, wait_until
from workers.resources import Guarded, Plain

import fencelock
from fencelock.backends.base import patience
from fencelock.testing import History, HistoryFile, boottime, check, lost_updates, resume

TTL = 1.0
SLACK = 10.0
"""For a machine that runs other tests at the same time."""

FLAVOURS = pytest.mark.parametrize("flavour", ["blocking", "asyncio"])


@FLAVOURS
def test_stopped_while_it_holds(tmp_path: Path, flavour: str) -> None:
    plain, guarded = Plain(tmp_path / "plain"), Guarded(tmp_path / "list.db")
    history = HistoryFile(tmp_path / "history")
    with Crew() as crew, fencelock.Client(sqlite_url(tmp_path)) as locks:
        sleeper = crew.start("sleeper", tmp_path, flavour, TTL)
        first = sleeper.hear()["token"]
        history.paused("sleeper")
        stop_between_steps(sleeper.pid, tmp_path / "locks.db")
        stopped = boottime()

        attempt = history.acquire("test", "list")
        lease = locks.lock("list", ttl=20).acquire(timeout=30)
        attempt.leased(lease)
        assert lease.token > first
        words = plain.read()
        plain.write([*words, "test"])
        history.plain("test", "plain", base=len(words))
        base, words = guarded.read(lease.token)
        seq = guarded.write(lease.token, [*words, "test"])
        history.write("test", "list", token=lease.token, base=base, seq=seq)

        resume(sleeper.pid)
        history.resumed("sleeper")
        found = sleeper.hear()
        assert sleeper.end() == 0, sleeper.errors
        assert lease.is_held()
        assert lease.verify(), "the sleeper has done something to a lease that is not its own"
        attempt.release()
        assert lease.release()
        attempt.released()
        assert locks.list() == []

    assert found["last_yes"] < stopped, "it believed in its lease after it woke"
    assert found["held"] is False
    assert found["remaining"] == 0
    assert found["lost"] is True
    assert found["check"], "check() did not raise"
    assert found["raised"] == first, "the block ended without LeaseLost"
    assert found["verified"] is False
    assert found["losses"] == [first], "on_lost is called exactly once"
    assert found["still_held"] is False
    assert found["released"] is False

    assert found["stale"] == first
    assert found["newest"] > first
    assert guarded.look() == ["test"]
    guarded.close()
    history.close()

    told = History.load(tmp_path / "history")
    report = check(told, loss_within=SLACK)
    assert report.ok, str(report)
    assert (report.writes, report.rejected, report.losses) == (1, 1, 1)
    assert lost_updates(told, "plain") == 1, "no teeth: the unguarded resource lost nothing"
    assert plain.read() == ["sleeper"]


@FLAVOURS
def test_stopped_while_it_waits(tmp_path: Path, flavour: str) -> None:
    with Crew() as crew, fencelock.Client(sqlite_url(tmp_path)) as locks:
        lock = locks.lock("list", ttl=TTL)
        first = lock.acquire()
        waiter = crew.start("waiter", tmp_path, flavour, TTL)
        wait_until(lambda: locks.inspect("list").waiters, "it waits")
        stop_between_steps(waiter.pid, tmp_path / "locks.db")
        released = boottime()
        assert first.release()

        # It is the head of the queue, and dead to the world: that costs a few seconds, once.
        second = lock.acquire(timeout=60)
        assert boottime() - released <= patience(TTL) + SLACK
        resume(waiter.pid)
        queued = wait_until(lambda: locks.inspect("list").waiters, "it has come back to the queue")
        assert queued[0].pid == waiter.pid
        assert second.verify(), "the waiter that woke has taken a lock that is held"
        assert second.release()

        granted = waiter.hear()
        assert granted["held"]
        assert granted["verified"]
        assert granted["token"] > second.token > first.token
        waiter.tell()
        assert waiter.end() == 0, waiter.errors
        assert locks.list() == []


@FLAVOURS
def test_stopped_while_it_waits_and_its_turn_has_come_and_gone(tmp_path: Path, flavour: str) -> None:
    """It was admitted in its sleep and lost that again: it must not wake up as a holder."""
    with Crew() as crew, fencelock.Client(sqlite_url(tmp_path)) as locks:
        lock = locks.lock("list", ttl=TTL)
        first = lock.acquire()
        waiter = crew.start("waiter", tmp_path, flavour, TTL)
        wait_until(lambda: locks.inspect("list").waiters, "it waits")
        stop_between_steps(waiter.pid, tmp_path / "locks.db")
        assert first.release()
        (admitted,) = locks.inspect("list").holders
        assert admitted.pid == waiter.pid
        wait_until(lambda: locks.inspect("list").is_free, "its turn is over")
        resume(waiter.pid)
        granted = waiter.hear()
        assert granted["held"]
        assert granted["verified"]
        assert granted["token"] > admitted.token
        waiter.tell()
        assert waiter.end() == 0, waiter.errors
