"""Elections in both flavours: leading, losing, resigning, watching."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fencelock import (
    AcquireTimeout,
    AsyncClient,
    BackendUnavailable,
    Client,
    ConfigurationError,
    LeaseLost,
)
from fencelock.backends.base import Request
from fencelock.backends.memory import MemoryBackend, Store
from fencelock.testing import History, check, view
from unit.support import cancelled_everywhere, until, until_async
from unit.test_lease import on_loop


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(MemoryBackend(Store())) as client:
        yield client


def test_to_lead_is_to_hold_the_lock(client: Client) -> None:
    election = client.election("boss", metadata={"zone": "a"})
    assert election.name == "boss"
    assert repr(election) == "<Election 'boss'>"
    assert election.leader() is None
    with election.lead() as lease:
        leader = election.leader()
        assert leader is not None
        assert (leader.owner, leader.token, leader.metadata) == (lease.owner, lease.token, {"zone": "a"})
    assert election.leader() is None


def test_run_returns_what_the_function_returns(client: Client) -> None:
    election = client.election("boss")
    assert election.run(lambda lease: lease.token) > 0
    assert client.inspect("boss").is_free


def test_run_campaigns_again_after_a_loss(client: Client) -> None:
    election = client.election("boss")
    tokens: list[int] = []

    def work(lease: Any) -> str:
        tokens.append(lease.token)
        if len(tokens) < 3:
            client.force_release("boss")
            assert lease.lost.wait(10)
            return "not while it led"
        return "done"

    assert election.run(work) == "done"
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 3


def test_run_raises_what_the_function_raises(client: Client) -> None:
    def work(lease: Any) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError):
        client.election("boss").run(work)
    assert client.inspect("boss").is_free


def test_run_does_not_take_the_loss_of_another_lease_for_its_own(client: Client) -> None:
    other = LeaseLost(name="other", token=-1, reason="test")

    def work(lease: Any) -> None:
        raise other

    with pytest.raises(LeaseLost) as caught:
        client.election("boss").run(work)
    assert caught.value is other


def test_run_that_does_not_come_to_lead_in_time(client: Client) -> None:
    with client.lock("boss"), pytest.raises(AcquireTimeout):
        client.election("boss", timeout=0.02).run(lambda lease: None)


def test_resigning_ends_the_work_and_hands_over(client: Client) -> None:
    first, second = client.election("boss"), client.election("boss")
    terms: list[str] = []

    def work(lease: Any) -> None:
        terms.append("first")
        if terms.count("first") == 1:
            assert lease.lost.wait(10)
            with pytest.raises(LeaseLost, match="resigned"):
                lease.check()

    thread = threading.Thread(target=lambda: first.run(work))
    thread.start()
    assert until(lambda: terms == ["first"])
    rival = threading.Thread(target=lambda: second.run(lambda lease: terms.append("second")))
    rival.start()
    assert until(lambda: len(client.inspect("boss").waiters) == 1)
    first.resign()
    rival.join(10)
    thread.join(10)
    assert terms == ["first", "second", "first"]


def test_work_that_fails_after_a_resignation_leaves_the_lock_free(client: Client) -> None:
    election = client.election("boss", ttl=60)

    def work(lease: Any) -> None:
        election.resign()
        raise KeyError("mine")

    with pytest.raises(KeyError):
        election.run(work)
    assert until(lambda: client.inspect("boss").is_free, 30)


def test_resigning_a_lead_releases_it(client: Client) -> None:
    election = client.election("boss")
    lease = election.lead().acquire()
    election.resign()
    assert not lease.is_held()
    assert client.inspect("boss").is_free
    election.resign()


def test_watching_yields_the_leader_now_and_at_each_change(client: Client) -> None:
    election = client.election("boss")
    seen = election.observe()
    assert next(seen) is None
    with election.lead() as first:
        leader = next(seen)
        assert leader is not None
        assert leader.token == first.token
    assert next(seen) is None


# asyncio ---------------------------------------------------------------------------------


def test_an_async_election_leads_and_returns() -> None:
    async def main(client: AsyncClient) -> None:
        election = client.election("boss")
        assert repr(election) == "<AsyncElection 'boss'>"
        assert await election.leader() is None
        async with election.lead() as lease:
            leader = await election.leader()
            assert leader is not None
            assert leader.owner == lease.owner

        async def work(lease: Any) -> int:
            return lease.token

        assert await election.run(work) > lease.token

    on_loop(main)


def test_async_work_is_cancelled_by_a_loss_and_runs_again() -> None:
    async def main(client: AsyncClient) -> None:
        terms: list[str] = []

        async def work(lease: Any) -> str:
            if terms:
                return "done"
            terms.append("begun")
            try:
                await client.force_release("boss")
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                terms.append("cancelled")
                raise
            return "never"

        assert await client.election("boss").run(work) == "done"
        assert terms == ["begun", "cancelled"]

    on_loop(main)


def test_async_resigning_cancels_the_work_and_hands_over_after_it_has_ended() -> None:
    async def main(client: AsyncClient) -> None:
        election, rival = client.election("boss"), client.election("boss")
        order: list[str] = []

        async def work(lease: Any) -> None:
            if "cleaned up" in order:
                return
            order.append("leads")
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.05)
                order.append("cleaned up")

        async def rival_work(lease: Any) -> None:
            order.append("rival")

        task = asyncio.create_task(election.run(work))
        assert await until_async(lambda: order == ["leads"])
        other = asyncio.create_task(rival.run(rival_work))
        await asyncio.sleep(0.02)
        await election.resign()
        await asyncio.wait_for(asyncio.gather(task, other), 20)
        assert order == ["leads", "cleaned up", "rival"]

    on_loop(main)


def test_async_work_that_fails_after_a_resignation_leaves_the_lock_free() -> None:
    async def main(client: AsyncClient) -> None:
        election = client.election("boss", ttl=60)

        async def work(lease: Any) -> None:
            await election.resign()
            try:
                await asyncio.sleep(60)
            finally:
                raise KeyError("mine")

        with pytest.raises(KeyError):
            await election.run(work)
        for _ in range(300):
            if (await client.inspect("boss")).is_free:
                break
            await asyncio.sleep(0.01)
        assert (await client.inspect("boss")).is_free

    on_loop(main)


def test_a_run_that_is_cancelled_while_it_resigns_leaves_the_lock_free() -> None:
    async def main(client: AsyncClient) -> None:
        election = client.election("boss", ttl=60)
        begun = asyncio.Event()

        async def work(lease: Any) -> None:
            begun.set()
            await asyncio.sleep(60)

        task = asyncio.create_task(election.run(work))
        await begun.wait()
        await election.resign()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(300):
            if (await client.inspect("boss")).is_free:
                break
            await asyncio.sleep(0.01)
        assert (await client.inspect("boss")).is_free

    on_loop(main)


def test_async_run_does_not_take_the_loss_of_another_lease_for_its_own() -> None:
    async def main(client: AsyncClient) -> None:
        async def work(lease: Any) -> None:
            raise LeaseLost(name="other", token=-1, reason="test")

        with pytest.raises(LeaseLost, match="other"):
            await client.election("boss").run(work)

    on_loop(main)


def test_async_resigning_a_lead_releases_it() -> None:
    async def main(client: AsyncClient) -> None:
        election = client.election("boss")
        lease = await election.lead().acquire()
        await election.resign()
        assert not lease.is_held()
        assert (await client.inspect("boss")).is_free

    on_loop(main)


def test_async_watching_yields_the_leader_now_and_at_each_change() -> None:
    async def main(client: AsyncClient) -> None:
        election = client.election("boss")
        seen = election.observe()
        assert await anext(seen) is None
        async with election.lead() as lease:
            leader = await anext(seen)
            assert leader is not None
            assert leader.token == lease.token
        assert await anext(seen) is None
        await seen.aclose()

    on_loop(main)


# What a service needs ---------------------------------------------------------------------


class Flaky(MemoryBackend):
    """A store that can be away."""

    away = False

    async def acquire(self, request: Request, *, wait: bool, deadline: float) -> Any:
        self._look()
        return await super().acquire(request, wait=wait, deadline=deadline)

    async def release(self, request: Request, token: int, *, deadline: float) -> bool:
        self._look()
        return await super().release(request, token, deadline=deadline)

    def _look(self) -> None:
        if self.away:
            raise BackendUnavailable(backend="memory", detail="away")


def test_what_leads_is_told_without_asking_anyone(client: Client) -> None:
    election, other = client.election("boss"), client.election("boss")
    assert not election.is_leader()
    with election.lead():
        assert election.is_leader()
        assert not other.is_leader()
    assert not election.is_leader()
    assert election.run(lambda lease: (election.is_leader(), other.is_leader())) == (True, False)
    assert not election.is_leader()


def test_the_work_is_told_a_margin_before_the_lease_runs_out(client: Client) -> None:
    assert 20 < client.election("boss", ttl=30).run(lambda lease: lease.remaining()) <= 27
    assert 5 < client.election("boss", ttl=30).run(lambda lease: lease.remaining(), margin=15) <= 15
    assert 10 < client.election("boss", ttl=30, max_hold=20).run(lambda lease: lease.remaining()) <= 18
    assert 29 < client.election("boss", ttl=60).run(lambda lease: lease.remaining(), margin=0) <= 60
    with client.election("boss", ttl=30).lead() as lease:
        assert lease.remaining() > 27


@pytest.mark.parametrize("margin", [-1, math.nan, math.inf, "2", 15.01, timedelta(minutes=1)])
def test_a_margin_that_makes_no_sense_is_refused(client: Client, margin: Any) -> None:
    with pytest.raises(ConfigurationError, match="margin"):
        client.election("boss", ttl=30).run(lambda lease: None, margin=margin)
    assert client.inspect("boss").is_free


def test_a_term_limit_hands_over_and_stands_again_at_the_end_of_the_queue(client: Client) -> None:
    first, second = client.election("boss", max_hold=1), client.election("boss")
    terms: list[str] = []
    queued: list[bool] = []

    def work(lease: Any) -> None:
        terms.append("first")
        if terms == ["first"]:
            rival.start()
            queued.append(until(lambda: client.inspect("boss").waiters or "second" in terms, 30))
            assert lease.lost.wait(30)

    rival = threading.Thread(target=lambda: second.run(lambda lease: terms.append("second")))
    first.run(work)
    rival.join(10)
    assert terms == ["first", "second", "first"]
    assert queued == [True]


def test_work_is_not_begun_with_a_lease_that_is_over(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    holds = client._session.holds
    add, lost = holds.add, []

    def lose_the_first(hold: Any) -> None:
        add(hold)
        if not lost:
            lost.append(hold.token)
            client.force_release("boss")
            holds.lose(hold, "test", gone=True)

    monkeypatch.setattr(holds, "add", lose_the_first)
    begun: list[int] = []
    client.election("boss").run(lambda lease: begun.append(lease.token))
    assert len(begun) == 1
    assert begun[0] > lost[0]


def test_what_the_work_returned_is_not_lost_when_the_store_goes_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    backend = Flaky(Store())
    with Client(backend) as client:

        def work(lease: Any) -> str:
            backend.away = True
            return "done"

        assert client.election("boss").run(work) == "done"
        assert "leadership of 'boss' ends after its ttl of 30s: memory: away" in caplog.messages
        backend.away = False


def test_a_campaign_outlives_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    backend = Flaky(Store())
    backend.away = True
    with Client(backend) as client:
        thread = threading.Thread(target=lambda: client.election("boss").run(lambda lease: None))
        thread.start()
        assert until(lambda: any("goes on" in message for message in caplog.messages), 30)
        backend.away = False
        thread.join(30)
        assert not thread.is_alive()
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]


def test_closing_the_client_ends_what_is_observed() -> None:
    client = Client(MemoryBackend(Store()))
    seen: list[Any] = []

    def observe() -> None:
        for entry in client.election("boss").observe():
            seen.append(entry)  # noqa: PERF402 - each as it comes
        seen.append("ended")

    thread = threading.Thread(target=observe)
    thread.start()
    assert until(lambda: seen)
    client.close()
    thread.join(30)
    assert seen == [None, "ended"]
    with pytest.raises(ConfigurationError, match="closed"):
        next(client.election("boss").observe())


def test_the_checker_finds_a_candidate_that_ignores_its_loss(client: Client) -> None:
    """What one of them says after its loss overlaps with the next one's leadership; honest ones do not."""
    for is_broken in (False, True):
        history = History()
        for name in ("first", "second"):
            attempt = history.acquire(name, "boss")
            lease = client.election("boss", ttl=1).lead().acquire()
            attempt.leased(lease)
            assert attempt.observe(lease)
            client.force_release("boss")
            assert until(lambda lease=lease: not lease.verify())  # type: ignore[misc]
            if name == "first" and is_broken:
                broken = attempt
            else:
                attempt.lost()
            if name == "second" and is_broken:
                at = history.clock()
                broken.held(at + 1, at=at)
        assert {violation.rule for violation in check(history).violations} == (
            {"exclusion"} if is_broken else set()
        )


