"""Nodes that lost their memory: noticed, left out, and taught before they vote again.

What is to be done is decided by `fencelock.core.quorum.readmission`; this asks the nodes how they stand, and
does it. Nobody is in charge: whichever client comes by does what is due, and the scripts see
to it that doing it twice is as doing it once.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Protocol

from fencelock.backends.redlock.commands import GREET, JOIN, pack
from fencelock.backends.redlock.keys import MEMORY
from fencelock.backends.redlock.rounds import Collecting, Round
from fencelock.core.quorum import BLANK, JOINING, MEMBER, RIPE, View, lesson, quorum, readmission

if TYPE_CHECKING:
    from fencelock.runtime.base import Runtime

__all__ = ["Line", "Memories"]

SETTLE = 0.3
"""Seconds for which a blank node among new ones is let be: somebody else may be founding them right now."""
GROWN = 2000
"""Milliseconds after which nodes are not new any more."""
LOOK_EVERY = 1.0
SOON = 0.02
VIEWS: dict[bytes, View] = {b"member": MEMBER, b"joining": JOINING, b"ripe": RIPE, b"blank": BLANK}
JOINS = {"found": b"found", "leave out": b"leave out", "teach": b"teach", "begin anew": b"anew"}


class Line(Protocol):
    """A way to ask the nodes: a set of blocking connections, or the connections of all tasks."""

    async def ask(
        self, asked: Round, deadline: float, *, everyone: bool = False, only: Collection[int] | None = None
    ) -> None: ...

    def tell(self, asked: Round, only: Collection[int] | None = None) -> None: ...


class Memories:
    """How the nodes stand, as this client knows."""

    def __init__(self, runtime: Runtime, nodes: int, max_ttl: float) -> None:
        self._runtime = runtime
        self._nodes = nodes
        self._max_ttl = b"%d" % (max_ttl * 1000)
        self._blank_since: dict[int, float] = {}
        self._missing = False
        self._next_look = 0.0

    def alarm(self) -> None:
        """A node is left out."""
        self._missing = True

    def is_due(self) -> bool:
        """Whether a node is left out and it is time to look what became of it."""
        return self._missing and self._runtime.now() >= self._next_look

    async def tend(self, line: Line, deadline: float) -> bool:
        """Do what is to be done about nodes that do not vote; say whether a quorum votes now."""
        deadline = min(deadline, self._runtime.now() + 2 * SETTLE)
        while True:
            views = await self._look(line, deadline)
            todo, which = readmission(views)
            if todo == "leave out":
                which = self._settled(which)
            if todo != "wait" and which:
                await self._join(line, todo, which, views, deadline)
                views = await self._look(line, deadline)
            enough = views.count(MEMBER) >= quorum(self._nodes)
            hurry = not enough and BLANK in views and self._runtime.now() + SOON < deadline
            if not hurry:
                return enough
            await self._runtime.sleep(SOON)

    async def _look(self, line: Line, deadline: float) -> list[View | None]:
        self._next_look = self._runtime.now() + LOOK_EVERY
        asked = Collecting(self._nodes, GREET.call([MEMORY], b"0", self._max_ttl), GREET)
        await line.ask(asked, deadline)
        views = [_view(answer) for answer in asked.answers]
        self._missing = any(view not in {MEMBER, None} for view in views)
        grown = any(
            view == MEMBER and answer[3] > GROWN for view, answer in zip(views, asked.answers, strict=True)
        )
        since = -math.inf if grown else self._runtime.now()
        self._blank_since = {
            node: min(since, self._blank_since.get(node, since))
            for node, view in enumerate(views)
            if view == BLANK
        }
        return views

    def _settled(self, which: tuple[int, ...]) -> tuple[int, ...]:
        now = self._runtime.now()
        return tuple(node for node in which if now - self._blank_since[node] >= SETTLE)

    async def _join(
        self, line: Line, todo: str, which: tuple[int, ...], views: list[View | None], deadline: float
    ) -> None:
        words: list[bytes] = []
        if todo in {"teach", "begin anew"}:
            teaching = [node for node, view in enumerate(views) if view == MEMBER or todo == "begin anew"]
            known = await self._learn(line, teaching, deadline)
            if known is None:
                return  # somebody who should have taught did not answer
            words = [text for pair in known.items() for text in (b"%d" % pair[0], b"%d" % pair[1])]
        call = JOIN.call([MEMORY], JOINS[todo], self._max_ttl, *words)
        await line.ask(Collecting(self._nodes, call, JOIN), deadline, only=which)

    async def _learn(self, line: Line, teaching: list[int], deadline: float) -> dict[int, int] | None:
        asked = Collecting(self._nodes, pack("HGETALL", MEMORY), None)
        asked.open = len(teaching)
        await line.ask(asked, deadline, only=teaching)
        memories = [_counters(asked.answers[node]) for node in teaching]
        told = [memory for memory in memories if memory is not None]
        return lesson(told) if len(told) == len(teaching) else None


def _view(answer: Any) -> View | None:
    return VIEWS.get(answer[0]) if isinstance(answer, list) else None


def _counters(answer: Any) -> dict[int, int] | None:
    if not isinstance(answer, list):
        return None
    pairs = zip(answer[::2], answer[1::2], strict=True)
    return {int(bucket): int(counter) for bucket, counter in pairs if bucket.isdigit()}
