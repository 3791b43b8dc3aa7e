"""A model of the quorum's tokens: nodes, messages and clients under a seeded scheduler.

The client's side is the real one, `fencelock.core.quorum`; the nodes do in Python what the Lua scripts do on
a server. Each tick one thing happens, chosen by the seed: a message arrives (in any order, or
never), a client begins, gives up or dies, a lock expires for no reason, a few nodes are cut off, a node
loses its memory, a node that was left out is readmitted. There is no clock but the ticks, and nodes count
from 0, so nothing but the protocol makes tokens rise.

Locks that expire for no reason break exclusion, as they must: only tokens are judged here. No two
grants share one, and a grant that was complete before another began has the smaller one.

A `Mutant` is the same with one rule broken; the check must notice.
"""

from __future__ import annotations

import random
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from fencelock.core.quorum import (
    BLANK,
    GRANTED,
    JOINING,
    MEMBER,
    OPEN,
    RIPE,
    WRITE,
    Claim,
    View,
    lesson,
    quorum,
    readmission,
)

__all__ = ["FLAWLESS", "MUTANTS", "Grant", "Mutant", "Outcome", "simulate"]

TICKS = 400
TTLS = (40, 120)
"""Ticks after which a claim is over: the longest ttl there is. Many claims are too slow for the first."""
NAMES = 2
BUCKETS = 1
"""Both names share a counter, as names in one bucket do."""
WRITES = 3


@dataclass(frozen=True)
class Mutant:
    """Which rule is broken; by default none."""

    name: str = "none"
    writes_back: bool = True
    lifts: bool = True
    knows_writers: bool = True
    leaves_out: bool = True
    waits: bool = True
    teaches: bool = True


FLAWLESS = Mutant()
MUTANTS = (
    Mutant("no write-back", writes_back=False),
    Mutant("INCR and take the maximum", writes_back=False, lifts=False),
    Mutant("a node agrees with any writer", knows_writers=False),
    Mutant("a node with amnesia is not left out", leaves_out=False),
    Mutant("a node with amnesia comes back at once", waits=False),
    Mutant("a node with amnesia is not taught", teaches=False),
)


class Node:
    """What the scripts do on one server."""

    def __init__(self) -> None:
        self.view: View = MEMBER
        self.wiped = 0
        self.cut = False
        self.locks: dict[int, str] = {}
        self.counters: dict[int, int] = {}
        self.writers: dict[int, str] = {}

    def acquire(self, owner: str, name: int) -> tuple[str, int]:
        if self.view != MEMBER:
            return "left out", 0
        if self.locks.setdefault(name, owner) != owner:
            return "taken", 0
        return "granted", self._move(name % BUCKETS, self.counters.get(name % BUCKETS, 0) + 1, owner)

    def write_back(self, owner: str, name: int, token: int, mutant: Mutant) -> tuple[str, int]:
        bucket = name % BUCKETS
        counter = self.counters.get(bucket, 0)
        if self.view != MEMBER:
            return "left out", 0
        if self.locks.get(name) != owner:
            return "disagreed", counter
        if counter < token:
            self._move(bucket, token, owner)
        elif counter > token or (mutant.knows_writers and self.writers[bucket] != owner):
            return "disagreed", counter
        return "agreed", token

    def release(self, owner: str, name: int, counter: int) -> tuple[str, int]:
        if self.locks.get(name) == owner:
            del self.locks[name]
        if self.view == MEMBER and self.counters.get(name % BUCKETS, 0) < counter:
            self._move(name % BUCKETS, counter, owner)
        return "released", 0

    def lose_memory(self, tick: int, mutant: Mutant) -> None:
        self.locks, self.counters, self.writers = {}, {}, {}
        if mutant.leaves_out:
            self.view, self.wiped = BLANK, tick

    def learn(self, counters: dict[int, int]) -> None:
        for bucket, counter in counters.items():
            if counter > self.counters.get(bucket, 0):
                self._move(bucket, counter, "")
        self.view = MEMBER

    def _move(self, bucket: int, counter: int, owner: str) -> int:
        self.counters[bucket], self.writers[bucket] = counter, owner
        return counter


@dataclass(frozen=True)
class Grant:
    """One grant, as its client saw it."""

    name: int
    token: int
    began: int
    complete: int


