"""Renewal in the background: one service for all leases of a client, whatever their ttls."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from fencelock.core.ports import Renewal
from fencelock.testing.conformance.expect import between, same, soon, that
from fencelock.testing.conformance.registry import check
from fencelock.testing.conformance.world import World


def _services() -> int:
    """Count what works in the background: threads, and tasks of this loop."""
    threads = [t for t in threading.enumerate() if not t.name.startswith(("conform-", "asyncio_"))]
    return len(threads) + len(asyncio.all_tasks())


@check("renewal", alone=True, bug="a thread for each lock (python-redis-lock)")
async def check_one_service_renews_all_leases(world: World) -> None:
    """A hundred leases need no more threads or tasks than one, and all are held after three ttls."""
    ttl = world.kept
    first = await world(world.locks.lock(world.name(), ttl=ttl).acquire)
    await asyncio.sleep(ttl / 2)
    with_one = _services()
    others = [await world(world.locks.lock(world.name(), ttl=ttl).acquire) for _ in range(99)]
    leases = [first, *others]
    await asyncio.sleep(ttl / 2)
    with_many = _services()
    that(with_many <= with_one + 1, f"{with_many} threads and tasks for 100 leases, {with_one} for one")
    await asyncio.sleep(2.5 * ttl)
    same(sum(lease.is_held() for lease in leases), 100, "how many are held after three ttls")
    for lease in leases:
        same(await world(lease.release), True, "release")


@check("renewal", bug="extend sets the key if it is missing, so an expired lock comes back (aioredlock)")
async def check_the_backend_does_not_revive(world: World) -> None:
    """A backend that is asked to renew what has expired there says that it is lost."""
    client, faults = world.faulty_client()
    name = world.name()
    ttl = world.ttl(0.6)
    lease = await world(client.lock(name, ttl=ttl, renew=False).acquire)
    request, token = lease._hold.request, lease.token
    faults.cut()
    await soon(lambda: not lease.is_held(), world.gone(ttl), "the lease is over")
    successor = await world(world.locks.lock(name).acquire, timeout=world.gone(ttl))
    faults.heal()
    outcome = await world(_ask_to_renew, faults.backend, request, token, ttl)
    same(outcome, "lost", "what the backend says to a renewal of what has expired")
    that(await world(successor.verify), "the successor's lease is gone")
    await world(successor.release)


async def _ask_to_renew(backend: Any, request: Any, token: int, ttl: float) -> str:
    deadline = backend.runtime.now() + 5
    (outcome,) = await backend.renew([Renewal(request, token, ttl, True)], deadline=deadline)
    answer: str = outcome.value
    return answer


@check("renewal")
async def check_leases_with_different_ttls_are_renewed(world: World) -> None:
    """Short and long ttls of one client are each renewed in time."""
    ttls = [world.kept * part for part in (1, 1.25, 1.5, 2)]
    leases = [await world(world.locks.lock(world.name(), ttl=ttl).acquire) for ttl in ttls]
    await asyncio.sleep(3 * ttls[0])
    short = await world(world.locks.lock(world.name(), ttl=ttls[0]).acquire)  # joins a sleeping service
    await asyncio.sleep(3 * ttls[0])
    for lease in (*leases, short):
        that(lease.is_held(), f"a lease with a ttl of {lease.ttl}s was lost")
        await world(lease.release)


@check("renewal")
async def check_renewal_goes_on_after_idle_times(world: World) -> None:
    """A client that held nothing for a while renews again when it holds something."""
    ttl = world.kept
    for pause in (0.0, 1.2):
        await asyncio.sleep(pause)
        lease = await world(world.locks.lock(world.name(), ttl=ttl).acquire)
        await asyncio.sleep(2.5 * ttl)
        that(lease.is_held(), f"a lease that was taken after {pause}s of rest was not renewed")
        await world(lease.release)


@check("validity", bug="validity counted from the reply instead of the request (DistributedLock)")
async def check_a_renewal_counts_from_before_the_request(world: World) -> None:
    """The time that a renewal's reply took is not part of the validity either."""
    client, faults = world.faulty_client()
    ttl = world.ttl(3)
    lease = await world(client.lock(world.name(), ttl=ttl, renew=False).acquire)
    faults.delay_replies("renew", seconds=1.0, calls=1)
    await world(lease.extend, ttl)
    between(0, lease.remaining(), ttl - 0.95, "remaining() after a reply that took a second")
    faults.heal()
    await world(lease.release)


@check("validity")
async def check_validity_is_local(world: World) -> None:
    """`is_held`, `check` and `remaining` do no I/O: they answer though the backend does not."""
    client, faults = world.faulty_client()
    lease = await world(client.lock(world.name(), ttl=world.ttl(30)).acquire)
    before = dict(faults.counts)
    faults.cut()
    for _ in range(100):
        lease.check()
        that(lease.is_held() and lease.remaining() > 0, "a held lease says it is not")
    same(faults.counts, before, "the calls to the backend")
    faults.heal()
    await world(lease.release)


@check("leases")
async def check_extend_may_shorten_a_lease(world: World) -> None:
    """`extend` with a shorter ttl ends the lease sooner, in the backend too."""
    name = world.name()
    ttl = world.ttl(0.5)
    lease = await world(world.locks.lock(name, ttl=world.ttl(60), renew=False).acquire)
    await world(lease.extend, ttl)
    between(0, lease.remaining(), ttl, "remaining() after extend")
    other = await world(world.client().lock(name).acquire, timeout=world.gone(ttl))
    same(lease.is_held(), False, "is_held() when another holds")
    await world(other.release)


@check("leases", processes="many", limit=40.0)
async def check_a_crash_after_a_shorter_extend_frees_the_lock_soon(world: World) -> None:
    """The backend keeps the shorter ttl too: it frees the lock of a holder that died by then."""
    name, ttl = world.name(), world.ttl(1.0)
    mortal = world.mortal()
    await mortal.acquire(name, ttl=world.ttl(60.0 + 4 * ttl), renew=False)
    await mortal.extend(name, ttl)
    mortal.die()
    lease = await world(world.client().lock(name).acquire, timeout=world.gone(ttl))
    await world(lease.release)


@check("leases")
async def check_extend_may_lengthen_a_lease_again(world: World) -> None:
    """After a shorter ttl a longer one counts again, here and in the backend."""
    name, ttl = world.name(), world.kept
    longer = world.ttl(max(30.0, 3 * ttl))
    lease = await world(world.locks.lock(name, ttl=2 * ttl, renew=False).acquire)
    await world(lease.extend, ttl)
    await world(lease.extend, longer)
    between(2 * ttl, lease.remaining(), longer, "remaining() after the longer ttl")
    await asyncio.sleep(2 * ttl)
    that(lease.is_held() and await world(lease.verify), "the lease ended by its shorter ttl")
    await world.taken(name)
    same(await world(lease.release), True, "release")