def test_async_what_leads_is_told_and_the_margin_is_kept() -> None:
    async def main(client: AsyncClient) -> None:
        election = client.election("boss", ttl=30)

        async def work(lease: Any) -> tuple[bool, float]:
            return election.is_leader(), lease.remaining()

        assert not election.is_leader()
        leads, remaining = await election.run(work)
        assert leads
        assert 20 < remaining <= 27
        leads, remaining = await election.run(work, margin=timedelta(seconds=15))
        assert 5 < remaining <= 15
        with pytest.raises(ConfigurationError, match="margin"):
            await election.run(work, margin=16)
        assert not election.is_leader()

    on_loop(main)


def test_async_work_that_does_not_end_when_it_is_cancelled_is_waited_for() -> None:
    """The lease is lost anyway, and the next campaign begins when the work has ended: never two at once."""

    async def main(client: AsyncClient) -> None:
        at_work, most, turns = 0, 0, 0

        async def work(lease: Any) -> str:
            nonlocal at_work, most, turns
            at_work, turns = at_work + 1, turns + 1
            most = max(most, at_work)
            if turns == 1:
                await client.force_release("boss")
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    assert not lease.is_held()
                    await asyncio.sleep(0.3)  # stubborn
                    assert (await client.inspect("boss")).is_free
            at_work -= 1
            return f"turn {turns}"

        assert await client.election("boss", ttl=1).run(work) == "turn 2"
        assert most == 1

    on_loop(main)


