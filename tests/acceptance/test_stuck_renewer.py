"""The renewer is stuck, and the loss is told all the same, at the lease's own deadline.

Another process keeps the lock file locked for longer than the ttl, so that no renewal comes
through. The lease is lost by the local clock, while the renewer still hangs: `lost` fires,
`on_lost` comes once, the block learns of it. When the file is free again, nothing revives the
lease, and nothing of it is left.

Worse than a locked file is a driver that does not come back at all, as on a dying disk: the call of
a renewal hangs, before the renewal is made or after it, so that its reply comes when all is over.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from crew import PATIENCE, Crew, Member, sqlite_url, wait_until

import fencelock
from fencelock.backends.base import Outcome, Renewal
from fencelock.backends.sqlite import SQLiteBackend
from fencelock.testing import boottime, view

TTL = 1.5


def lock_file(crew: Crew, folder: Path) -> Member:
    locker = crew.start("locker", folder / "locks.db")
    assert locker.hear() == {"locked": True}
    return locker


def let_go(locker: Member) -> None:
    locker.tell()
    assert locker.hear() == {"locked": False}


def test_blocking(tmp_path: Path) -> None:
    losses: list[tuple[int, float]] = []
    told = threading.Event()

    def on_lost(lease: fencelock.Lease) -> None:
        losses.append((lease.token, boottime()))
        told.set()

    with Crew() as crew, fencelock.Client(sqlite_url(tmp_path)) as locks:
        lock = locks.lock("job", ttl=TTL, on_lost=on_lost)
        with pytest.raises(fencelock.LeaseLost) as caught, lock as lease:
            locker = lock_file(crew, tmp_path)
            at = boottime()
            deadline = at + lease.remaining()  # not later than the true one, and nothing moves it now
            assert lease.lost.wait(PATIENCE)
            assert not lease.is_held()
            assert lease.remaining() == 0
            with pytest.raises(fencelock.LeaseLost, match="not renewed within its ttl"):
                lease.check()
            assert told.wait(PATIENCE)
            # The file is still locked: it was the clock that told, not the renewer.
            assert locker.process.poll() is None
        assert caught.value.token == lease.token

        let_go(locker)
        wait_until(lambda: locks.inspect("job").is_free, "nothing of the lost lease is left")
        time.sleep(TTL)
        assert not lease.is_held()
        assert not lease.verify()
        assert lease.lost.is_set()
        assert not lease.release()
        assert [token for token, _ in losses] == [lease.token], "on_lost is called exactly once"
        assert losses[0][1] >= deadline, "lost before its deadline"
        with lock as again:
            assert again.token > lease.token
        assert not view.pending_cleanups(locks)


def test_asyncio(tmp_path: Path) -> None:
    losses: list[int] = []

    async def on_lost(lease: fencelock.AsyncLease) -> None:
        losses.append(lease.token)

    async def story(crew: Crew) -> None:
        async with fencelock.AsyncClient(sqlite_url(tmp_path)) as locks:
            lock = locks.lock("job", ttl=TTL, on_lost=on_lost)
            cancelled = False
            with pytest.raises(fencelock.LeaseLost):
                async with lock as lease:
                    locker = await asyncio.to_thread(lock_file, crew, tmp_path)
                    try:
                        await asyncio.sleep(PATIENCE)
                    except asyncio.CancelledError:
                        cancelled = True
                        assert not lease.is_held()
                        assert lease.lost.is_set()
                        assert locker.process.poll() is None
                        raise
            assert cancelled, "the body ran on although the lease was lost"
            let_go(locker)
            await asyncio.sleep(TTL)
            assert not lease.is_held()
            assert not await lease.verify()
            assert losses == [lease.token]
            assert (await locks.inspect("job")).is_free
            async with lock as again:
                assert again.token > lease.token

    with Crew() as crew:
        asyncio.run(story(crew))


class Hanging(SQLiteBackend):
    """A lock file whose renewals hang, as long as the gate is shut."""

    def __init__(self, path: Path, moment: str) -> None:
        super().__init__(path)
        self.moment = moment
        self.gate = threading.Event()
        self.hangs = threading.Event()
        self.outcomes: list[Outcome] = []

    async def renew(self, renewals: Sequence[Renewal], *, deadline: float) -> Sequence[Outcome]:
        if self.moment == "before":
            await self.runtime.call(self.hang)
        outcomes = await super().renew(renewals, deadline=self.runtime.now() + 5)
        self.outcomes.extend(outcomes)
        if self.moment == "after":
            await self.runtime.call(self.hang)
        return outcomes

    def hang(self) -> None:
        self.hangs.set()
        assert self.gate.wait(PATIENCE)

    def go_on(self, others: fencelock.Client) -> None:
        """Open the gate. The renewal arrives far too late: either to be made or to be heard of."""
        if self.moment == "before":  # the lease ends in the file a little later than it does here
            wait_until(lambda: others.inspect("job").is_free, "the lease has run out")
        self.gate.set()
        wait_until(lambda: self.outcomes, "the renewal has come back")
        assert self.outcomes[0] is (Outcome.LOST if self.moment == "before" else Outcome.RENEWED)


HANGS = pytest.mark.parametrize("moment", ["before", "after"])


@HANGS
def test_a_driver_that_hangs_blocking(tmp_path: Path, moment: str) -> None:
    losses: list[int] = []
    backend = Hanging(tmp_path / "locks.db", moment)
    with fencelock.Client(backend) as locks, fencelock.Client(sqlite_url(tmp_path)) as others:
        lock = locks.lock("job", ttl=TTL, on_lost=lambda it: losses.append(it.token))
        with pytest.raises(fencelock.LeaseLost), lock as lease:
            assert backend.hangs.wait(PATIENCE)
            assert lease.lost.wait(PATIENCE), "nobody told, since the renewer hangs"
            assert not lease.is_held()
            assert not backend.gate.is_set()
            wait_until(lambda: losses, "on_lost")
        backend.go_on(others)
        wait_until(lambda: others.inspect("job").is_free, "nothing is left")
        time.sleep(TTL)
        assert not lease.is_held()
        assert not lease.verify()
        assert losses == [lease.token]
        with others.lock("job", timeout=5) as next_lease:
            assert next_lease.token > lease.token


@HANGS
def test_a_driver_that_hangs_asyncio(tmp_path: Path, moment: str) -> None:
    losses: list[int] = []
    backend = Hanging(tmp_path / "locks.db", moment)

    async def story() -> None:
        async with fencelock.AsyncClient(backend) as locks:
            with pytest.raises(fencelock.LeaseLost):
                async with locks.lock("job", ttl=TTL, on_lost=lambda it: losses.append(it.token)) as lease:
                    await asyncio.sleep(PATIENCE)
                    raise AssertionError("the body ran on although the lease was lost")
            assert backend.hangs.is_set()
            assert not lease.is_held()
            assert lease.lost.is_set()
            await asyncio.to_thread(backend.go_on, others)
            await asyncio.sleep(TTL)
            assert not lease.is_held()
            assert not await lease.verify()
            assert losses == [lease.token]
            assert (await locks.inspect("job")).is_free

    with fencelock.Client(sqlite_url(tmp_path)) as others:
        asyncio.run(story())


def test_a_short_stall_is_ridden_out(tmp_path: Path) -> None:
    """The control: locked for less than the ttl, the lease is renewed as soon as it can be."""
    with Crew() as crew, fencelock.Client(sqlite_url(tmp_path)) as locks:
        lease = locks.lock("job", ttl=20).acquire()
        lease.extend(20)
        locker = lock_file(crew, tmp_path)
        wait_until(lambda: lease.remaining() < 12, "a renewal is overdue")
        let_go(locker)
        wait_until(lambda: lease.remaining() > 18, "it was renewed after the stall")
        assert not lease.lost.is_set()
        assert lease.release()
