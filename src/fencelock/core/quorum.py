"""Locks by majority: votes, tokens and nodes that lost their memory. Nothing here does I/O.

N independent nodes vote, and Q = N // 2 + 1 of them decide: any two quorums have a node in common.
Each node keeps, for ever, a counter C and its *writer*, the request that moved it last. A request
goes this way (`Claim` follows it):

1. On every node: if the lock is free, set owner and ttl, `C += 1`, `writer = me`, and answer C.
2. With Q grants, `t = max(C)` over them.
3. Write t back. A node agrees iff it holds the lock for me and `C < t` (then `C = t`, `writer = me`), or
   `C == t` and `writer == me` already: those that answered t in step 1 need not be asked. With Q nodes
   in agreement, and the time not over, t is the token. If Q cannot agree any more, since others moved
   their counters meanwhile, a larger t is written back: that is the same step again.

Tokens are unique: C only grows, so a node has each value of C for one writer only, and two requests
with one token would need a quorum each. They rise: when a grant is complete Q nodes have `C >= t`, and a
later request is granted by at least one of these, which answers more than t. No clock is in either
argument. Both need nodes that remember.

A node that lost its memory is left out: it grants nothing until it was *readmitted* (see `readmission`).
That takes two things. First, time: whatever counted on its votes must be over, and no claim is ever
younger than the longest ttl. Second, a lesson: of a quorum that voted for an old token N - Q + 1
remembering nodes include at least one, so the largest counters of so many are what it must know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

__all__ = [
    "BLANK",
    "BUSY",
    "GRANTED",
    "JOINING",
    "MEMBER",
    "OPEN",
    "RIPE",
    "SILENT",
    "WRITE",
    "Claim",
    "Tally",
    "drift",
    "kept",
    "lesson",
    "quorum",
    "readmission",
    "teachers",
]

Outcome = Literal["open", "granted", "write", "busy", "silent"]

OPEN: Outcome = "open"
"""Answers are still missing that may decide."""
GRANTED: Outcome = "granted"
WRITE: Outcome = "write"
"""A quorum has granted, but does not agree on the token yet: write it back."""
BUSY: Outcome = "busy"
"""A quorum has answered, and too many of them are taken."""
SILENT: Outcome = "silent"
"""Fewer nodes than a quorum have answered."""

View = Literal["member", "joining", "ripe", "blank"]

MEMBER: View = "member"
"""It votes."""
BLANK: View = "blank"
"""It knows nothing: new, or its memory is gone."""
JOINING: View = "joining"
"""It is left out until what may have counted on it is over."""
RIPE: View = "ripe"
"""It has been left out for long enough, and is to be taught what it forgot."""

DRIFT = 0.01
TICK = 0.002


def quorum(nodes: int) -> int:
    """Return how many of so many nodes are a majority."""
    return nodes // 2 + 1


def teachers(nodes: int) -> int:
    """Return how many nodes that remember know of every quorum there ever was."""
    return nodes - quorum(nodes) + 1


def drift(ttl: float) -> float:
    """Return how much a node's clock may run fast during a ttl: a hundredth, and a tick to round."""
    return ttl * DRIFT + TICK


def kept(ttl: float) -> float:
    """Return how long nodes keep a lock whose holder believes in it for `ttl` seconds."""
    return ttl + drift(ttl)


class Tally:
    """Votes for and against one thing."""

    __slots__ = ("no", "nodes", "quorum", "silent", "yes")

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.quorum = nodes // 2 + 1
        self.yes = self.no = self.silent = 0

    @property
    def won(self) -> bool:
        """A quorum is for it."""
        return self.yes >= self.quorum

    @property
    def lost(self) -> bool:
        """A quorum cannot be for it any more, even if those who said nothing are."""
        return self.no > self.nodes - self.quorum

    @property
    def heard(self) -> bool:
        """A quorum has answered, whatever it said."""
        return self.yes + self.no >= self.quorum

    @property
    def decided(self) -> bool:
        """Nothing that may still come changes the outcome, or nothing will come."""
        return (
            self.yes >= self.quorum
            or self.no > self.nodes - self.quorum
            or self.yes + self.no + self.silent >= self.nodes
        )


