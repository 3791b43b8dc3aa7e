"""`redlock://h1,h2,h3`: locks by a majority of independent Redis or Valkey servers.

All nodes are asked at the same time, and the votes of a majority decide; a minority that is down, slow or cut
off costs nothing. Usually a lock takes one round trip to acquire and one to release.

Layout, on each node (see `keys.py`): one hash, the node's memory, with a counter and its writer for each of
1,024 buckets of names, that never expires; and one string for each lock that is held, which does.

The token comes from the counters (`fencelock.core.quorum` has the argument): a grant moves the counter of
each node that votes for it; the largest is the token, once a majority has exactly that, written by this very
request. After a release all counters are alike, so the votes of the next grant agree by themselves; if not,
the token is written back, in one more round trip. No clock is in this.

A node that lost its memory (restarted without durable persistence, flushed) is noticed when it is connected
to, or by its empty hash. It is left out for `max_ttl` seconds, until nothing can count on its old votes any
more; then it is taught the counters by nodes that remember, and votes again (see `memory.py`).

Expiry is by key expiry on each node. A lease counts from before the first request was sent; nodes keep it
for a hundredth longer, for clocks that run fast.

Not promised: a queue, so no order among those who wait, no shared locks and no semaphores. Exclusion when the
clocks of a majority jump, or that of one node while others fail: then two may hold the lock for a while, and
only the token at the resource keeps the older one out. Token order if a majority loses its memory at once:
then tokens begin at the time of day. If all nodes lose it at once they begin anew at once, and whatever was
held then is not known any more.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from fencelock.backends.redis.server import DEFAULT_PORT, Server
from fencelock.backends.redlock.blocking import BlockingWire
from fencelock.backends.redlock.commands import BREAK, LOOK, RELEASE, RENEW, pack
from fencelock.backends.redlock.doctor import examine, pulse
from fencelock.backends.redlock.failures import BACKEND
from fencelock.backends.redlock.goodbye import say_goodbye
from fencelock.backends.redlock.keys import MEMORY, Places, about, milliseconds
from fencelock.backends.redlock.listening import AsyncioListener, BlockingListener, Listener, Waiter
from fencelock.backends.redlock.memory import Line, Memories
from fencelock.backends.redlock.multiplexed import MultiplexedWire
from fencelock.backends.redlock.node import Node
from fencelock.backends.redlock.rounds import Asking, Collecting, Releasing, Renewing, Undoing, Writing
from fencelock.backends.redlock.states import QuorumState, holder, polled
from fencelock.backends.redlock.url import MAX_TTL, NODE_TIMEOUT, check_nodes, parse
from fencelock.core.ports import LONGEST_TTL, Backend, Busy, Grant, Outcome, Renewal, Request
from fencelock.core.quorum import BUSY, GRANTED, SILENT, WRITE, Claim, kept, quorum
from fencelock.errors import ConfigurationError
from fencelock.findings import Finding, Pulse
from fencelock.guarantees import Guarantees
from fencelock.runtime.base import Runtime
from fencelock.state import Entry, LockState

__all__ = ["QuorumState", "RedlockBackend"]

WRITES = 4
"""So often a token is written back, each time a larger one, before the round counts as lost."""
SPREAD = 64
STEP = 0.002
MOST_STEPS = 32
"""Those who stood in each other's way try again after up to so many steps, doubling each time."""
COURTESY = 0.05
"""Seconds that who released a lock lets those go first who wait for it."""
COURTESIES = 1024
LOOKED_AT = 100
SCANNED = 1000