@dataclass
class Client:
    """One request at a time; when it is over, or has died, the next."""

    number: int
    serial: int = 0
    owner: str = ""
    name: int = 0
    began: int = 0
    claim: Claim | None = None
    writes: int = 0
    token: int = 0
    asked: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Outcome:
    """What one seed showed."""

    seed: int
    mutant: Mutant
    grants: tuple[Grant, ...]
    faults: Mapping[str, int]
    """How often each kind struck."""
    readmitted: int

    @property
    def wiped(self) -> int:
        """How often a node lost its memory."""
        return self.faults.get("wiped", 0)

    @property
    def duplicates(self) -> list[str]:
        """Tokens that were given twice."""
        seen: dict[int, Grant] = {}
        told = []
        for grant in self.grants:
            if grant.token in seen:
                told.append(f"token {grant.token} went to {seen[grant.token]} and {grant}")
            seen[grant.token] = grant
        return told

    @property
    def disorders(self) -> list[str]:
        """Grants that came later and have the smaller token."""
        return [
            f"{later} came after {earlier}"
            for later in self.grants
            for earlier in self.grants
            if earlier.name == later.name and earlier.complete < later.began and earlier.token >= later.token
        ]

    def __str__(self) -> str:
        told = "\n".join([*self.duplicates, *self.disorders])
        return f"simulate({self.seed}, mutant {self.mutant.name!r}):\n{told}"


