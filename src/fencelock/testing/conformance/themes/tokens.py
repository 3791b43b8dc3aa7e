"""Tokens: for one name, a later grant has the larger token, and no two grants share one."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from fencelock.testing.conformance.actors import io, nap
from fencelock.testing.conformance.expect import same, soon, that
from fencelock.testing.conformance.registry import check
from fencelock.testing.conformance.world import World


@dataclass(frozen=True)
class Granted:
    """One grant, as its caller saw it."""

    asked: float
    got: float
    token: int


def expect_order(grants: list[Granted]) -> None:
    """Fail if two grants share a token, or one that was complete before another began has the larger."""
    tokens = [grant.token for grant in grants]
    same(len(set(tokens)), len(tokens), "the number of distinct tokens")
    largest = 0
    complete = sorted(grants, key=lambda grant: grant.got)
    position = 0
    for grant in sorted(grants, key=lambda grant: grant.asked):
        while position < len(complete) and complete[position].got < grant.asked:
            largest = max(largest, complete[position].token)
            position += 1
        that(grant.token > largest, f"token {grant.token} was granted after {largest} was complete")


async def _take_turns(lock: Any, rounds: int) -> list[Granted]:
    grants = []
    for _ in range(rounds):
        asked = time.monotonic()
        lease = await io(lock.acquire())
        grants.append(Granted(asked, time.monotonic(), lease.token))
        await nap(0.001)
        await io(lease.release())
    return grants


async def _crowd(world: World, locks: list[Any], rounds: int) -> list[Granted]:
    calls = [world.actor().start(_take_turns, lock, rounds) for lock in locks]
    return [grant for grants in await asyncio.gather(*calls) for grant in grants]


@check("tokens")
async def check_tokens_rise_across_releases(world: World) -> None:
    """Each grant has a larger token than the one before, whichever client it goes to."""
    name = world.name()
    locks = [client.lock(name) for client in (world.locks, world.client(), world.client())]
    last = 0
    for turn in range(12):
        lease = await world(locks[turn % 3].acquire)
        that(lease.token > last, f"token {lease.token} follows {last}")
        last = lease.token
        await world(lease.release)


@check("tokens")
async def check_tokens_are_plain_integers(world: World) -> None:
    """A token is an `int` above zero that fits a signed 64-bit column."""
    lease = await world(world.locks.lock(world.name()).acquire)
    same(type(lease.token), int, "the type of a token")
    that(0 < lease.token < 2**63, f"token {lease.token} does not fit 63 bits")
    await world(lease.release)


@check("tokens")
async def check_tokens_rise_across_expiry(world: World) -> None:
    """The grant after a lease that expired has the larger token."""
    name = world.name()
    ttl = world.ttl(0.4)
    first = await world(world.locks.lock(name, ttl=ttl, renew=False).acquire)
    second = await world(world.client().lock(name).acquire, timeout=world.gone(ttl))
    that(not first.is_held(), "the first lease says it is held while another one is")
    that(second.token > first.token, f"token {second.token} follows {first.token}, which expired")
    await world(second.release)


@check("tokens", needs={"force_release"})
async def check_tokens_rise_across_forced_release(world: World) -> None:
    """The grant after a forced release has the larger token."""
    name = world.name()
    first = await world(world.locks.lock(name, ttl=world.ttl(1)).acquire)
    await world(world.client().force_release, name)
    second = await world(world.client().lock(name).acquire, timeout=5)
    that(second.token > first.token, f"token {second.token} follows {first.token}, which was broken")
    await world(second.release)


@check("tokens")
async def check_tokens_rise_across_clients_that_come_and_go(world: World) -> None:
    """A counter does not start again when the last client has gone."""
    name = world.name()
    last = 0
    for _ in range(5):
        client = world.client()
        lease = await world(client.lock(name).acquire)
        that(lease.token > last, f"token {lease.token} of a new client follows {last}")
        last = lease.token
        await world(client.close)


@check("tokens", bug="the counter is deleted with the lock, so tokens start again")
async def check_tokens_rise_though_the_name_was_forgotten(world: World) -> None:
    """Tokens of a name go on rising when nothing of it was stored for a while."""
    name = world.name()
    first = await world(world.locks.lock(name).acquire)
    await world(first.release)
    others = []
    for number in range(100):
        lease = await world(world.locks.lock(f"{name}/other/{number}").acquire)
        others.append(lease.token)
        await world(lease.release)
    await world.free(name)
    second = await world(world.locks.lock(name).acquire)
    that(second.token > first.token, f"token {second.token} follows {first.token} after the name was free")
    await world(second.release)


@check("tokens")
async def check_tokens_rise_across_failed_attempts(world: World) -> None:
    """Attempts that fail in between neither lower nor repeat a token."""
    name = world.name()
    first = await world(world.locks.lock(name).acquire)
    for _ in range(20):
        same(await world(world.client().lock(name).try_acquire), None, "try_acquire of a held lock")
    await world(first.release)
    second = await world(world.locks.lock(name).acquire)
    that(second.token > first.token, f"token {second.token} follows {first.token}")
    await world(second.release)


@check("tokens", bug="the token is drawn after the election, so a stale winner may draw the higher one")
async def check_tokens_are_unique_and_ordered_in_a_crowd(world: World) -> None:
    """Eight at once: all tokens differ, and follow the order of the grants."""
    name = world.name()
    clients = [world.locks, world.client()]
    locks = [clients[number % 2].lock(name) for number in range(8)]
    grants = await _crowd(world, locks, 6)
    same(len(grants), 48, "the number of grants")
    expect_order(grants)


@check("tokens", needs={"shared"})
async def check_tokens_of_readers_are_unique_and_ordered(world: World) -> None:
    """Readers that hold together have tokens of their own, and a writer's fits in between."""
    name = world.name()
    both = world.locks.rwlock(name)
    expect_order(await _crowd(world, [both.read()] * 4 + [both.write()] * 2, 6))


@check("tokens", needs={"permit"})
async def check_tokens_of_permits_are_unique_and_ordered(world: World) -> None:
    """Holders of a semaphore have tokens of their own."""
    expect_order(await _crowd(world, [world.locks.semaphore(world.name(), 3)] * 6, 6))


@check("tokens", bug="re-entry raises the token (Redisson)")
async def check_reentry_keeps_the_token(world: World) -> None:
    """Entering again gives the same token: what the resource has seen stays valid."""
    lock = world.locks.lock(world.name(), reentrant=True)
    outer = await world(lock.acquire)
    inner = await world(lock.acquire, timeout=2)
    same(inner.token, outer.token, "the token of the re-entry")
    await world(inner.release)
    await world(outer.release)
    later = await world(lock.acquire, timeout=2)
    that(later.token > outer.token, f"token {later.token} follows {outer.token}")
    await world(later.release)


@check("tokens")
async def check_a_lost_lease_keeps_its_old_token(world: World) -> None:
    """After a loss the token stays the smaller one: a resource can tell the two apart."""
    name = world.name()
    ttl = world.ttl(0.4)
    lost = await world(world.locks.lock(name, ttl=ttl, renew=False).acquire)
    stale = lost.token
    await soon(lambda: not lost.is_held(), world.gone(ttl), "the lease is over")
    successor = await world(world.client().lock(name).acquire, timeout=world.gone(ttl))
    same(lost.token, stale, "the token of the lost lease")
    that(stale < successor.token, f"the stale token {stale} is not below {successor.token}")
    await world(successor.release)
