"""The world of one check: clients, actors, names and processes, and that nothing of them is left.

A check does not know its flavour. It asks the world for a client, and gives its calls to the
world (which has an actor of its own) or to further actors. Everything is closed at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from fencelock.state import LockState
from fencelock.testing import view
from fencelock.testing.conformance.actors import Actor, TaskActor, ThreadActor, io
from fencelock.testing.conformance.expect import soon, that
from fencelock.testing.conformance.peers import Peer, script
from fencelock.testing.conformance.relays import Relays
from fencelock.testing.conformance.seam import Faults
from fencelock.testing.conformance.target import Target

__all__ = ["Mortal", "World"]

KEPT = 4.0
"""The ttl of a lease that a check wants kept: a busy machine may renew late, but not as late as that."""

OWN_THREADS = ("conform-", "asyncio_")


class World:
    """What one run of one check works with."""

    def __init__(self, target: Target, flavour: str, *, exact: bool) -> None:
        self.target = target
        self.flavour = flavour
        self.guarantees = target.guarantees
        self.capabilities = target.capabilities
        self.prefix = f"conform-{secrets.token_hex(6)}/"
        self.slack = 1.0
        """Seconds that a busy machine may add to anything."""
        self.brief = 1.0
        """Seconds that are enough for an answer, for a call that is to give up waiting."""
        self._exact = exact  # nothing else runs in this process: every new thread is ours
        self._threads_before = set(threading.enumerate())
        self._loop = asyncio.get_running_loop()
        self._clients: list[Any] = []
        self._namespaces: set[str | None] = {None}
        self._names: set[str] = set()
        self._actors: list[ThreadActor | TaskActor] = []
        self._peers: list[Peer] = []
        self._relays: list[Relays] = []
        self._serial = 0
        self._main = self.actor()
        self._eye = self.actor()
        self._locks: Any = None
        self.left: float = 3.0
        """Seconds after which nothing may be left of this check in the backend."""

    # Making things --------------------------------------------------------------------------

    def name(self, text: str = "") -> str:
        """Return a name that nobody else uses."""
        self._serial += 1
        return f"{self.prefix}{self._serial}{text}"

    def own(self, name: str) -> str:
        """Return a name that does not begin with the prefix, and look after it as well."""
        self._names.add(name)
        return name

    def client(self, **options: Any) -> Any:
        """Return a new client of this flavour."""
        client = self._keep(self.target.client(self.flavour, **options))
        self._namespaces.add(options.get("namespace"))
        return client

    def faulty_client(self, **options: Any) -> tuple[Any, Faults]:
        """Return a new client and the switchboard between it and its backend."""
        backend = self.target.backend()
        faults = Faults(backend)
        return self._keep(self.target.client(self.flavour, backend, **options)), faults

    def relayed_client(self) -> tuple[Any, Relays]:
        """Return a new client, and the relays between it and its servers."""
        relays = self.target.relays()
        self._relays.append(relays)
        return self._keep(self.target.client(self.flavour, url=relays.url)), relays

    def _keep(self, client: Any) -> Any:
        self._clients.append(client)
        return client

    @property
    def locks(self) -> Any:
        """The client that most checks need one of."""
        if self._locks is None:
            self._locks = self.client()
        return self._locks

    def actor(self) -> Actor:
        """Return an independent thread or task."""
        kind = ThreadActor if self.flavour == "blocking" else TaskActor
        actor = kind(self._loop, f"conform-actor-{len(self._actors)}")
        self._actors.append(actor)
        return actor

    async def __call__(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Make a call on the world's own actor."""
        return await self._main(function, *args, **options)

    # Time -----------------------------------------------------------------------------------

    def ttl(self, short: float) -> float:
        """Return a ttl of `short` seconds, or the next one that the backend can keep."""
        return min(max(short, self.guarantees.min_ttl), self.guarantees.max_ttl)

    @property
    def kept(self) -> float:
        """The ttl of a lease that a busy machine must not lose."""
        return self.ttl(KEPT)

    async def limits(self) -> tuple[float, float]:
        """Return the shortest and the longest ttl, which a client may have to negotiate with the server."""
        lease = await self(self.locks.lock(self.name()).acquire)
        await self(lease.release)
        return self.locks.guarantees.min_ttl, self.locks.guarantees.max_ttl

    def gone(self, ttl: float) -> float:
        """Return the seconds after which the lock of a dead holder is available again."""
        longest = 2 * ttl if self.guarantees.crash_release == "session" else ttl
        return longest + 2.0 + self.slack

    # Looking --------------------------------------------------------------------------------

    async def state(self, name: str) -> LockState:
        """Return who holds and who waits, as a client that takes no part sees it."""
        state: LockState = await self._eye(self.locks.inspect, name)
        return state

    async def queued(self, name: str, waiters: int, *, within: float = 10.0) -> None:
        """Return when so many wait; where that cannot be seen, when they had time to begin."""
        if {"fifo", "inspect"} <= self.capabilities:
            await soon(lambda: self._waiting(name, waiters), within, f"{waiters} waiters of {name!r}")
        else:
            await asyncio.sleep(0.3)

    async def _waiting(self, name: str, waiters: int) -> bool:
        return len((await self.state(name)).waiters) == waiters

    async def settled(self, client: Any) -> None:
        """Return when no cleanup is pending: a busy server may not have answered one in time."""
        await soon(lambda: not view.pending_cleanups(client), 15.0, "every cleanup has been answered")

    async def free(self, name: str, within: float = 3.0) -> None:
        """Fail unless nobody holds the lock and nobody waits, soon."""
        if "inspect" in self.capabilities:
            await soon(lambda: self._is_free(name), within, f"{name!r} is free")
        else:
            await soon(lambda: self._can_be_taken(name), within, f"{name!r} is free")

    async def _is_free(self, name: str) -> bool:
        return (await self.state(name)).is_free

    async def _can_be_taken(self, name: str) -> bool:
        lease = await self._eye(self.locks.lock(name).try_acquire)
        return lease is not None and bool(await self._eye(lease.release))

    async def taken(self, name: str) -> None:
        """Fail unless somebody holds the lock, as others see it."""
        lease = await self._eye(self.locks.lock(name).try_acquire)
        if lease is not None:
            await self._eye(lease.release)
        that(lease is None, f"{name!r} was free for others though it is held")

    # Processes ------------------------------------------------------------------------------

    def peer(self) -> Peer:
        """Return another process that takes locks on the same backend."""
        peer = Peer(self.target.nursery, self.flavour)
        self._peers.append(peer)
        return peer

    async def script(self, name: str, /, *, limit: float = 30.0, **options: Any) -> Any:
        """Run a script in a process of its own and return its report."""
        return await script(self.target.nursery, self.flavour, name, options, limit)

    def mortal(self) -> Mortal:
        """Return somebody who takes locks and may die.

        Where the backend reaches further than this process it is a process, and dies by
        SIGKILL. Otherwise it is a client that is cut off from its backend for good.
        """
        if self.guarantees.scope != "process" and self.target.url is not None:
            return Mortal(peer=self.peer())
        client, faults = self.faulty_client()
        return Mortal(client=client, faults=faults, actor=self.actor())

    # The end --------------------------------------------------------------------------------

    def doing(self) -> str:
        """Describe the calls that are under way."""
        calls = [actor.doing for actor in self._actors if actor.doing]
        return "; ".join(calls) or "nothing that an actor was told to do"

    async def close(self) -> None:
        """Close every client and end every actor and process."""
        for peer in self._peers:
            peer.close()
        closer = self.actor()
        for client in self._clients:
            await closer(client.close)
        for relays in self._relays:
            relays.close()
        for actor in self._actors:
            actor.stop()

    async def abort(self) -> None:
        """Close what can be closed in a few seconds; the check has failed already."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(8.0):
                await self.close()
        for actor in self._actors:
            actor.stop()

    async def expect_nothing_left(self) -> None:
        """Fail if this check left a holder, a waiter, a thread or a task behind."""
        await self._expect_no_records()
        await soon(lambda: not self._own_tasks(), 3.0, "all tasks of closed clients have ended")
        if self._exact:
            await soon(lambda: not self._new_threads(), 3.0, f"threads are left: {self._new_threads()}")

    async def _expect_no_records(self) -> None:
        deadline = time.monotonic() + self.left
        for namespace in self._namespaces:
            async with self._another_client(namespace) as client:
                while left := await self._records(client):
                    that(time.monotonic() < deadline, f"left behind: {left}")
                    await asyncio.sleep(0.05)

    @contextlib.asynccontextmanager
    async def _another_client(self, namespace: str | None) -> AsyncIterator[Any]:
        options: dict[str, Any] = {} if namespace is None else {"namespace": namespace}
        client = self.target.client("asyncio", **options)
        try:
            yield client
        finally:
            await client.close()

    async def _records(self, client: Any) -> list[str]:
        states = []
        if "list" in self.capabilities:
            states += await client.list(self.prefix)
        if "inspect" in self.capabilities:
            states += [await client.inspect(name) for name in self._names]
        return [
            f"{state.name!r} ({len(state.holders)} holders, {len(state.waiters)} waiters)"
            for state in states
            if not state.is_free
        ]

    def _own_tasks(self) -> list[str]:
        current = asyncio.current_task()
        return [task.get_name() for task in asyncio.all_tasks() if task is not current]

    def _new_threads(self) -> list[str]:
        return [
            thread.name
            for thread in threading.enumerate()
            if thread not in self._threads_before and not thread.name.startswith(OWN_THREADS)
        ]


@dataclass(slots=True, kw_only=True)
class Mortal:
    """Somebody who takes locks and may die: a process, or a client that is cut off."""

    peer: Peer | None = None
    client: Any = None
    faults: Faults | None = None
    actor: Actor | None = None
    leases: list[Any] = field(default_factory=list)

    async def acquire(self, name: str, **options: Any) -> int:
        """Take a lock and return the token."""
        token: int = await self.start(name, **options)
        return token

    def start(self, name: str, **options: Any) -> asyncio.Future[int]:
        """Begin to wait for a lock."""
        if self.peer is not None:
            call = asyncio.ensure_future(_token(self.peer.start("acquire", name=name, **options)))
            call.add_done_callback(lambda done: done.cancelled() or done.exception())  # it may be dead
            return call
        assert self.actor is not None
        return self.actor.start(self._acquire, name, **options)

    async def extend(self, name: str, ttl: float) -> None:
        """Give the lease on a lock another ttl."""
        if self.peer is not None:
            await self.peer.start("extend", name=name, ttl=ttl)
        else:
            assert self.actor is not None
            lease = next(lease for lease in self.leases if lease.name == name)
            await self.actor(lease.extend, ttl)

    def die(self) -> None:
        """Go, without a word to the backend."""
        if self.peer is not None:
            self.peer.kill()
        else:
            assert self.faults is not None
            self.faults.cut()

    async def _acquire(self, name: str, *, timeout: float | None = None, **terms: Any) -> int:
        mode = terms.pop("mode", "exclusive")
        lock = (
            self.client.rwlock(name, **terms).read() if mode == "shared" else self.client.lock(name, **terms)
        )
        lease = await io(lock.acquire(timeout=timeout))
        self.leases.append(lease)
        token: int = lease.token
        return token


async def _token(call: asyncio.Future[Any]) -> int:
    token: int = (await call)["token"]
    return token
