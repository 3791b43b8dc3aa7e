"""Elections in both flavours: leading, losing, resigning, watching."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import AcquireTimeout, AsyncClient, Client, LeaseLost
from holdfast.backends.memory import MemoryBackend, Store
from unit.support import until, until_async
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
    assert until(lambda: client.inspect("boss").is_free, 3)


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
