"""Rounds: one question to all nodes, and what their answers come to.

A wire sends `call` to the nodes and hands each answer to `take`, or the reason why there is none to
`miss`, until the round is `over`. Answers may come after that, on the way to a later question: they
are kept for people to read, and change nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import hiredis

from fencelock.backends.redlock.commands import ACQUIRE, RELEASE, RENEW, WRITE_BACK, Script
from fencelock.backends.redlock.failures import BACKEND, Silence, TooFewNodes, late, left_out, said
from fencelock.backends.redlock.keys import Place
from fencelock.core.quorum import Claim, Tally, quorum

__all__ = ["Asking", "Collecting", "Releasing", "Renewing", "Round", "Undoing", "Writing"]

LEFT_OUT = b"left out"


class Round:
    """One question. This one is over when all who were asked have answered, or will not."""

    __slots__ = (
        "_future",
        "answers",
        "call",
        "deadline",
        "open",
        "over",
        "owed_until",
        "script",
        "sent",
        "undo",
    )

    def __init__(self, nodes: int, call: bytes, script: Script | None) -> None:
        self.call = call
        self.script = script
        self.answers: list[Any] = [None] * nodes
        self.open = nodes
        self.over = False
        self.sent = 0.0
        self.deadline = 0.0
        self.undo = b""
        """What takes it back, for connections that are closed in the middle of it."""
        self.owed_until = 0.0
        """A node that cannot be reached is to be told by then, should it come back."""
        self._future: asyncio.Future[None] | None = None

    def take(self, node: int, answer: Any) -> None:
        """A node has answered. Its first word counts."""
        first = self.answers[node] is None
        self.answers[node] = answer
        if first and not self.over:
            self.open -= 1
            if self.count(node, answer):
                self.end()

    def miss(self, node: int, silence: Silence) -> None:
        """A node did not answer, or was not asked."""
        if self.answers[node] is None:
            self.take(node, silence)

    def count(self, node: int, answer: Any) -> bool:
        """Count a vote; say whether the round is over."""
        return self.open <= 0

    def end(self) -> None:
        """Let whoever asked go on."""
        self.over = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def expire(self) -> None:
        """The time is over: whoever has not answered has not."""
        for node, answer in enumerate(self.answers):
            if answer is None:
                self.take(node, late())
        if not self.over:
            self.end()

    def future(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """Return what is done when the round is over."""
        self._future = loop.create_future()
        return self._future

    @property
    def heard(self) -> int:
        """How many nodes gave an answer that counts."""
        return sum(not silent(answer) for answer in self.answers)

    @property
    def is_left_out(self) -> bool:
        """Whether a node was left out."""
        return LEFT_OUT in self.answers

    def failure(self, labels: Sequence[str]) -> TooFewNodes:
        """Return the error that tells what each node did."""
        silences = [reason(label, answer) for label, answer in zip(labels, self.answers, strict=True)]
        lasting = sum(silence is not None and silence.lasting for silence in silences)
        hope = len(labels) - lasting >= quorum(len(labels))
        return TooFewNodes(backend=BACKEND, votes=self.votes(labels), transient=hope)

    def votes(self, labels: Sequence[str]) -> Mapping[str, str]:
        """Return what each node did, in words."""
        return {label: self.told(label, answer) for label, answer in zip(labels, self.answers, strict=True)}

    def told(self, label: str, answer: Any) -> str:
        silence = reason(label, answer)
        return silence.why if silence is not None else self.word(answer)

    def word(self, answer: Any) -> str:
        """Return a vote in a word or two."""
        return "answered"


def silent(answer: Any) -> bool:
    """Whether an answer is no vote."""
    return answer is None or answer == LEFT_OUT or isinstance(answer, Silence | hiredis.ReplyError)


def reason(label: str, answer: Any) -> Silence | None:
    """Return why an answer is no vote; `None` if it is one."""
    if isinstance(answer, Silence):
        return answer
    if answer is None:
        return late()
    if answer == LEFT_OUT:
        return left_out()
    return said(label, answer) if isinstance(answer, hiredis.ReplyError) else None


class Undoing(Round):
    """Taking back what a request may have left.

    Nobody waits for the answers, not even for one that asks for the script: so that goes along.
    """

    __slots__ = ()

    def __init__(self, nodes: int, call: bytes, owed_until: float = 0.0) -> None:
        super().__init__(nodes, RELEASE.in_full(call), None)
        self.over = True
        self.owed_until = owed_until


class Collecting(Round):
    """All answers are wanted."""

    __slots__ = ()

    def word(self, answer: Any) -> str:
        """As of `look.lua`, with one lock."""
        held = isinstance(answer, list) and len(answer) == 2 and answer[1]
        return f"held by {answer[1][0][:8].decode('ascii', 'replace')}" if held else "free"


class Asking(Round):
    """Step 1."""

    __slots__ = ("alarm", "claim", "place")

    def __init__(
        self, claim: Claim, call: bytes, undo: bytes, place: Place, alarm: Callable[[], None]
    ) -> None:
        super().__init__(claim.nodes, call, ACQUIRE)
        self.undo = undo
        self.claim = claim
        self.place = place
        self.alarm = alarm
        """Called for a node that is left out."""

    def take(self, node: int, answer: Any) -> None:
        # Some things are worth knowing also when the votes are decided.
        if answer.__class__ is int:
            self.place.highest = max(self.place.highest, answer)
        elif answer.__class__ is bytes:
            self.alarm()
        super().take(node, answer)

    def count(self, node: int, answer: Any) -> bool:
        if answer.__class__ is int:
            return self.claim.grant(node, answer)
        return self.claim.refuse() if answer.__class__ is list else self.claim.miss()

    def word(self, answer: Any) -> str:
        return "granted" if answer.__class__ is int else "taken"


class Writing(Round):
    """Step 3."""

    __slots__ = ("claim",)

    def __init__(self, claim: Claim, call: bytes, undo: bytes, asked: Sequence[int]) -> None:
        super().__init__(claim.nodes, call, WRITE_BACK)
        self.undo = undo
        self.claim = claim
        for node in range(claim.nodes):
            if node not in asked:
                self.answers[node] = claim.token

    def count(self, node: int, answer: Any) -> bool:
        if answer.__class__ is not int:
            return self.claim.miss()
        return self.claim.agree(node) if answer > 0 else self.claim.disagree(-answer)

    def word(self, answer: Any) -> str:
        return "agreed" if answer > 0 else "disagreed"


class Releasing(Round):
    """Giving back: over when a quorum had it, or cannot have had it."""

    __slots__ = ("awaited", "tally")

    def __init__(self, nodes: int, call: bytes, owed_until: float) -> None:
        super().__init__(nodes, call, RELEASE)
        self.owed_until = owed_until
        self.tally = Tally(nodes)
        self.awaited = False
        """Whether somebody listens for it."""

    def count(self, node: int, answer: Any) -> bool:
        tally = self.tally
        if answer.__class__ is not int:
            tally.silent += 1
        elif answer:
            tally.yes += 1
            self.awaited = self.awaited or answer > 1
        else:
            tally.no += 1
        return tally.decided

    def word(self, answer: Any) -> str:
        return "released" if answer else "not held"


class Renewing(Round):
    """Many leases at once: over when a quorum has each of them, or all have answered."""

    __slots__ = ("tallies",)

    def __init__(self, nodes: int, call: bytes, leases: int) -> None:
        super().__init__(nodes, call, RENEW)
        self.tallies = [Tally(nodes) for _ in range(leases)]

    def count(self, node: int, answer: Any) -> bool:
        held = answer if answer.__class__ is list else None
        for place, tally in enumerate(self.tallies):
            if held is None:
                tally.silent += 1
            elif held[place]:
                tally.yes += 1
            else:
                tally.no += 1
        return all(tally.decided for tally in self.tallies)

    def word(self, answer: Any) -> str:
        return "held" if all(answer) else "not held" if not any(answer) else "held in part"