class Claim:
    """One request's way through the three steps. What takes a vote says whether the round is over."""

    __slots__ = (
        "_agreed",
        "_counters",
        "_missed",
        "_refused",
        "_writing",
        "highest",
        "nodes",
        "quorum",
        "token",
    )

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.quorum = nodes // 2 + 1
        self.token = 0
        self.highest = 0
        """The largest counter that any node told of."""
        self._counters: dict[int, int] = {}
        self._agreed: set[int] = set()  # nodes, not votes: one that is asked again must not count twice
        self._refused = 0
        self._missed = 0
        self._writing = False

    # Step 1: ask for the lock ---------------------------------------------------------------

    def grant(self, node: int, counter: int) -> bool:
        """A node is ours, and its counter was moved to this."""
        self.highest = max(self.highest, counter)
        if self._writing:
            return False  # it is too late for step 1, and being asked again
        self._counters[node] = counter
        return len(self._counters) >= self.quorum or self._all_in()

    def refuse(self) -> bool:
        """A node is somebody else's."""
        self._refused += 1
        return self._refused > self.nodes - self.quorum or self._all_in()

    def miss(self) -> bool:
        """A node did not answer, or is left out."""
        self._missed += 1
        return self._all_in()

    def _all_in(self) -> bool:
        ours = self._agreed if self._writing else self._counters
        return len(ours) + self._refused + self._missed >= self.nodes

    @property
    def outcome(self) -> Outcome:
        """What follows from the votes so far."""
        if self._writing:
            return self._written()
        granted = len(self._counters)
        if granted >= self.quorum:
            if [*self._counters.values()].count(self.highest) < self.quorum:
                return WRITE
            self.token = self.highest
            return GRANTED
        if self._refused > self.nodes - self.quorum:
            return BUSY
        if not self._all_in():
            return OPEN
        return BUSY if granted + self._refused >= self.quorum else SILENT

    # Step 3: write the token back -------------------------------------------------------------

    def write_back(self, more: int = 0) -> tuple[int, list[int]]:
        """Begin to write a token back; return it, and the nodes to ask: those that do not agree already.

        The first time it is the largest counter, and whoever answered that in step 1 agrees. Afterwards
        it is one that is larger still; `more` keeps two that do the same from meeting again.
        """
        self.token = self.highest + 1 + more if self._writing else self.highest
        known = {} if self._writing else self._counters
        self._agreed = {node for node, counter in known.items() if counter == self.token}
        self.highest = self.token
        self._refused = self._missed = 0
        self._writing = True
        return self.token, [node for node in range(self.nodes) if node not in self._agreed]

    def agree(self, node: int) -> bool:
        """A node has the token now, and us as its writer."""
        self._agreed.add(node)
        return len(self._agreed) >= self.quorum or self._all_in()

    def disagree(self, counter: int) -> bool:
        """A node has a counter that another moved, or it is not ours any more."""
        self.highest = max(self.highest, counter)
        return self.refuse()

    def _written(self) -> Outcome:
        if len(self._agreed) >= self.quorum:
            return GRANTED
        if self._refused <= self.nodes - self.quorum and not self._all_in():
            return OPEN
        return WRITE if len(self._agreed) + self._refused >= self.quorum else SILENT


# Nodes that lost their memory ------------------------------------------------------------------


def readmission(views: Sequence[View | None]) -> tuple[str, tuple[int, ...]]:
    """Return what to do about nodes that do not vote, and to which. `None` is a node that cannot be asked.

    `found`: all are blank, so nothing was ever granted, or all of it is forgotten: they begin together.
    `leave out`: these are blank while others are not, or cannot be asked: their time begins.
    `teach`: their time is over and enough nodes remember: teach them the largest counters.
    `begin anew`: a majority lost its memory, so nobody remembers everything. Their time is over, so
    nothing is held; they begin together, with whatever is known and the time of day.
    `wait`: nothing now.
    """
    nodes = len(views)
    blank, ripe = _which(views, BLANK), _which(views, RIPE)
    if len(blank) == nodes:
        return "found", blank
    if blank:
        return "leave out", blank
    members = views.count(MEMBER)
    if ripe and members >= teachers(nodes):
        return "teach", ripe
    if len(ripe) >= quorum(nodes):
        return "begin anew", ripe
    return "wait", ()


def _which(views: Sequence[View | None], view: View) -> tuple[int, ...]:
    return tuple(node for node, seen in enumerate(views) if seen == view)


def lesson(memories: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Return the largest counter of each bucket."""
    known: dict[int, int] = {}
    for memory in memories:
        for bucket, counter in memory.items():
            if counter > known.get(bucket, 0):
                known[bucket] = counter
    return known
