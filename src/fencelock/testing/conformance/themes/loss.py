"""Validity, renewal and loss: a lease is certain for as long as it says, and tells when it ends."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fencelock.errors import BackendUnavailable, FencelockError, LeaseLost, NotHeld
from fencelock.testing.conformance.actors import inside, io, nap
from fencelock.testing.conformance.expect import between, fails, quick, refused, same, soon, that, took
from fencelock.testing.conformance.registry import check
from fencelock.testing.conformance.world import World


async def expect_lost(lease: Any, within: float) -> None:
    """Fail unless the lease is lost soon, and says so in every way that needs no I/O."""
    await soon(lease.lost.is_set, within, "lease.lost is set")
    same(lease.is_held(), False, "is_held() of a lost lease")
    same(lease.remaining(), 0.0, "remaining() of a lost lease")
    error = refused(LeaseLost, lease.check)
    same(error.name, lease.name, "LeaseLost.name")
    same(error.token, lease.token, "LeaseLost.token")
    that(error.reason, "LeaseLost has no reason")


# Renewal --------------------------------------------------------------------------------


@check("renewal")
async def check_renewed_past_its_ttl(world: World) -> None:
    """A lease is renewed for as long as it is held, several ttls long."""
    ttl = world.kept
    name = world.name()
    lease = await world(world.locks.lock(name, ttl=ttl).acquire, timeout=5)
    end = time.monotonic() + 3.5 * ttl
    while time.monotonic() < end:
        await asyncio.sleep(ttl / 4)
        that(lease.is_held(), "a renewed lease was lost")
        between(0.0, lease.remaining(), ttl, "remaining()")
    same(await world(lease.verify), True, "verify() after several ttls")
    await world.taken(name)
    same(await world(lease.release), True, "release()")
    await world.free(name)


@check("renewal")
async def check_renewals_that_fail_are_retried(world: World) -> None:
    """Renewals that fail are tried again, and the lease survives an outage shorter than its ttl."""
    ttl = world.ttl(2.0)
    client, faults = world.faulty_client()
    lease = await world(client.lock(world.name(), ttl=ttl).acquire, timeout=5)
    faults.lose_requests("renew")
    await soon(lambda: faults.counts["renew"] >= 2, ttl, "a failed renewal is tried again")
    faults.heal()
    await asyncio.sleep(1.5 * ttl)
    that(lease.is_held(), "the lease did not survive a short outage")
    same(await world(lease.verify), True, "verify() after the outage")
    same(await world(lease.release), True, "release()")


@check("renewal", bug="python-redis-lock: one failed renewal kills the renewal thread in silence")
async def check_one_failed_renewal_does_not_end_renewing(world: World) -> None:
    """One failed renewal in each ttl does no harm, time and again."""
    ttl = world.kept
    client, faults = world.faulty_client()
    lease = await world(client.lock(world.name(), ttl=ttl).acquire, timeout=5)
    for _ in range(3):
        faults.lose_requests("renew", calls=1)
        await asyncio.sleep(ttl)
        that(lease.is_held(), "one failed renewal cost the lease")
    same(await world(lease.release), True, "release()")


@check("renewal")
async def check_renewal_whose_reply_is_lost(world: World) -> None:
    """A renewal that was done and not heard of is done again, and the lease goes on."""
    ttl = world.kept
    client, faults = world.faulty_client()
    lease = await world(client.lock(world.name(), ttl=ttl).acquire, timeout=5)
    faults.lose_replies("renew", calls=2)
    await asyncio.sleep(2 * ttl)
    that(lease.is_held(), "lost replies cost the lease")
    same(await world(lease.verify), True, "verify()")
    same(await world(lease.release), True, "release()")


@check("renewal", bug="aioredlock: extending a lock that has expired brings it back to life")
async def check_renewal_never_revives(world: World) -> None:
    """A renewal whose reply comes after the deadline revives nothing, and leaves nothing."""
    ttl = world.ttl(0.8)
    name = world.name()
    client, faults = world.faulty_client()
    lease = await world(client.lock(name, ttl=ttl).acquire, timeout=5)
    faults.delay_replies("renew", seconds=2 * ttl)
    await expect_lost(lease, ttl + world.slack)
    for _ in range(10):
        await asyncio.sleep(ttl / 5)
        that(not lease.is_held(), "a late renewal revived a lost lease")
    faults.heal()
    await world.free(name, within=world.gone(ttl) + 2 * ttl)
    that(not lease.is_held(), "a late renewal revived a lost lease")


@check("renewal")
async def check_expired_lease_cannot_be_renewed(world: World) -> None:
    """A holder that was cut off until its lease expired does not get it back from its successor."""
    ttl = world.ttl(0.8)
    name = world.name()
    client, faults = world.faulty_client()
    old = await world(client.lock(name, ttl=ttl).acquire, timeout=5)
    faults.cut()
    new = await world(world.locks.lock(name, ttl=world.ttl(30)).acquire, timeout=world.gone(ttl))
    same(old.is_held(), False, "is_held() of a lease whose successor was granted")
    faults.heal()
    same(await world(old.verify), False, "verify() of a lease that has a successor")
    await fails(LeaseLost, world(old.extend, world.ttl(30)), "extend() of a lease that has a successor")
    same(await world(new.verify), True, "verify() of the successor")
    that(new.token > old.token, f"token {new.token} after {old.token}")
    same(await world(new.release), True, "release() of the successor")


# Validity -------------------------------------------------------------------------------


@check("validity", timing=True)
async def check_unrenewed_lease_ends(world: World) -> None:
    """With renew=False a lease ends at its ttl, and says so before and after."""
    ttl = world.ttl(1.0)
    name = world.name()
    started = time.monotonic()
    lease = await world(world.locks.lock(name, ttl=ttl, renew=False).acquire, timeout=5)
    same(lease.is_held(), True, "is_held() at once")
    between(0.0, lease.remaining(), ttl, "remaining() at once")
    lease.check()
    same(await world(lease.verify), True, "verify() at once")
    same(lease.lost.is_set(), False, "lost at once")
    await expect_lost(lease, ttl + world.slack)
    took(0.9 * ttl, time.monotonic() - started, ttl + 2 * world.slack, "seconds until the loss")
    same(await world(lease.verify), False, "verify() after the end")
    await world.free(name, within=world.gone(ttl))


@check("validity", alone=True)
async def check_never_held_longer_than_the_ttl(world: World) -> None:
    """No lease says that it is held once its ttl is over, counted from before acquire."""
    ttl = world.ttl(0.5)
    for _ in range(3):
        started = time.monotonic()
        lease = await world(world.locks.lock(world.name(), ttl=ttl, renew=False).acquire, timeout=5)
        spent = time.monotonic() - started
        that(lease.remaining() <= ttl, f"remaining() is {lease.remaining()} of a ttl of {ttl}")
        asked = held = time.monotonic()
        while lease.is_held():
            held = asked
            await asyncio.sleep(0.002)
            asked = time.monotonic()
        # Not a long time after acquire returned: from the request on.
        between(0.0, held - started, ttl + spent, "seconds for which it was held")


@check("validity", bug="DistributedLock: validity counted from the reply instead of the request")
async def check_validity_counts_from_the_request(world: World) -> None:
    """What the reply took is not part of what remains."""
    ttl, late = world.ttl(3.0), 1.0
    client, faults = world.faulty_client()
    faults.delay_replies("acquire", seconds=late, calls=1)
    lease = await world(client.lock(world.name(), ttl=ttl, renew=False).acquire, timeout=10)
    between(0.0, lease.remaining(), ttl - late, "remaining() after a reply that came late")
    await world(lease.release)


@check("validity")
async def check_grant_that_comes_too_late(world: World) -> None:
    """A grant that is over when its reply arrives is not given out as if it were valid."""
    ttl = world.ttl(0.5)
    name = world.name()
    client, faults = world.faulty_client()
    faults.delay_replies("acquire", seconds=ttl + 0.3, calls=1)
    lease = None
    try:
        lease = await world(client.lock(name, ttl=ttl).acquire, timeout=4 * ttl + 5)
    except FencelockError as error:
        that(isinstance(error, BackendUnavailable), f"it raised {error!r}")
    if lease is not None:
        that(lease.is_held() and lease.remaining() > 0, "acquire gave a lease that was over")
        same(await world(lease.verify), True, "verify() of a lease that was just given")
        await world(lease.release)
    await world.free(name, within=world.gone(ttl))


@check("validity")
async def check_every_grant_comes_too_late(world: World) -> None:
    """A backend that always answers after the ttl gives an error, and no lease."""
    ttl = world.ttl(0.4)
    name = world.name()
    client, faults = world.faulty_client()
    faults.delay_replies("acquire", seconds=ttl + 0.2)
    await fails(BackendUnavailable, world(client.lock(name, ttl=ttl).acquire, timeout=20), "acquire")
    faults.heal()
    await world.free(name, within=world.gone(ttl))


@check("validity", timing=True, bug="kazoo: is_acquired stays true after the session was lost")
async def check_deadline_fires_while_renewals_hang(world: World) -> None:
    """While renewals hang, `lost` fires at the local deadline and no later."""
    ttl = world.ttl(1.0)
    client, faults = world.faulty_client()
    started = time.monotonic()
    lease = await world(client.lock(world.name(), ttl=ttl).acquire, timeout=5)
    faults.hang("renew")
    try:
        await expect_lost(lease, 1.4 * ttl + world.slack)
        took(0.9 * ttl, time.monotonic() - started, 1.5 * ttl + 2 * world.slack, "seconds until the loss")
    finally:
        faults.heal()
    world.left = world.gone(ttl)


@check("validity", timing=True)
async def check_max_hold(world: World) -> None:
    """max_hold ends a lease that is renewed, and others get the lock."""
    ttl, longest = world.kept, world.kept * 2.5
    name = world.name()
    started = time.monotonic()
    lease = await world(world.locks.lock(name, ttl=ttl, max_hold=longest).acquire, timeout=5)
    await asyncio.sleep(1.5 * ttl)
    same(lease.is_held(), True, "is_held() past the ttl and before max_hold")
    await expect_lost(lease, longest + world.slack)
    took(0.9 * longest, time.monotonic() - started, longest + 2 * world.slack, "seconds until the loss")
    that("max_hold" in refused(LeaseLost, lease.check).reason, "the reason does not name max_hold")
    await world.free(name, within=world.gone(ttl))


# Loss -----------------------------------------------------------------------------------


@check("loss")
async def check_on_lost_is_called_once(world: World) -> None:
    """on_lost is called exactly once, with the lease, however often the loss is looked at."""
    ttl = world.ttl(0.5)
    calls: list[Any] = []
    lock = world.locks.lock(world.name(), ttl=ttl, renew=False, on_lost=calls.append)
    lease = await world(lock.acquire, timeout=5)
    await soon(lambda: calls, ttl + 2 * world.slack, "on_lost is called")
    for _ in range(3):
        refused(LeaseLost, lease.check)
        await world(lease.verify)
        await world(lease.release)
        await asyncio.sleep(ttl / 3)
    same(calls, [lease], "what on_lost was called with")


@check("loss")
async def check_on_lost_is_not_called_for_a_release(world: World) -> None:
    """A lease that is released is not lost: neither the event nor on_lost says so."""
    ttl = world.kept
    calls: list[Any] = []
    lease = await world(world.locks.lock(world.name(), ttl=ttl, on_lost=calls.append).acquire, timeout=5)
    event = lease.lost
    same(await world(lease.release), True, "release()")
    await asyncio.sleep(1.5 * ttl)
    same(calls, [], "calls of on_lost")
    same(event.is_set(), False, "lost")


@check("loss")
async def check_on_lost_that_raises(world: World) -> None:
    """An on_lost that raises harms no other lease of the client."""
    ttl, kept = world.ttl(0.6), world.kept

    def fail(lease: Any) -> None:
        raise RuntimeError("on_lost of a conformance check")

    other = await world(world.locks.lock(world.name(), ttl=kept).acquire, timeout=5)
    lost = await world(world.locks.lock(world.name(), ttl=ttl, renew=False, on_lost=fail).acquire, timeout=5)
    world._loop.set_exception_handler(lambda loop, context: None)  # asyncio would print it
    await expect_lost(lost, ttl + world.slack)
    await asyncio.sleep(1.5 * kept)
    same(other.is_held(), True, "is_held() of another lease")
    same(await world(other.release), True, "release() of another lease")


@check("loss")
async def check_block_raises_lease_lost(world: World) -> None:
    """A block whose lease was lost raises LeaseLost; under asyncio its body is cancelled at once."""
    ttl = world.ttl(0.6)
    seen: dict[str, Any] = {}

    async def work() -> None:
        async with inside(world.locks.lock(world.name(), ttl=ttl, renew=False)) as lease:
            seen["lease"] = lease
            if world.flavour == "asyncio":
                await asyncio.sleep(60)
            await nap(ttl + 0.2)
            refused(LeaseLost, lease.check)

    error = await fails(LeaseLost, quick(world(work), ttl + 2 * world.slack, "the block"), "the block")
    same(error.token, seen["lease"].token, "LeaseLost.token")
    same(error.name, seen["lease"].name, "LeaseLost.name")
    that(error.reason, "LeaseLost has no reason")


@check("loss")
async def check_body_error_travels_on(world: World) -> None:
    """What the body raises travels on, though the lease was lost as well."""
    ttl = world.ttl(0.5)

    async def work() -> None:
        async with inside(world.locks.lock(world.name(), ttl=ttl, renew=False)) as lease:
            try:
                await nap(ttl + 0.5)
            except asyncio.CancelledError:
                pass
            that(not lease.is_held(), "the lease outlived its ttl")
            raise LookupError("from the body")

    error = await fails(LookupError, world(work), "the block")
    same(str(error), "from the body", "the error")


@check("loss")
async def check_lost_can_be_waited_for(world: World) -> None:
    """`lost.wait()` returns when the lease is lost."""
    ttl = world.ttl(0.6)
    lease = await world(world.locks.lock(world.name(), ttl=ttl, renew=False).acquire, timeout=5)

    async def wait() -> None:
        await io(lease.lost.wait())

    await quick(world(wait), ttl + 2 * world.slack, "lost.wait()")
    same(lease.is_held(), False, "is_held() after lost.wait()")


@check("loss", bug="redis-py asyncio: a late release frees the successor's lock")
async def check_late_release_spares_the_successor(world: World) -> None:
    """Releasing a lease that was lost says False and does not free the successor's lock."""
    ttl = world.ttl(0.5)
    name = world.name()
    lock = world.locks.lock(name, ttl=ttl, renew=False)
    old = await world(lock.acquire, timeout=5)
    new = await world(world.client().lock(name, ttl=world.ttl(30)).acquire, timeout=world.gone(ttl))
    same(await world(old.release), False, "release() of a lost lease")
    same(await world(new.verify), True, "verify() of the successor")
    await world.taken(name)
    same(await world(new.release), True, "release() of the successor")


