"""First come, first served, among those who are alive."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fencelock.errors import AcquireTimeout
from fencelock.testing.conformance.actors import inside, io
from fencelock.testing.conformance.expect import HANGING, fails, quick, same, took
from fencelock.testing.conformance.registry import check
from fencelock.testing.conformance.world import World

FEW_SECONDS = 5.0
"""What a dead waiter may cost those behind it, whatever the ttl."""


class Line:
    """Waiters that stand in line in a known order and note when they are served."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.served: list[Any] = []
        self.calls: list[asyncio.Future[Any]] = []

    async def join(self, lock: Any, mark: Any, waiters: int) -> None:
        """Let somebody stand in line; return when there are `waiters` of them."""
        self.calls.append(self.world.actor().start(self._once, lock, mark))
        await self.world.queued(self.name, waiters)

    async def _once(self, lock: Any, mark: Any) -> None:
        async with inside(lock):
            self.served.append(mark)

    async def ended(self) -> list[Any]:
        """Wait until all were served and return the order."""
        await asyncio.gather(*self.calls)
        return self.served


@check("fifo", needs={"fifo", "inspect"})
async def check_waiters_of_one_client_are_served_in_order(world: World) -> None:
    """Eight waiters of one client are served first come, first served."""
    name = world.name()
    lock = world.locks.lock(name)
    holder = await world(lock.acquire)
    line = Line(world, name)
    for number in range(8):
        await line.join(lock, number, number + 1)
    await world(holder.release)
    same(await line.ended(), list(range(8)), "the order of service")


@check("fifo", needs={"fifo", "inspect"})
async def check_waiters_of_many_clients_are_served_in_order(world: World) -> None:
    """Six waiters, each with a client of its own, are served first come, first served."""
    name = world.name()
    holder = await world(world.locks.lock(name).acquire)
    line = Line(world, name)
    for number in range(6):
        await line.join(world.client().lock(name), number, number + 1)
    await world(holder.release)
    same(await line.ended(), list(range(6)), "the order of service")


@check("fifo", needs={"fifo", "inspect"})
async def check_nobody_overtakes_the_line(world: World) -> None:
    """Who tries at the moment of the release does not get past somebody who waits."""
    name = world.name()
    lock = world.locks.lock(name)
    holder = await world(lock.acquire)
    waiting = world.actor().start(world.client().lock(name).acquire)
    await world.queued(name, 1)

    async def release_and_try() -> Any:
        await io(holder.release())
        return await io(lock.try_acquire())

    same(await world(release_and_try), None, "try_acquire with a waiter in line")
    lease = await quick(waiting, HANGING, "the waiter's turn")
    await world(lease.release)


@check(
    "fifo", needs={"fifo", "inspect"}, bug="live waiters are evicted from the fair queue and hang (Redisson)"
)
async def check_live_waiters_keep_their_place(world: World) -> None:
    """Waiters that wait for longer than their ttl, and than a silent one may, keep their places."""
    name = world.name()
    ttl = world.ttl(0.5)
    holder = await world(world.client().lock(name, ttl=world.ttl(60)).acquire)
    line = Line(world, name)
    for number in range(3):
        await line.join(world.locks.lock(name, ttl=ttl), number, number + 1)
    before = [(entry.owner, entry.token) for entry in (await world.state(name)).waiters]
    await asyncio.sleep(max(4.5, 2 * ttl))
    after = [(entry.owner, entry.token) for entry in (await world.state(name)).waiters]
    same(after, before, "the waiters in order")
    await world(holder.release)
    same(await quick(line.ended(), 10, "the service of all"), [0, 1, 2], "the order of service")


@check("fifo", timing=True, needs={"fifo", "inspect"})
async def check_a_waiter_that_gives_up_leaves_the_line(world: World) -> None:
    """When one in the middle gives up, the others are served in order, without delay."""
    name = world.name()
    lock = world.locks.lock(name)
    holder = await world(lock.acquire)
    line = Line(world, name)
    await line.join(lock, "first", 1)
    quitter = world.actor().start(lock.acquire, timeout=0.6)
    await world.queued(name, 2)
    await line.join(lock, "third", 3)
    await fails(AcquireTimeout, quitter, "the waiter that gives up")
    await quick(world.queued(name, 2), world.slack, "its way out of the line")
    released = time.monotonic()
    await world(holder.release)
    same(await line.ended(), ["first", "third"], "the order of service")
    took(0, time.monotonic() - released, 1 + world.slack, "the time that service took")


@check("fifo", timing=True, bug="dead waiters block everyone (Redisson)")
async def check_a_dead_waiter_delays_by_a_few_seconds(world: World) -> None:
    """With a ttl of a minute, a waiter that was killed costs the next one a few seconds at most."""
    name = world.name()
    holder = await world(world.locks.lock(name, ttl=world.ttl(60)).acquire)
    mortal = world.mortal()
    mortal.start(name, ttl=world.ttl(60))
    await world.queued(name, 1)
    waiting = world.actor().start(world.client().lock(name, ttl=world.ttl(60)).acquire)
    await world.queued(name, 2)
    mortal.die()
    await world(holder.release)
    lease = await quick(waiting, FEW_SECONDS + world.slack, "the turn of the one behind a dead waiter")
    await world(lease.release)


@check("fifo", timing=True)
async def check_many_dead_waiters_delay_by_a_few_seconds(world: World) -> None:
    """Three dead waiters in a row cost no more than one."""
    name = world.name()
    holder = await world(world.locks.lock(name, ttl=world.ttl(60)).acquire)
    dead = [world.mortal() for _ in range(3)]
    for number, mortal in enumerate(dead):
        mortal.start(name, ttl=world.ttl(60))
        await world.queued(name, number + 1)
    waiting = world.actor().start(world.client().lock(name, ttl=world.ttl(60)).acquire)
    await world.queued(name, 4)
    for mortal in dead:
        mortal.die()
    await world(holder.release)
    lease = await quick(waiting, FEW_SECONDS + world.slack, "the turn of the one behind three dead waiters")
    await world(lease.release)
