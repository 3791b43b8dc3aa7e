"""A fleet in simulated time: hosts with wrong clocks, slow, paused and killed, over one lock and one record.

A host's coroutine yields the seconds that it wants to wait; the world resumes whoever is next. Leases are
renewed by themselves while their host is awake, and end a ttl after it was paused or died. The same seed
gives the same run.
"""

from __future__ import annotations

import heapq
import itertools
import random
import types
from collections.abc import Coroutine, Generator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from fencelock.schedule.book import Book
from fencelock.schedule.plan import Policy
from fencelock.schedule.records import DONE, FAILED, Run
from fencelock.schedule.shelves.base import MemoryShelf, Page
from fencelock.schedule.turns import Clocks, Turn, Turns

START = 1_700_000_000.0
TTL = 30.0


@types.coroutine
def sleep(seconds: float) -> Generator[float, None, None]:
    yield seconds


@dataclass(order=True)
class Resume:
    at: float
    number: int
    host: Host = field(compare=False)
    steps: Coroutine[Any, Any, None] = field(compare=False)


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.time = START
        self.lease: Lease | None = None
        self.tokens = itertools.count(1)
        self.effects: list[tuple[int, float, Host]] = []
        self.ends: list[tuple[Run | None, float]] = []
        self.store = SimpleWeak()
        self.is_over = False
        self._dead: list[Coroutine[Any, Any, None]] = []
        self._queue: list[Resume] = []
        self._numbers = itertools.count()

    def spawn(self, host: Host, at: float) -> None:
        self.push(at, host, host.life())

    def push(self, at: float, host: Host, steps: Coroutine[Any, Any, None]) -> None:
        heapq.heappush(self._queue, Resume(at, next(self._numbers), host, steps))

    def run(self, until: float) -> None:
        while self._queue and self._queue[0].at <= until:
            event = heapq.heappop(self._queue)
            self.time = max(self.time, event.at)
            event.host.resume(event.steps)
        self.is_over = True  # what a coroutine still does while it is closed takes no time
        for steps in [*self._dead, *(event.steps for event in self._queue)]:
            steps.close()

    def bury(self, steps: Coroutine[Any, Any, None]) -> None:
        """Keep what a dead host was doing: closed now, it would clean up after itself."""
        self._dead.append(steps)


class SimpleWeak:
    """Something that a weak dictionary takes as a key."""


class Lease:
    def __init__(self, world: World, host: Host, token: int) -> None:
        self._world, self.host, self.token, self.ttl = world, host, token, TTL
        self.is_over = False

    def is_held(self) -> bool:
        silent = self.host.silent_since
        if silent is not None and self._world.time >= silent + TTL:
            self.is_over = True
        return not self.is_over

    async def release(self) -> bool:
        await self.host.delay()
        held = self.is_held() and self._world.lease is self
        if held:
            self._world.lease = None
        self.is_over = True
        return held


class Lock:
    terms = SimpleNamespace(ttl=TTL)

    def __init__(self, world: World, host: Host) -> None:
        self._world, self._host = world, host

    async def try_acquire(self) -> Lease | None:
        await self._host.delay()
        world = self._world
        if world.lease is not None and world.lease.is_held():
            return None
        lease = world.lease = Lease(world, self._host, next(world.tokens))
        await self._host.delay()
        return lease


class Shelf(MemoryShelf):
    """The store, with its own true clock, far away from its users."""

    def __init__(self, world: World, host: Host, has_clock: bool) -> None:
        super().__init__(world.store)
        self._world, self._host, self._has_clock = world, host, has_clock

    async def read(self, key: str) -> Page:
        await self._host.delay()
        found = (await super().read(key))._replace(now=self._world.time if self._has_clock else None)
        await self._host.delay()
        return found

    async def write(self, key: str, text: str, version: int) -> bool:
        await self._host.delay()
        done = await super().write(key, text, version)
        await self._host.delay()
        return done


class Host:
    """One host: `shift` is how wrong its clock is, `slowness` how long a step may take."""

    def __init__(
        self,
        world: World,
        policy: Policy,
        *,
        shift: float,
        slowness: float,
        work: float,
        pauses: float = 0.0,
        deaths: float = 0.0,
        has_clock: bool = True,
    ) -> None:
        self.world, self.policy, self.shift = world, policy, shift
        self.slowness, self.work_seconds, self.pauses, self.deaths = slowness, work, pauses, deaths
        self.has_clock = has_clock
        self.silent_since: float | None = None

    def resume(self, steps: Coroutine[Any, Any, None]) -> None:
        world = self.world
        if self.silent_since is not None:  # it wakes up: whatever ran out meanwhile is lost
            if world.lease is not None and world.lease.host is self:
                world.lease.is_held()
            self.silent_since = None
        elif world.random.random() < self.pauses:
            self.silent_since = world.time
            world.push(world.time + world.random.uniform(0, 3 * TTL), self, steps)
            return
        if world.random.random() < self.deaths:
            self.die(steps)
            return
        try:
            seconds = steps.send(None)
        except StopIteration:
            return
        world.push(world.time + seconds, self, steps)

    def die(self, steps: Coroutine[Any, Any, None]) -> None:
        self.silent_since = self.world.time
        self.world.bury(steps)
        heir = Host(
            self.world,
            self.policy,
            shift=self.world.random.uniform(-30, 30),
            slowness=self.slowness,
            work=self.work_seconds,
            pauses=self.pauses,
            deaths=self.deaths,
            has_clock=self.has_clock,
        )
        self.world.spawn(heir, self.world.time + self.world.random.uniform(1, 100))

    async def delay(self) -> None:
        if self.slowness:
            await self.pause(self.world.random.uniform(0, self.slowness))

    async def pause(self, seconds: float) -> None:
        if not self.world.is_over:
            await sleep(seconds)

    def wall(self) -> float:
        return self.world.time + self.shift

    def turns(self, before: int | None = None) -> Turns:
        clocks = Clocks(self.wall, lambda: self.world.time, self.pause, self.pause)
        book = Book(Shelf(self.world, self, self.has_clock), "", self.wall)
        return Turns("job", self.policy, book, Lock(self.world, self), "host", clocks, before=before)

    async def life(self) -> None:
        turns = self.turns()

        async def work(turn: Turn) -> None:
            self.world.effects.append((turn.run.tick, self.world.time, self))
            await self.pause(self.world.random.uniform(0, self.work_seconds))
            await turns.finish(turn, DONE)

        await turns.serve(work, lambda: False)


class Retrier(Host):
    """Runs what failed, again and again, as `fencelock once --retry-failed` does."""

    async def life(self) -> None:
        random = self.world.random
        while True:
            turns = self.turns(before=0)
            todo = await turns.look(retry_failed=True)
            turn = await turns.take() if todo.is_worth_a_try else None
            if turn is not None:
                self.world.effects.append((turn.run.attempt, self.world.time, self))
                await self.pause(random.uniform(0, self.work_seconds))
                state = DONE if turn.run.attempt > 2 and random.random() < 0.1 else FAILED
                self.world.ends.append((await turns.finish(turn, state), self.world.time))
            await self.pause(random.uniform(0, 20))