class World:
    """Everything that one seed decides."""

    def __init__(self, seed: int, mutant: Mutant) -> None:
        self.seed = seed
        self.mutant = mutant
        self.chance = random.Random(seed)
        self.tick = 0
        self.nodes = [Node() for _ in range(self.chance.choice((3, 4, 5, 5)))]
        self.clients = [Client(number) for number in range(self.chance.randint(2, 5))]
        self.bag: list[Callable[[], None]] = []
        self.grants: list[Grant] = []
        self.faults: Counter[str] = Counter()
        self.readmitted = 0
        self.lossy = self.chance.choice((0.0, 0.02, 0.1))
        self.spurious = self.chance.choice((0, 3, 10))
        self.amnesia = self.chance.choice((0, 2, 8))
        self.care = self.chance.choice((1, 3, 10))
        self.ttl = self.chance.choice(TTLS)
        self.cuts = self.chance.choice((0, 2, 5))

    def run(self) -> Outcome:
        events = (self.deliver, self.act, self.expire, self.cut_off, self.forget, self.readmit)
        weights = (80, 12, self.spurious, self.cuts, self.amnesia, self.care * self.amnesia)
        bounds, draw = [*accumulate(weights)], self.chance.random
        most = bounds[-1]
        for self.tick in range(1, TICKS + 1):
            events[bisect(bounds, draw() * most)]()
        return Outcome(self.seed, self.mutant, tuple(self.grants), dict(self.faults), self.readmitted)

    # Faults ---------------------------------------------------------------------------------

    def expire(self) -> None:
        if self.chance.choice(self.nodes).locks.pop(self.chance.randrange(NAMES), None):
            self.faults["expired"] += 1

    def cut_off(self) -> None:
        """From now on a minority, or nobody, hears nothing."""
        few = self.chance.randrange(quorum(len(self.nodes)))
        for node in self.nodes:
            node.cut = False
        for node in self.chance.sample(self.nodes, few):
            node.cut = True
        self.faults["cut"] += few

    def forget(self) -> None:
        """At most a minority has lost its memory at any time: more is not promised."""
        node = self.chance.choice(self.nodes)
        out = sum(other.view != MEMBER for other in self.nodes)
        if node.view == MEMBER and out + 1 < quorum(len(self.nodes)):
            node.lose_memory(self.tick, self.mutant)
            self.faults["wiped"] += 1

    def readmit(self) -> None:
        """Somebody looks at the nodes that can be reached, and does what is to be done."""
        views = [None if node.cut else self.view(node) for node in self.nodes]
        todo, which = readmission(views)
        if todo == "leave out":
            for number in which:
                self.nodes[number].view, self.nodes[number].wiped = JOINING, self.tick
        elif todo == "teach":
            known = lesson(
                node.counters for node, view in zip(self.nodes, views, strict=True) if view == MEMBER
            )
            for number in which:
                self.bag.append(self.teaching(self.nodes[number], known if self.mutant.teaches else {}))
        else:
            assert todo == "wait", todo

    def view(self, node: Node) -> View:
        over = self.tick > node.wiped + self.ttl or not self.mutant.waits
        return RIPE if node.view == JOINING and over else node.view

    def teaching(self, node: Node, known: dict[int, int]) -> Callable[[], None]:
        wiped = node.wiped

        def arrive() -> None:
            if node.view == JOINING and node.wiped == wiped:
                node.learn(known)
                self.readmitted += 1

        return arrive

    # Messages -------------------------------------------------------------------------------

    def deliver(self) -> None:
        if not self.bag:
            return
        bag, draw = self.bag, self.chance.random
        place = int(draw() * len(bag))
        bag[place], bag[-1] = bag[-1], bag[place]
        arrive = bag.pop()
        if draw() >= self.lossy:
            arrive()
        else:
            self.faults["lost"] += 1

    def ask(self, client: Client, step: str, *args: Any) -> None:
        """Send one thing to nodes; the answers come back to this very claim, or never."""
        claim, owner, name = client.claim, client.owner, client.name
        for number in sorted(client.asked):
            self.bag.append(self.asking(client, claim, number, self.nodes[number], step, owner, name, *args))

    def asking(
        self, client: Client, claim: Claim | None, number: int, node: Node, step: str, *args: Any
    ) -> Callable[[], None]:
        writes = client.writes

        def arrive() -> None:
            if node.cut:
                return
            answer = getattr(node, step)(*args)
            self.bag.append(lambda: self.hear(client, claim, number, writes, answer))

        return arrive

    def hear(
        self, client: Client, claim: Claim | None, number: int, writes: int, answer: tuple[str, int]
    ) -> None:
        word, counter = answer
        if claim is None or client.claim is not claim:
            return
        if client.token:
            claim.highest = max(claim.highest, counter)
            return
        if writes != client.writes or number not in client.asked:
            if word == "granted" and client.writes:
                claim.grant(number, counter)  # an answer to an earlier round: only the number counts
            return
        client.asked.discard(number)
        if self.vote(claim, number, word, counter):
            self.decide(client, claim)

    def vote(self, claim: Claim, number: int, word: str, counter: int) -> bool:
        if word == "granted":
            return claim.grant(number, counter)
        if word == "agreed":
            return claim.agree(number)
        if word == "disagreed":
            return claim.disagree(counter)
        return claim.refuse() if word == "taken" else claim.miss()

    # Clients --------------------------------------------------------------------------------

    def act(self) -> None:
        """Somebody begins, or gives up waiting for answers, or dies, or releases."""
        client = self.chance.choice(self.clients)
        if client.claim is None:
            self.begin(client)
        elif client.token:
            self.end(client, max(client.token, client.claim.highest))
        elif self.chance.random() < 0.05:
            client.claim = None  # it died: its locks stay until they expire
            self.faults["died"] += 1
        elif self.chance.random() < 0.15:
            for _ in range(len(client.asked)):
                client.claim.miss()
            client.asked.clear()
            self.decide(client, client.claim)

    def begin(self, client: Client) -> None:
        client.serial += 1
        client.owner = f"{client.number}.{client.serial}"
        client.name = self.chance.randrange(NAMES)
        client.began, client.writes, client.token = self.tick, 0, 0
        client.claim = Claim(len(self.nodes))
        client.asked = set(range(len(self.nodes)))
        self.ask(client, "acquire")

    def decide(self, client: Client, claim: Claim) -> None:
        outcome = claim.outcome
        if outcome == WRITE and not self.mutant.writes_back:
            claim.token, outcome = claim.highest, GRANTED
        if outcome == WRITE and client.writes < WRITES:
            self.write_back(client, claim)
        elif outcome == GRANTED and self.tick < client.began + self.ttl:
            client.token = claim.token
            self.grants.append(Grant(client.name, claim.token, client.began, self.tick))
        elif outcome != OPEN:
            self.end(client, 0)

    def write_back(self, client: Client, claim: Claim) -> None:
        client.writes += 1
        token, asked = claim.write_back(self.chance.randrange(4))
        client.asked = set(asked)
        self.ask(client, "write_back", token, self.mutant)

    def end(self, client: Client, counter: int) -> None:
        """Release everywhere; nodes that lag behind the largest counter seen learn it."""
        client.asked = set(range(len(self.nodes)))
        self.ask(client, "release", counter if self.mutant.lifts else 0)
        client.claim = None


def simulate(seed: int, mutant: Mutant = FLAWLESS) -> Outcome:
    """Run one seed; the same seed gives the same outcome."""
    return World(seed, replace(mutant)).run()
