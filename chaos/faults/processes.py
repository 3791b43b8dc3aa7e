"""Faults of client processes: they are stopped, killed, forked, cancelled, and their writes come late."""

from __future__ import annotations

import contextlib
import random
from bisect import bisect_right
from collections import defaultdict

from chaos.backends import patiently
from chaos.faults.base import Fault
from chaos.stage import Stage
from fencelock.testing import History, Operation, kill

__all__ = ["Cancel", "Delay", "Desert", "Fork", "Kill", "Pause", "Session", "pauses"]

BORN = 10.0
"""Seconds within which a process that was started must work, or it is left alone."""


class Pause(Fault):
    """SIGSTOP inside the section, for longer than the ttl."""

    word = "pause"
    number = 1
    about = "a client is stopped for longer than its ttl inside the section"
    at_once = 3
    teeth = True
    length = (1.1, 1.8)
    """As a part of the time after which a silent client has lost its locks."""

    def strike(self, stage: Stage, dice: random.Random) -> bool:
        with stage.borrow(dice) as player, stage.mark(player.name):
            if not stage.stop(player):
                return False
            stage.rest(stage.store.gone(stage.shape.ttl) * dice.uniform(*self.length))
            stage.go_on(player)
        stage.rest(stage.shape.ttl * dice.uniform(0.1, 0.5))
        return True

    def count(self, stage: Stage, history: History) -> int:
        """Those that hit a client which held something."""
        return pauses(history, held=True)


class Session(Pause):
    """SIGSTOP of a waiter, for longer than its session lives."""

    word = "session"
    number = 14
    about = "a waiter is stopped for longer than its session lives"
    teeth = False
    length = (0.5, 1.5)

    def count(self, stage: Stage, history: History) -> int:
        """Those that hit a client which waited."""
        return pauses(history, held=False)


class Kill(Fault):
    """SIGKILL of a client, whatever it does at the moment."""

    word = "kill"
    number = 19
    about = "a client that holds and waits is killed, in queues of readers, writers and permits"
    at_once = 2

    def strike(self, stage: Stage, dice: random.Random) -> bool:
        with stage.borrow(dice) as player, stage.mark(player.name):
            if not patiently(lambda: stage.works(player), BORN):
                return False
            stage.rest(stage.shape.ttl * dice.uniform(0.0, 0.3))  # until it holds and waits
            stage.history.crashed(player.name)
            kill(player.pid)
            stage.history.crashed(player.name)  # once more: what it did before the signal came ends here too
            stage.spawn(player)
        stage.rest(stage.shape.ttl * dice.uniform(0.2, 0.8))
        return True

    def count(self, stage: Stage, history: History) -> int:
        """Those that hit a client which held something or waited."""
        return len({one.client for one in history.operations() if one.crashed and is_open(one)})


class Stunt(Fault):
    """Something that the client does to itself when it is told to."""

    at_once = 2
    most = 4
    """So many of them may be on their way in one process."""

    def strike(self, stage: Stage, dice: random.Random) -> bool:
        with stage.borrow(dice) as player, stage.mark(player.name):
            for _ in range(dice.randint(1, self.most)):
                stage.say(player, self.word, seconds=stage.shape.ttl * dice.uniform(0.3, 1.5))
            stage.rest(stage.shape.ttl * dice.uniform(0.3, 0.6))
        return False

    def count(self, stage: Stage, history: History) -> int:
        """Those that the clients say they have done."""
        return stage.done[self.word]


class Delay(Stunt):
    """A write that is still on its way when its lock has long been another's."""

    word = "delay"
    number = 3
    about = "a write arrives after its lock has expired or was released"
    teeth = True


class Fork(Stunt):
    """fork() inside a section."""

    word = "fork"
    number = 17
    about = "a client forks while it holds, and the child uses the client and tries to release"
    most = 1


class Desert(Stunt):
    """A lane that drops its lease without a word."""

    word = "desert"
    number = 17
    about = "a thread or task is gone and its lease is garbage"


class Cancel(Stunt):
    """A task that is cancelled at whatever await it stands."""

    word = "cancel"
    number = 17
    about = "a task is cancelled at any await"
    most = 6


def is_open(operation: Operation) -> bool:
    """Whether it still waits for its lock, or holds it."""
    return operation.outcome == "pending" or (operation.outcome == "granted" and operation.release is None)


def pauses(history: History, *, held: bool) -> int:
    """Count the times at which a client was stopped while it held something, or while it waited."""
    spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for operation in history.operations():
        if held and operation.outcome == "granted" and operation.returned is not None:
            end = operation.release.at if operation.release else float("inf")
            spans[operation.client].append((operation.returned.at, end))
        elif not held and operation.place is not None:
            end = operation.returned.at if operation.returned else float("inf")
            spans[operation.client].append((operation.place.at, end))
    struck = 0
    for client, times in spans.items():
        times.sort()
        starts = [start for start, _ in times]
        for event in history:
            if event.kind == "paused" and event.client == client:
                with contextlib.suppress(ValueError):
                    struck += max(end for _, end in times[: bisect_right(starts, event.at)]) > event.at
    return struck