@check("loss")
async def check_loss_of_one_lease_of_many(world: World) -> None:
    """One lease that is lost takes no other lease of the client with it."""
    ttl, kept = world.ttl(0.8), world.kept
    doomed = await world(world.locks.lock(world.name(), ttl=ttl, renew=False).acquire, timeout=5)
    others = [await world(world.locks.lock(world.name(), ttl=kept).acquire, timeout=5) for _ in range(5)]
    await expect_lost(doomed, ttl + world.slack)
    await asyncio.sleep(1.5 * kept)
    for lease in others:
        same(lease.is_held(), True, "is_held() of another lease")
        same(await world(lease.release), True, "release() of another lease")


# Leases ---------------------------------------------------------------------------------


@check("leases")
async def check_extend_gives_more_time(world: World) -> None:
    """extend() gives a lease more time, counted from now."""
    ttl = world.kept
    more = world.ttl(max(30.0, 3 * ttl))
    lease = await world(world.locks.lock(world.name(), ttl=ttl, renew=False).acquire, timeout=5)
    await world(lease.extend, more)
    between(2 * ttl, lease.remaining(), more, "remaining() after extend")
    same(lease.ttl, more, "ttl after extend")
    await asyncio.sleep(1.5 * ttl)
    same(lease.is_held(), True, "is_held() past the first ttl")
    same(await world(lease.verify), True, "verify() past the first ttl")
    same(await world(lease.release), True, "release()")