class RedlockBackend(Backend):
    """Locks by a majority of independent servers."""

    name = BACKEND
    capabilities = frozenset({"exclusive", "inspect", "list", "force_release"})
    renew_batch = 200
    default_port = DEFAULT_PORT

    def __init__(
        self, servers: Sequence[Server], *, node_timeout: float = NODE_TIMEOUT, max_ttl: float = MAX_TTL
    ) -> None:
        """Use these servers, at least three; all clients must give the same ones, and the same `max_ttl`.

        `node_timeout` is how long a node may take to answer, `max_ttl` the longest ttl there is: for
        so long a node that lost its memory is left out.
        """
        if not 0 < max_ttl <= LONGEST_TTL:
            raise ConfigurationError(
                f"redlock: max_ttl={max_ttl:g} is out of range: "
                f"give more than 0 and at most {LONGEST_TTL:g} seconds"
            )
        self._servers = check_nodes(servers)
        self._labels = [server.label for server in servers]
        self._node_timeout = node_timeout
        self._max_ttl = max_ttl
        self._count = len(servers)
        self._attempts = itertools.count(1)

    @classmethod
    def from_url(cls, url: str) -> RedlockBackend:
        servers, options = parse(url)
        return cls(servers, **options)

    def open(self, runtime: Runtime, namespace: str, lost: Callable[[str, str], None]) -> None:
        super().open(runtime, namespace, lost)
        self._places = Places(namespace)
        self._start()

    def _start(self) -> None:
        self._told: tuple[object, bytes] = (None, b"")
        self._waiters: dict[str, Waiter] = {}
        self._courtesy: dict[bytes, float] = {}
        self._memories = Memories(self.runtime, self._count, self._max_ttl)
        nodes = [Node(index, server) for index, server in enumerate(self._servers)]
        self._wire: Any
        self._listener: Listener
        if self.runtime.flavour == "asyncio":
            limits = self._node_timeout, self._max_ttl, self.runtime.spawn
            self._wire = MultiplexedWire(nodes, *limits)
            self._listener = AsyncioListener(MultiplexedWire(nodes, *limits))
        else:
            self._wire = wire = BlockingWire(nodes, self._node_timeout, self._max_ttl)
            self._listener = BlockingListener(wire)
        self._wire.alarm = self._memories.alarm

    @property
    def guarantees(self) -> Guarantees:
        few = self._count - quorum(self._count)
        return Guarantees(
            scope="cluster",
            use_for="correctness",
            fencing="until-restart",
            crash_release="ttl",
            clock="exclusion",
            failover="nothing",
            restart="nothing",
            fairness="none",
            wakeup="push",
            min_ttl=0.05,
            max_ttl=self._max_ttl,
            caveats=(
                "two may hold the lock for a while after a clock jump or an early expiry: without the token "
                "at the resource use it for efficiency only",
                "a clock jump breaks exclusion if the clocks of several nodes jump ahead, or one does while "
                "others are down; it never breaks the order of tokens",
                f"nothing is lost while at most {few} of {self._count} nodes are down, or lost their memory "
                f"within max_ttl ({self._max_ttl:g}s)",
                "if a majority of nodes loses its memory at once, tokens begin at the time of day; if all "
                "do, leases that were held are forgotten",
                "a node that is restarted without appendonly yes and appendfsync always is left out for "
                f"{self._max_ttl:g}s; all clients must give the same nodes and the same max_ttl",
                "whoever can write to the nodes can take and break every lock on them",
            ),
        )

    # Acquire ------------------------------------------------------------------------------

    async def acquire(self, request: Request, *, wait: bool, deadline: float) -> Grant | Busy:
        owner = request.owner
        if wait and self._courtesy and owner not in self._waiters:
            await self._let_others_go_first(request, deadline)
        line = self._wire.take(owner)
        try:
            self._wire.settle(owner, line)
            answer = await self._claim(line, request, deadline)
            if self._memories.is_due():
                await self._memories.tend(line, deadline)
            if not wait and answer.__class__ is Busy:
                self._wire.leave(owner, line)
            if self._wire.closed:
                # A signal handler has closed the client in the middle of this step. It has withdrawn the
                # request, perhaps before the nodes were asked.
                call = self._places.find(request.name).releasing(owner, 0)
                line.tell(Undoing(self._count, call))
        finally:
            self._wire.give(line)
        if wait and self._waiters and answer.__class__ is Grant:
            self._stop_waiting(owner)
        return answer

    async def _claim(self, line: Line, request: Request, deadline: float, again: bool = True) -> Grant | Busy:
        place = self._places.find(request.name)
        attempt = next(self._attempts)
        claim = Claim(self._count)
        call = place.acquiring(request.owner, request.ttl, attempt, self._about(request))
        undo = place.releasing(request.owner, 0, attempt)
        asking = Asking(claim, call, undo, place, self._memories.alarm)
        await line.ask(asking, deadline)
        outcome: str = claim.outcome
        if outcome == WRITE:
            outcome = await self._write_back(line, request, claim, undo, deadline)
        if outcome == GRANTED:
            return Grant(claim.token, request.ttl)
        self._take_back(line, request, asking)
        if outcome == BUSY:
            return self._busy(request, asking)
        if again and asking.is_left_out and await self._memories.tend(line, deadline):
            return await self._claim(line, request, deadline, again=False)
        raise asking.failure(self._labels)

    async def _write_back(
        self, line: Line, request: Request, claim: Claim, undo: bytes, deadline: float
    ) -> str:
        """Step 3, and again with a larger token while others move the counters."""
        place = self._places.find(request.name)
        for _ in range(WRITES):
            token, asked = claim.write_back(int(self.runtime.jitter() * SPREAD))
            writing = Writing(claim, place.writing(request.owner, token), undo, asked)
            await line.ask(writing, deadline, only=asked)
            outcome = claim.outcome
            if outcome != WRITE:
                return BUSY if outcome == SILENT else outcome
        return BUSY

    def _take_back(self, line: Line, request: Request, asking: Asking) -> None:
        """Give up the votes at once, so that nobody waits for them; those that are still to come too."""
        given = [node for node, answer in enumerate(asking.answers) if not isinstance(answer, list | bytes)]
        if given:
            until = self.runtime.now() + kept(request.ttl)
            line.tell(Undoing(self._count, asking.undo, until), only=given)

    def _busy(self, request: Request, asking: Asking) -> Busy:
        answers = [[answer[2], answer] for answer in asking.answers if isinstance(answer, list)]
        taken = polled(answers)
        unknown = sum(answer is None for answer in asking.answers)
        by = holder(taken, self._count, unknown)
        if by is not None:
            return Busy(min(each.record.left for each in taken), by)
        waiter = self._waiters.get(request.owner)
        steps = min(2**waiter.tries, MOST_STEPS) if waiter is not None else 1
        if waiter is not None:
            waiter.tries += 1
        return Busy(self.runtime.jitter() * STEP * steps, None)

    async def _let_others_go_first(self, request: Request, deadline: float) -> None:
        """Who has just released the lock while others wait for it would mostly have it again before them."""
        now = self.runtime.now()
        until = self._courtesy.pop(self._places.find(request.name).key, 0.0)
        if until > now:
            await self.runtime.sleep(min(until, deadline) - now)

    def _about(self, request: Request) -> bytes:
        if request.metadata is not None:
            return about(request)
        origin, told = self._told
        if origin is not request.origin:
            told = about(request)
            self._told = request.origin, told
        return told

    # Wait ---------------------------------------------------------------------------------

    async def wait(self, request: Request, deadline: float) -> Grant | None:
        if self._listener.ended:
            return None
        waiter = self._waiters.get(request.owner)
        if waiter is None:
            key = self._places.find(request.name).key
            waiter = self._waiters[request.owner] = Waiter(key, self.runtime.signal())
            self._listener.join(waiter)
        await self._listener.wait(waiter, deadline)
        return None

    def wake(self) -> None:
        self._listener.wake()

    def _stop_waiting(self, owner: str) -> None:
        waiter = self._waiters.pop(owner, None)
        if waiter is not None:
            self._listener.leave(waiter)

    # Renew and release --------------------------------------------------------------------

    async def renew(self, renewals: Sequence[Renewal], *, deadline: float) -> Sequence[Outcome]:
        keys, words = [MEMORY], []
        for renewal in renewals:
            keys.append(self._places.find(renewal.request.name).key)
            words += [renewal.request.owner.encode(), _keep(renewal)]
        asked = Renewing(self._count, RENEW.call(keys, *words), len(renewals))
        line = self._wire.take()
        try:
            await line.ask(asked, deadline)
        finally:
            self._wire.give(line)
        if asked.heard < quorum(self._count):
            raise asked.failure(self._labels)
        return [
            (Outcome.RENEWED if renewal.extend else Outcome.HELD)
            if tally.won
            else (Outcome.LOST if tally.lost else Outcome.UNKNOWN)
            for renewal, tally in zip(renewals, asked.tallies, strict=True)
        ]

    async def release(self, request: Request, token: int, *, deadline: float) -> bool:
        asked = await self._leave(request, token, deadline)
        # Held by fewer than a quorum is lost. Nodes that cannot be asked may have had it.
        return not asked.tally.lost

    async def abandon(self, request: Request, *, deadline: float) -> None:
        self._stop_waiting(request.owner)
        await self._leave(request, 0, deadline)

    async def _leave(self, request: Request, token: int, deadline: float) -> Releasing:
        owner, place = request.owner, self._places.find(request.name)
        call = place.releasing(owner, max(token, place.highest) if token else 0)
        until = self.runtime.now() + kept(self._max_ttl)
        asked = Releasing(self._count, call, until)
        line = self._wire.take(owner)
        try:
            await line.ask(asked, deadline, everyone=True)
            self._wire.leave(owner, line, Undoing(self._count, call, until))
        finally:
            self._wire.give(line)
        if not asked.tally.heard:
            raise asked.failure(self._labels)
        if asked.awaited:
            if len(self._courtesy) >= COURTESIES:
                self._courtesy.clear()
            self._courtesy[place.key] = self.runtime.now() + COURTESY
        return asked

    # Look and break -----------------------------------------------------------------------

    async def inspect(self, name: str, *, deadline: float) -> LockState:
        asked = await self._collect(LOOK.call([MEMORY, self._places.find(name).key]), LOOK, deadline)
        by = holder(polled(asked.answers), self._count, self._count - asked.heard)
        return QuorumState(name=name, holders=() if by is None else (by,), votes=asked.votes(self._labels))

    async def list(self, prefix: str, *, deadline: float) -> Sequence[LockState]:
        keys = sorted(await self._scan(self._places.pattern(prefix), deadline))
        states: list[LockState] = []
        for start in range(0, len(keys), LOOKED_AT):
            some = keys[start : start + LOOKED_AT]
            asked = await self._collect(LOOK.call([MEMORY, *some]), LOOK, deadline)
            for place, key in enumerate(some, 1):
                by = holder(polled(asked.answers, place), self._count, self._count - asked.heard)
                if by is not None:
                    states.append(LockState(name=self._places.name_of(key), holders=(by,)))
        return sorted(states, key=lambda state: state.name)

    async def _scan(self, pattern: bytes, deadline: float) -> set[bytes]:
        """Return the keys that any node has; each node has cursors of its own."""
        keys: set[bytes] = set()
        last = Collecting(self._count, b"", None)
        line = self._wire.take()
        try:
            for node in range(self._count):
                cursor = b"0"
                while True:
                    asked = Collecting(
                        self._count, pack("SCAN", cursor, "MATCH", pattern, "COUNT", SCANNED), None
                    )
                    asked.open = 1
                    await line.ask(asked, deadline, only=(node,))
                    last.answers[node] = answer = asked.answers[node]
                    if not isinstance(answer, list):
                        break
                    cursor, found = answer
                    keys.update(found)
                    if cursor == b"0":
                        break
        finally:
            self._wire.give(line)
        if last.heard < quorum(self._count):
            raise last.failure(self._labels)
        return keys

    async def force_release(self, name: str, owner: str | None, *, deadline: float) -> Sequence[Entry]:
        call = BREAK.call([MEMORY, self._places.find(name).key], (owner or "").encode())
        asked = await self._collect(call, BREAK, deadline, everyone=True)
        by = holder(polled(asked.answers), self._count, self._count - asked.heard)
        return () if by is None else (by,)

    async def _collect(
        self, call: bytes, script: Any, deadline: float, *, everyone: bool = False, again: bool = True
    ) -> Collecting:
        asked = Collecting(self._count, call, script)
        line = self._wire.take()
        try:
            await line.ask(asked, deadline, everyone=everyone)
            if asked.heard < quorum(self._count) and asked.is_left_out and again:
                again = await self._memories.tend(line, deadline)
            else:
                again = False
        finally:
            self._wire.give(line)
        if again:
            return await self._collect(call, script, deadline, everyone=everyone, again=False)
        if asked.heard < quorum(self._count):
            raise asked.failure(self._labels)
        return asked

    async def doctor(self) -> Sequence[Finding]:
        line = self._wire.take()
        try:
            return await examine(line, self._labels, self.runtime)
        finally:
            self._wire.give(line)

    async def pulse(self, *, deadline: float) -> Sequence[Pulse]:
        line = self._wire.take()
        try:
            return await pulse(line, self._labels, deadline)
        finally:
            self._wire.give(line)

    # The end ------------------------------------------------------------------------------

    async def close(self) -> None:
        self._waiters.clear()
        await self._listener.close()
        await self._wire.close()

    def forget(self, requests: Sequence[Request]) -> None:
        calls = [self._places.find(request.name).releasing(request.owner, 0) for request in requests]
        say_goodbye(self._servers, [RELEASE.in_full(call) for call in calls])

    def forked(self) -> None:
        self._wire.drop()
        self._listener.drop()
        self._start()

    def __repr__(self) -> str:
        return f"<RedlockBackend {','.join(self._labels)}>"


def _keep(renewal: Renewal) -> bytes:
    """Return what `renew.lua` is to do with a lock."""
    if not renewal.extend:
        return b"0"
    return b"=" * renewal.exact + milliseconds(max(0.0, renewal.ttl))