def test_async_what_the_work_returned_is_not_lost_when_the_store_goes_away() -> None:
    backend = Flaky(Store())

    async def main(client: AsyncClient) -> None:
        async def work(lease: Any) -> str:
            backend.away = True
            return "done"

        assert await client.election("boss").run(work) == "done"
        backend.away = False

    on_loop(main, backend)


def test_a_run_that_is_cancelled_anywhere_leaves_nothing(tmp_path: Path) -> None:
    async def main(client: AsyncClient) -> None:
        async def work(lease: Any) -> None:
            await asyncio.sleep(0)

        async def check_free() -> None:
            for _ in range(300):
                if (await client.inspect("boss")).is_free:
                    return
                await asyncio.sleep(0.01)
            raise AssertionError("it is not free")

        election = client.election("boss")
        assert await cancelled_everywhere(lambda: election.run(work), check_free) > 4
        assert not election._offices

    on_loop(main, f"sqlite://{tmp_path}/locks.db")


def test_observing_can_be_cancelled_anywhere_and_ends_with_the_client(tmp_path: Path) -> None:
    async def main(client: AsyncClient) -> None:
        election = client.election("boss")

        async def look() -> None:
            changes = election.observe()
            try:
                assert await anext(changes) is None
                async with election.lead():
                    assert await anext(changes) is not None
            finally:
                await changes.aclose()

        async def nothing() -> None:
            assert not view.acquiring(client)

        assert await cancelled_everywhere(look, nothing) > 4
        seen = [entry async for entry in _closing(client)]
        assert seen == [None]

    on_loop(main, f"sqlite://{tmp_path}/locks.db")


async def _closing(client: AsyncClient) -> AsyncIterator[Any]:
    async for entry in client.election("other").observe():
        yield entry
        await client.close()