@check("leases")
async def check_extend_after_the_end_is_refused(world: World) -> None:
    """extend() raises LeaseLost after a loss and NotHeld after a release."""
    ttl = world.ttl(0.5)
    name = world.name()
    lost = await world(world.locks.lock(name, ttl=ttl, renew=False).acquire, timeout=5)
    await expect_lost(lost, ttl + world.slack)
    await fails(LeaseLost, world(lost.extend, world.ttl(30)), "extend() of a lost lease")
    await world.free(name, within=world.gone(ttl))
    released = await world(world.locks.lock(name, ttl=ttl).acquire, timeout=5)
    await world(released.release)
    await fails(NotHeld, world(released.extend, world.ttl(30)), "extend() of a released lease")
    await world.free(name)


@check("leases")
async def check_release_says_true_once(world: World) -> None:
    """release() says True once and False ever after; check() is NotHeld then."""
    name = world.name()
    lease = await world(world.locks.lock(name).acquire, timeout=5)
    same(await world(lease.release), True, "the first release()")
    for _ in range(3):
        same(await world(lease.release), False, "a further release()")
    same(lease.is_held(), False, "is_held() after release")
    same(lease.remaining(), 0.0, "remaining() after release")
    same(await world(lease.verify), False, "verify() after release")
    same(refused(NotHeld, lease.check).name, name, "NotHeld.name")
    next_one = await world(world.locks.lock(name).acquire, timeout=5)
    same(await world(lease.release), False, "release() while a successor holds the lock")
    same(await world(next_one.verify), True, "verify() of the successor")
    await world(next_one.release)


@check("leases")
async def check_release_inside_the_block(world: World) -> None:
    """A lease may be released inside its block, which then ends without an error."""
    name = world.name()

    async def work() -> None:
        async with inside(world.locks.lock(name)) as lease:
            same(await io(lease.release()), True, "release() inside the block")

    await world(work)
    await world.free(name)
