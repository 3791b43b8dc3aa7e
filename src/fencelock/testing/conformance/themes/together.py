"""Several locks at once, and leader election."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fencelock.errors import AcquireTimeout, BackendUnavailable, LeaseLost
from fencelock.testing.conformance.actors import inside, io, nap
from fencelock.testing.conformance.expect import HANGING, fails, quick, same, soon, that, took
from fencelock.testing.conformance.registry import check
from fencelock.testing.conformance.world import World


@check("multi")
async def check_multi_takes_all(world: World) -> None:
    """A multi lock takes all of its locks, with a token for each by name, and gives all back."""
    names = [world.name() for _ in range(3)]

    async def work() -> None:
        async with inside(world.locks.multi(reversed(names))) as lease:
            same(sorted(lease.names), sorted(names), "names")
            same(set(lease.tokens), set(names), "the names of the tokens")
            that(all(isinstance(token, int) for token in lease.tokens.values()), "tokens are numbers")
            same(lease.is_held(), True, "is_held()")
            same(await io(lease.verify()), True, "verify()")
            lease.check()
            for name in names:
                same(lease[name].token, lease.tokens[name], "the token of one of them")
                same(await io(other.lock(name).try_acquire()), None, "somebody else's try")

    other = world.client()
    await world(work)
    for name in names:
        await world.free(name)


@check("multi")
async def check_multi_takes_all_or_none(world: World) -> None:
    """If one of the locks is not to be had, none is kept, and the error names it."""
    names = [world.name() for _ in range(3)]
    held = await world(world.client().lock(names[1]).acquire, timeout=5)
    error = await fails(AcquireTimeout, world(world.locks.multi(names).acquire, timeout=world.brief), "multi")
    same(error.name, names[1], "AcquireTimeout.name")
    same(await world(world.locks.multi(names).try_acquire), None, "try_acquire")
    for name in (names[0], names[2]):
        await world.free(name)
    await world(held.release)
    lease = await world(world.locks.multi(names).acquire, timeout=5)
    same(await world(lease.release), True, "release()")
    same(await world(lease.release), False, "a second release()")


@check("multi", timing=True)
async def check_multi_has_one_deadline(world: World) -> None:
    """One timeout covers all locks together; it does not begin anew with each."""
    names = [world.name() for _ in range(3)]
    other = world.client()
    holders = [await world(other.lock(name).acquire, timeout=5) for name in names]
    started = time.monotonic()
    call = world.actor().start(world.locks.multi(names).acquire, timeout=1.2)
    for lease in holders[:2]:
        await asyncio.sleep(0.4)
        await world(lease.release)
    error = await fails(AcquireTimeout, call, "multi")
    took(1.1, time.monotonic() - started, 1.2 + 2 * world.slack, "seconds until the timeout")
    took(1.1, error.waited, 1.2 + 2 * world.slack, "AcquireTimeout.waited")
    await world(holders[2].release)
    for name in names:
        await world.free(name)


@check("multi")
async def check_multi_does_not_deadlock(world: World) -> None:
    """Two that take the same locks in opposite orders never wait for each other for ever."""
    names = [world.name() for _ in range(3)]
    both = {"inside": 0, "most": 0}

    async def work(order: list[str]) -> int:
        done = 0
        for _ in range(20):
            async with inside(world.locks.multi(order, timeout=10)):
                both["inside"] += 1
                both["most"] = max(both["most"], both["inside"])
                await nap(0.001)
                both["inside"] -= 1
                done += 1
        return done

    calls = [world.actor().start(work, order) for order in (names, names[::-1])]
    same([await quick(call, 25.0, "twenty rounds") for call in calls], [20, 20], "rounds")
    same(both["most"], 1, "the largest number inside")


@check("multi")
async def check_multi_failing_half_way(world: World) -> None:
    """A multi lock whose backend fails half-way leaves nothing."""
    names = sorted(world.name() for _ in range(3))
    client, faults = world.faulty_client()
    blocker = await world(world.locks.lock(names[1]).acquire, timeout=5)
    call = world.actor().start(client.multi(names, ttl=world.ttl(30)).acquire, timeout=20)
    await world.queued(names[1], 1)
    faults.lose_requests("acquire", "wait")
    await fails(BackendUnavailable, quick(call, 12.0, "multi without a backend"), "multi")
    faults.heal()
    await world(blocker.release)
    for name in names:
        await world.free(name, within=4.0)


@check("multi")
async def check_multi_is_lost_with_one(world: World) -> None:
    """A multi lease is lost as soon as one of its leases is, and its block raises LeaseLost."""
    ttl = world.ttl(0.6)
    names = [world.name() for _ in range(2)]

    async def work() -> None:
        async with inside(world.locks.multi(names, ttl=ttl, renew=False)) as lease:
            if world.flavour == "asyncio":
                await asyncio.sleep(60)
            that(lease.lost.wait(ttl + 2 * world.slack), "lost was not set")
            same(lease.is_held(), False, "is_held()")
            lease.check()

    await fails(LeaseLost, quick(world(work), ttl + 3 * world.slack, "the block"), "the block")
    for name in names:
        await world.free(name, within=world.gone(ttl))


@check("multi")
async def check_multi_takes_duplicates_once(world: World) -> None:
    """A name that is given twice is taken once: nobody waits for himself."""
    one, two = world.name(), world.name()
    lease = await quick(world(world.locks.multi([two, one, two, one]).acquire), HANGING, "multi")
    same(sorted(lease.names), sorted([one, two]), "names")
    same(await world(lease.release), True, "release()")


# Election -------------------------------------------------------------------------------


@check("election", needs={"inspect"})
async def check_leader_is_the_holder(world: World) -> None:
    """leader() is nobody, then whoever leads, then nobody; a second candidate waits."""
    name = world.name()
    election, rival = world.locks.election(name), world.client().election(name)
    same(await world(election.leader), None, "leader() before")

    async def lead() -> None:
        async with inside(election.lead()) as lease:
            seen = await io(rival.leader())
            same(seen and seen.owner, lease.owner, "the owner of leader()")
            same(seen and seen.token, lease.token, "the token of leader()")
            same(await io(rival.lead().try_acquire()), None, "a second leader")

    await world(lead)
    same(await world(rival.leader), None, "leader() afterwards")


@check("election")
async def check_run_returns_the_value(world: World) -> None:
    """run(fn) calls fn with the lease while it leads, and returns what fn returns."""
    name = world.name()
    election = world.locks.election(name)

    def work(lease: Any) -> Any:
        that(lease.is_held(), "fn was called without leading")
        return done() if world.flavour == "asyncio" else 42

    async def done() -> int:
        return 42

    same(await quick(world(election.run, work), HANGING, "run"), 42, "what run returned")
    await world.free(name)


@check("election")
async def check_run_passes_errors_on(world: World) -> None:
    """What fn raises comes out of run, and the leadership is given up."""
    name = world.name()

    def work(lease: Any) -> Any:
        raise LookupError("from fn")

    await fails(LookupError, quick(world(world.locks.election(name).run, work), HANGING, "run"), "run")
    await world.free(name)


class Service:
    """A `fn` for `run`: notes each term, and works until it is told to stop or loses its lease."""

    def __init__(self, world: World) -> None:
        self.asyncio = world.flavour == "asyncio"
        self.leases: list[Any] = []
        self.stop = False

    def __call__(self, lease: Any) -> Any:
        """Lead."""
        self.leases.append(lease)
        return self.later(lease) if self.asyncio else self.now(lease)

    def now(self, lease: Any) -> int:
        """Work on a thread."""
        while not self.stop and lease.is_held():
            time.sleep(0.01)
        return len(self.leases)

    async def later(self, lease: Any) -> int:
        """Work in a task."""
        while not self.stop:
            await asyncio.sleep(0.01)
        return len(self.leases)


@check("election", needs={"inspect", "force_release"})
async def check_campaigns_again_after_a_loss(world: World) -> None:
    """When its leadership is broken, run campaigns again and leads with a larger token."""
    ttl = world.kept
    name = world.name()
    service = Service(world)
    call = world.actor().start(world.locks.election(name, ttl=ttl).run, service)
    await soon(lambda: service.leases, HANGING, "leadership")
    await world(world.client().force_release, name)
    await soon(lambda: len(service.leases) == 2, world.gone(ttl) + ttl, "leadership again")
    that(service.leases[1].token > service.leases[0].token, "the second term has no larger token")
    service.stop = True
    same(await quick(call, HANGING, "run"), 2, "the number of terms")


@check("election")
async def check_resign_hands_over(world: World) -> None:
    """resign() ends a leadership at once, and the next candidate leads, long before the ttl."""
    name = world.name()
    first, second = Service(world), Service(world)
    old, new = world.locks.election(name, ttl=world.ttl(30)), world.client().election(name, ttl=world.ttl(30))
    calls = [world.actor().start(old.run, first)]
    await soon(lambda: first.leases, HANGING, "the first leadership")
    calls.append(world.actor().start(new.run, second))
    await world.queued(name, 1)
    same(second.leases, [], "terms of the second while the first leads")
    await world(old.resign)
    await soon(lambda: second.leases, HANGING, "the second leadership")
    same(first.leases[0].is_held(), False, "is_held() after resign")
    that(second.leases[0].token > first.leases[0].token, "the successor has no larger token")
    first.stop = second.stop = True
    for call in calls:
        await quick(call, HANGING, "run")


@check("election", needs={"inspect"})
async def check_observe_yields_changes(world: World) -> None:
    """observe() yields the leader as it is, and again whenever it changes."""
    name = world.name()
    election = world.client().election(name)
    seen: list[Any] = []

    async def watch() -> None:
        changes = election.observe()
        if world.flavour == "asyncio":
            async for entry in changes:
                seen.append(entry and entry.owner)
                if len(seen) == 4:
                    break
            await changes.aclose()
        else:
            for entry in changes:
                seen.append(entry and entry.owner)
                if len(seen) == 4:
                    break

    call = world.actor().start(watch)
    await soon(lambda: len(seen) == 1, HANGING, "the first leader that is observed")
    lock = world.locks.election(name).lead()
    first = await world(lock.acquire, timeout=5)
    await soon(lambda: len(seen) == 2, HANGING, "the second")
    await world(first.release)
    await soon(lambda: len(seen) == 3, HANGING, "the third")
    second = await world(lock.acquire, timeout=5)
    await quick(call, HANGING, "the fourth")
    same(seen, [None, first.owner, None, second.owner], "what was observed")
    await world(second.release)
