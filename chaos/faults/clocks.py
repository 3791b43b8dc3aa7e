"""Wall clocks that jump: the servers', and the clients'."""

from __future__ import annotations

import random

from tools.servers.clock import Clock as Shim

from chaos.faults.base import Fault
from chaos.stage import Stage

__all__ = ["ClientClock", "Clock"]


class Clock(Fault):
    """The servers' clocks are set, and set back, and strobe."""

    word = "clock"
    number = 5
    about = "the clock of a server jumps by 60 s, forward and back, and strobes"
    needs = ("compiler",)
    teeth = True
    line = False
    step = 60

    def prepare(self, stage: Stage) -> None:
        self.shim = Shim(stage.store.folder)
        self.offset = 0
        stage.store.env |= self.shim.env

    def strike(self, stage: Stage, dice: random.Random) -> bool:
        with stage.mark():
            if dice.random() < 0.2:
                for _ in range(20):
                    self.jump(stage, dice.choice([-self.step, 0, self.step]))
                    stage.rest(0.01)
            else:
                self.jump(stage, dice.choice([-self.step, self.step]))
                stage.rest(dice.uniform(0.05, 0.3))
            self.jump(stage, 0)
        stage.rest(dice.uniform(0.1, 0.3))
        return True

    def jump(self, stage: Stage, offset: int) -> None:
        """Set the clock. Leases are ended by the jump alone: the time until the next one excuses nothing."""
        if offset != self.offset:
            self.offset = offset
            with stage.cause():
                self.shim.set(offset)

    def heal(self, stage: Stage) -> None:
        self.jump(stage, 0)


class ClientClock(Fault):
    """The clients' clocks are set."""

    word = "clientclock"
    number = 6
    about = "the clock of the clients jumps by an hour: no effect at all"
    needs = ("compiler",)

    def prepare(self, stage: Stage) -> None:
        self.shim = Shim(stage.store.folder)
        stage.env |= self.shim.env

    def strike(self, stage: Stage, dice: random.Random) -> bool:
        with stage.mark():
            self.shim.set(dice.choice([-3600, 3600]))
            stage.rest(dice.uniform(0.05, 0.3))
            self.shim.set(0)
        stage.rest(dice.uniform(0.05, 0.2))
        return True

    def heal(self, stage: Stage) -> None:
        self.shim.set(0)

    def count(self, stage: Stage, history: object) -> int:
        """The jumps that the least attentive client has seen."""
        return min(stage.done[f"jump {player.name}"] for player in stage.players)
