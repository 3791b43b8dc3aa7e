"""How a loss reaches the work: the block, the code after it, and whoever waits for it."""

from __future__ import annotations

import asyncio
from typing import Any

from fencelock.errors import LeaseLost
from fencelock.testing.conformance.actors import inside, io, nap
from fencelock.testing.conformance.expect import HANGING, fails, quick, same, soon, that
from fencelock.testing.conformance.peers import Peer, PeerError
from fencelock.testing.conformance.registry import check
from fencelock.testing.conformance.world import World


async def _lose(world: World, body: Any) -> Any:
    """Run a block whose lease is lost while it is inside."""
    client, faults = world.faulty_client()
    lock = client.lock(world.name(), ttl=world.ttl(0.6))
    faults.lose_requests("renew")
    try:
        return await world(body, lock)
    finally:
        faults.heal()


@check("loss")
async def check_on_lost_may_be_a_coroutine_function(world: World) -> None:
    """Under asyncio `on_lost` may be a coroutine function; in blocking code any callable."""
    ttl = world.ttl(0.4)
    told: list[Any] = []

    async def note(lease: Any) -> None:
        await asyncio.sleep(0)
        told.append(lease)

    class Note:
        def __call__(self, lease: Any) -> None:
            told.append(lease)

    on_lost = note if world.flavour == "asyncio" else Note()
    lease = await world(world.locks.lock(world.name(), ttl=ttl, renew=False, on_lost=on_lost).acquire)
    await soon(lambda: told == [lease], ttl + 2 + world.slack, "on_lost is called with the lease")


@check("loss")
async def check_check_raises_in_between(world: World) -> None:
    """A body that calls `lease.check()` in its loop ends with `LeaseLost` soon after the loss."""

    async def body(lock: Any) -> None:
        async with inside(lock) as lease:
            for _ in range(1000):
                await nap(0.02)
                lease.check()

    error = await fails(LeaseLost, _lose(world, body), "the block")
    that(error.token > 0, "LeaseLost.token is missing")


@check("loss")
async def check_work_after_the_block_is_not_cancelled(world: World) -> None:
    """The cancellation that a loss causes ends with the block: what follows it runs undisturbed."""

    async def body(lock: Any) -> str:
        try:
            async with inside(lock) as lease:
                await io(lease.lost.wait(20))
                await nap(0.5)
        except LeaseLost:
            await nap(0.1)
            await nap(0.1)
            return "went on"
        return "no loss"

    same(await _lose(world, body), "went on", "what came after the block")


@check("loss")
async def check_many_may_wait_for_lost(world: World) -> None:
    """`lost.wait()` wakes everyone who waits for it, and those who come later at once."""
    ttl = world.ttl(0.6)
    lease = await world(world.locks.lock(world.name(), ttl=ttl, renew=False).acquire)
    waits = [world.actor().start(lease.lost.wait, ttl + 5) for _ in range(3)]
    same(await asyncio.gather(*waits), [True] * 3, "what lost.wait() returned")
    same(await quick(world(lease.lost.wait), world.slack, "a later lost.wait()"), True, "lost.wait()")


@check("validity", processes="one")
async def check_a_paused_holder_knows_when_it_wakes(world: World) -> None:
    """A process that was stopped past its ttl says `is_held() == False` before any I/O."""
    name = world.name()
    ttl = world.ttl(1.0)
    peer = world.peer()
    await peer("acquire", name=name, ttl=ttl)
    peer.pause()
    await asyncio.sleep(ttl + 0.5)
    peer.resume()
    seen = await peer("look", name=name)
    same((seen["held"], seen["remaining"], seen["check"]), (False, 0.0, "LeaseLost"), "what it says")
    same(await peer("release", name=name), False, "release() of what was lost")
    world.left = world.gone(ttl)


@check("loss", processes="one")
async def check_a_paused_block_raises(world: World) -> None:
    """A block that was stopped past its ttl ends with `LeaseLost`."""
    name = world.name()
    ttl = world.kept  # a busy machine must not lose it before it is stopped
    peer = world.peer()
    block = peer.start("block", name=name, ttl=ttl, seconds=ttl + 2)
    await soon(lambda: _is_inside(peer, name, block), HANGING, "the block is entered")
    peer.pause()
    await asyncio.sleep(ttl + 0.5)
    peer.resume()
    same(await quick(block, 10, "the end of the block"), "LeaseLost", "what the block raised")
    world.left = world.gone(ttl)


async def _is_inside(peer: Peer, name: str, block: asyncio.Future[Any]) -> bool:
    if block.done():
        raise AssertionError(f"the block ended before it was stopped: {block.result() or 'no error'}")
    try:
        return bool((await peer("look", name=name))["held"])
    except PeerError:
        return False  # there is no lease yet
