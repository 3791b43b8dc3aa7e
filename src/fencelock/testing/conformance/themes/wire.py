"""The wire between a client and its servers: replies that are lost, late or cut, connections that are reset.

Each check tells the same story once for each request of it, with a client and relays of its own: a lock is
taken and given back, and then waited for. The fault strikes that request. The story knows no protocol, and
the relays know none: a request may be a greeting, a login, a step, or a heartbeat in the background.

Whatever was struck, a lock that is free is acquired, a waiter gets its turn, tokens rise, a lease that is
held keeps others out, and nothing is left behind. `verify` and `release` may say that no answer came, and
so may `acquire` if a server was silent: a later attempt succeeds. Where a lock is bound to its connection
(`crash_release`), the end of that may end the lease, and a wait is one request, which a silent connection
leaves without an answer until its timeout.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from fencelock.errors import AcquireTimeout, BackendUnavailable
from fencelock.testing.conformance.expect import soon, that
from fencelock.testing.conformance.registry import check
from fencelock.testing.conformance.relays import Nth, Strike
from fencelock.testing.conformance.world import World
from fencelock.testing.proxy import TCPProxy
from fencelock.testing.relay import Fault

PATIENCE = 20.0
"""Seconds after which a call that waits for an answer hangs."""
STRUCK = 16
"""So many requests of the story are struck at most, spread over all of them."""
AT_A_TIME = 4
"""So many stories are told side by side: each has connections of its own."""
ATTEMPTS = 3
"""So many attempts to acquire may end with a silent server: a client may have several connections to it."""
HELD_UP = 2.0
"""Seconds by which a reply is late."""
LIMIT = 120.0


def nothing(relay: TCPProxy, nth: Nth) -> Fault:
    """Strike nothing, and count."""
    return relay.fail(match=lambda request: nth(request) and False)


def lost(relay: TCPProxy, nth: Nth) -> Fault:
    """The reply does not come, nor anything after it."""
    return relay.swallow(match=nth, then="hang")


def late(relay: TCPProxy, nth: Nth) -> Fault:
    """The reply comes late, and what follows on its connection behind it."""
    return relay.hold(match=nth)


def cut(relay: TCPProxy, nth: Nth) -> Fault:
    """Half of the reply comes, and then the connection is reset."""
    return relay.cut(match=nth)


def reset_before(relay: TCPProxy, nth: Nth) -> Fault:
    """The connection is reset, and the request has not arrived."""
    return relay.fail(1, match=nth)


def reset_after(relay: TCPProxy, nth: Nth) -> Fault:
    """The connection is reset, and the request was answered."""
    return relay.swallow(match=nth)


@check("ambiguity", relayed=True, limit=LIMIT)
async def check_replies_that_are_lost(world: World) -> None:
    """Whichever reply is lost, with its connection silent from then on, locks go on and nothing is left."""
    await strike_each(world, lost)


@check("ambiguity", relayed=True, limit=LIMIT)
async def check_replies_that_are_late(world: World) -> None:
    """Whichever reply is two seconds late, locks go on and nothing is left."""
    await strike_each(world, late)


@check("ambiguity", relayed=True, limit=LIMIT)
async def check_replies_that_are_cut(world: World) -> None:
    """Whichever reply ends in the middle, with a reset, locks go on and nothing is left."""
    await strike_each(world, cut)


@check("ambiguity", relayed=True, limit=LIMIT)
async def check_connections_reset_before_a_request(world: World) -> None:
    """Whichever request finds its connection reset, locks go on and nothing is left."""
    await strike_each(world, reset_before)


@check("ambiguity", relayed=True, limit=LIMIT)
async def check_connections_reset_after_a_request(world: World) -> None:
    """Whichever request was done on a connection that is then reset, locks go on and nothing is left."""
    await strike_each(world, reset_after)


async def strike_each(world: World, strike: Strike) -> None:
    """Tell the story once for each request of it, each with a fault that strikes it."""
    await world.free(world.name())  # the first client of all sets up the store, with requests of its own
    undisturbed = Story(world, nothing, 0)
    await undisturbed.tell()
    room = asyncio.Semaphore(AT_A_TIME)

    async def tell(n: int) -> bool:
        async with room:
            story = Story(world, strike, n)
            await story.tell()
            return story.was_struck

    struck = await asyncio.gather(*map(tell, chosen(undisturbed.requests)))
    found = struck.count(True)  # a waiter that polls makes fewer requests in a shorter time
    that(4 * found >= len(struck), f"only {found} of {len(struck)} faults have struck")


def chosen(requests: int) -> list[int]:
    """Return the numbers of at most `STRUCK` requests, spread over all of them."""
    count = min(requests, STRUCK)
    return [1 + n * requests // count for n in range(count)]


class Story:
    """A lock taken and given back, then waited for, by a client that a fault strikes."""

    def __init__(self, world: World, strike: Strike, n: int) -> None:
        self.world = world
        self.name = world.name()
        self.client, self.relays = world.relayed_client()
        self.actor = world.actor()
        self.nth, self.faults = self.relays.arm(strike, n)
        self.lock = self.client.lock(self.name, ttl=world.ttl(30))
        self.where = f"{strike.__name__} {n}"
        self.is_silent = strike in {lost, late}
        self.may_end = world.guarantees.crash_release == "connection"

    @property
    def requests(self) -> int:
        """How many it took."""
        return self.nth.seen

    @property
    def was_struck(self) -> bool:
        """Whether there was such a request. Some have no reply that could be lost."""
        return any(fault.struck for fault in self.faults)

    async def tell(self) -> None:
        """Tell it, to the end of the client."""
        healing = [asyncio.ensure_future(self._heal(fault)) for fault in self.faults if fault.kind == "hold"]
        try:
            await self._tell()
            await self.actor(self.client.close)
            await asyncio.to_thread(self.relays.close)
        except BaseException as error:
            error.add_note(f"struck: {self.where}, of {self.requests} requests until now")
            raise
        finally:
            for healer in healing:
                healer.cancel()

    async def _heal(self, fault: Fault) -> None:
        """End a fault some time after it has struck."""
        await soon(lambda: fault.struck, LIMIT, "the fault has struck")
        await asyncio.sleep(HELD_UP)
        await asyncio.to_thread(fault.cancel)

    async def _tell(self) -> None:
        world = self.world
        lease = await self._acquire()
        await self._expect_held(lease)
        await self._release(lease)
        holder = await world(world.locks.lock(self.name, ttl=world.ttl(30)).acquire, timeout=PATIENCE)
        that(holder.token > lease.token, f"token {holder.token} follows {lease.token}")
        waiting = asyncio.ensure_future(self._acquire())
        try:
            await world.queued(self.name, 1, within=PATIENCE)
            await world(holder.release)
            lease = await waiting
        finally:
            waiting.cancel()
        that(lease.token > holder.token, f"token {lease.token} follows {holder.token}")
        await self._expect_held(lease)
        await self._release(lease)

    async def _acquire(self) -> Any:
        """Acquire the lock; if a server was silent, in a later attempt."""
        silence = (BackendUnavailable, AcquireTimeout) if self.may_end else (BackendUnavailable,)
        for _ in range(ATTEMPTS if self.is_silent else 0):
            with suppress(*silence):
                return await self.actor(self.lock.acquire, timeout=PATIENCE)
        return await self.actor(self.lock.acquire, timeout=PATIENCE)

    async def _expect_held(self, lease: Any) -> None:
        """Fail if the lease is lost, or others can have the lock."""
        try:
            is_held = await self.actor(lease.verify)
        except BackendUnavailable:
            is_held = lease.is_held() and not self.may_end
        that(is_held or self.may_end, "the lease is lost")
        if is_held:
            await self.world.taken(self.name)

    async def _release(self, lease: Any) -> None:
        """Give it back; without an answer it is withdrawn in the background."""
        try:
            released = await self.actor(lease.release)
            that(released or self.may_end, "release() said that the lease was lost")
        except BackendUnavailable:
            pass
        await self.world.free(self.name, PATIENCE)
