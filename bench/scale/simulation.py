"""Clients, servers and locks in virtual time: what comes of how long each step takes, and of nothing else.

`pairs` is many names: each task takes a lock and gives it back, thinks, and does so again. `hot` is one lock
that everybody wants. Two steps make a pair, each of them client, way, server. The way takes what was drawn
from those that were measured, and `trip` seconds.

Promised: the same seed gives the same figures. Not promised: anything that is not in a step's time, such as
other work of the same servers, garbage collection, or a disk that is full.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Sequence
from typing import NamedTuple

from bench.scale.world import Cost, Gate, Host, Station, Step, World, majority

__all__ = ["Seen", "Steps", "hot", "pairs", "quantile"]


class Steps(NamedTuple):
    """What a pair, or a handoff, takes: seconds of the client, of each server, and on the way."""

    client: Cost
    server: Cost
    ways: Sequence[float]
    """Evenly spaced over the order of those that were measured."""
    members: int = 1
    """Servers that are asked at the same time, of which most must answer."""
    slots: int = 1
    """Steps that a server works on at a time."""
    door: int = 0
    """Steps of a client under way at a time; 0 if there is no such limit."""
    path: float = 1.0
    """The part of the work that an answer waits for."""
    embedded: bool = False
    """The clients do the server's work themselves, one of them at a time."""

    def half(self) -> Steps:
        """Return what one of two equal steps takes."""
        ways = [way / 2 for way in self.ways]
        return self._replace(client=_part(self.client, 2), server=_part(self.server, 2), ways=ways)


class Seen(NamedTuple):
    """What was seen: how many a second, how long each took in order, how busy the busiest server was."""

    rate: float
    times: Sequence[float]
    busy: float
    client: float
    """Seconds of clients for each."""
    server: float
    """Seconds of servers for each."""


def _part(cost: Cost, parts: int) -> Cost:
    return Cost(cost.alone / parts, cost.crowd / parts)


def quantile(times: Sequence[float], part: float) -> float:
    return times[round(part * (len(times) - 1))]


class _Count:
    """Counts what comes after the first `skip`, until there are `wanted` more."""

    def __init__(self, world: World, skip: int, wanted: int) -> None:
        self._world, self._skip, self._wanted = world, skip, wanted
        self._since = 0.0
        self._all = 0
        self._times: list[float] = []

    def took(self, seconds: float) -> None:
        self._all += 1
        if self._skip:
            self._skip -= 1
            self._since = self._world.now
        else:
            self._times.append(seconds)

    def is_over(self) -> bool:
        return len(self._times) >= self._wanted

    def seen(self, homes: Sequence[Station], servers: Sequence[Station], slots: int) -> Seen:
        now = self._world.now
        busy = max(one.busy for one in servers) / max(now * slots, 1e-12)
        rate = len(self._times) / max(now - self._since, 1e-12)
        client, server = (sum(one.busy for one in side) / max(self._all, 1) for side in (homes, servers))
        return Seen(rate, sorted(self._times), min(busy, 1.0), client, server)


def pairs(
    steps: Steps,
    *,
    clients: int,
    tasks: int = 1,
    count: int,
    processes: int = 0,
    processors: int = 0,
    think: float = 0.0,
    trip: float = 0.0,
    shares: Sequence[float] = (1.0,),
    settle: int = 2,
    seed: int = 1,
) -> Seen:
    """Let clients pair in so many tasks each, on different names.

    `processes` of one host with so many `processors` hold clients and servers; with 0 each client and each
    server has a machine of its own. Of several sets of servers each has its share of the names; it takes many
    pairs of each task to `settle`, until those that are to stand before the busiest one do.
    """
    world = World(seed)
    host = Host(world, processors) if processors else None
    homes = [Station(world, 1, host, steps.path) for _ in range(processes or clients)]
    sets = [[Station(world, steps.slots, host, steps.path) for _ in range(steps.members)] for _ in shares]
    turn = Gate(world)
    seen = _Count(world, skip=max(100, settle * clients * tasks), wanted=count)
    half, needed = steps.half(), steps.members // 2 + 1
    bounds = list(itertools.accumulate(shares))
    draw, ways = world.random.random, len(half.ways)

    def task(home: Station, door: Gate | None) -> Generator[Step, None, None]:
        while True:
            if think:
                yield world.rest(world.random.expovariate(1 / think))
            started = world.now
            servers = sets[0] if len(sets) == 1 else sets[_which(bounds, draw())]
            for _ in range(2):
                yield home.serve(half.client)
                if door:
                    yield door.enter
                yield world.rest(half.ways[int(draw() * ways)] + trip)
                if steps.embedded:
                    yield turn.enter
                    yield home.serve(half.server)
                    turn.leave()
                else:
                    yield majority([server.serve(half.server) for server in servers], needed)
                if door:
                    door.leave()
            seen.took(world.now - started)

    for number in range(clients):
        door = Gate(world, steps.door) if steps.door else None
        for _ in range(tasks):
            world.live(task(homes[number % len(homes)], door))
    world.run(seen.is_over)
    return seen.seen(homes, [server for one in sets for server in one], steps.slots)


def _which(bounds: Sequence[float], drawn: float) -> int:
    return next((number for number, bound in enumerate(bounds) if drawn < bound), len(bounds) - 1)


def hot(
    steps: Steps,
    *,
    clients: int,
    count: int,
    processes: int = 0,
    processors: int = 0,
    section: float = 0.0,
    think: float = 0.0,
    trip: float = 0.0,
    seed: int = 1,
) -> Seen:
    """Let clients want one lock; times are from asking for it until having it.

    A client works three times for a handoff (it asks, hears that it has the lock, gives it back), a server
    twice. The way is what the next one waits between the release and its turn.
    """
    world = World(seed)
    host = Host(world, processors) if processors else None
    homes = [Station(world, 1, host) for _ in range(processes or clients)]
    servers = [Station(world, steps.slots, host) for _ in range(steps.members)]
    lock, seen = Gate(world), _Count(world, skip=2 * clients, wanted=count)
    client, server, needed = _part(steps.client, 3), _part(steps.server, 2), steps.members // 2 + 1
    draw, ways = world.random.random, len(steps.ways)

    def ask() -> Step:
        return majority([one.serve(server) for one in servers], needed)

    def life(home: Station) -> Generator[Step, None, None]:
        while True:
            if think:
                yield world.rest(world.random.expovariate(1 / think))
            started = world.now
            yield home.serve(client)
            yield world.rest(trip / 2)
            yield ask()
            yield lock.enter
            yield world.rest(trip / 2)
            yield home.serve(client)
            seen.took(world.now - started)
            yield world.rest(section)
            yield home.serve(client)
            yield world.rest(trip / 2)
            yield ask()
            lock.leave(steps.ways[int(draw() * ways)])
            yield world.rest(trip / 2)

    for number in range(clients):
        world.live(life(homes[number % len(homes)]))
    world.run(seen.is_over)
    return seen.seen(homes, servers, steps.slots)
