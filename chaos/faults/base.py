"""The contract of a fault: one small class, one plain word.

`prepare` says what it needs before anything is started. Then `strike` is called again and again, by
`at_once` threads at a time, each with seeded dice: it does harm, undoes it, and returns whether it really
struck. What it cannot know itself is counted afterwards, from the history (`count`). `heal` undoes
whatever may be left."""

from __future__ import annotations

import copy
import random
from typing import ClassVar

from chaos.stage import Stage
from fencelock.testing import History

__all__ = ["Fault", "outlast"]


TTL = 5.0
"""At least: a server must be back while leases that it has forgotten still claim to be held."""
LONG = 0.02
"""The part of the sections that go on meanwhile."""


def outlast(stage: Stage) -> None:
    """Let leases outlive the time for which there is no server."""
    stage.shape, stage.long = copy.copy(stage.shape), LONG
    stage.shape.ttl = max(TTL, stage.shape.ttl)


class Fault:
    """Something that goes wrong."""

    word: ClassVar[str]
    """What it is called in `make chaos FAULT=`."""
    number: ClassVar[int]
    """Which of the faults of the specification it is."""
    about: ClassVar[str]
    """What goes wrong, for people."""
    needs: ClassVar[tuple[str, ...]] = ()
    """What the machine must be able to do: `namespaces`, `compiler`, `fuse`."""
    at_once: ClassVar[int] = 1
    """How many strikes there are at a time."""
    teeth: ClassVar[bool] = False
    """Whether the plain resource must lose updates: else the fault was not real."""
    line: ClassVar[bool] = True
    """Whether waiters keep their places through it, so that their order can be judged."""
    modes: ClassVar[tuple[str, ...]] = ("exclusive", "exclusive", "shared", "permit")
    """What the clients ask for, each as often as it stands here."""

    def prepare(self, stage: Stage) -> None:
        """Ask for what is needed; nothing runs yet."""

    def strike(self, stage: Stage, dice: random.Random) -> bool:
        """Do harm once, and undo it; return whether it struck."""
        raise NotImplementedError

    def heal(self, stage: Stage) -> None:
        """Undo whatever is left."""

    def count(self, stage: Stage, history: History) -> int:
        """How often it has struck."""
        return stage.struck
