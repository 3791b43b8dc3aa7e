"""Faults of the servers: killed, wiped, refused a disk, asked by an operator to forget."""

from __future__ import annotations

import random

from chaos.faults.base import Fault
from chaos.stage import Stage

__all__ = ["Delete", "Full", "Restart"]


class Restart(Fault):
    """kill -9 of a server, and an instant restart."""

    word = "restart"
    number = 7
    about = "a server is killed and started again at once, with what it keeps by its own settings"
    line = False

    def strike(self, stage: Stage, dice: random.Random) -> bool:
        server = dice.choice(stage.store.servers)
        with stage.mark():
            server.kill()
            stage.rest(dice.choice([0.0, 0.1]))
            stage.store.restarted(server)
        stage.rest(stage.shape.ttl * dice.uniform(0.5, 1.0))
        return True


class Delete(Fault):
    """An operator deletes every record."""

    word = "delete"
    number = 16
    about = "an operator deletes the records of every lock, counters and parents included"
    line = False

    def strike(self, stage: Stage, dice: random.Random) -> bool:
        with stage.mark(), stage.breaking():
            stage.store.delete()
        stage.rest(stage.shape.ttl * dice.uniform(0.3, 0.8))
        return True


class Full(Fault):
    """The store refuses to write."""

    word = "full"
    number = 20
    needs = ("mounts",)
    about = "the disk is full, the memory is, or the server only reads: an error, never a grant"
    line = False

    def strike(self, stage: Stage, dice: random.Random) -> bool:
        with stage.mark():
            before = stage.tally.kinds["failed"]
            stage.store.refuse()
            try:
                stage.rest(stage.shape.ttl * dice.uniform(0.2, 1.5))
            finally:
                stage.store.accept()
        stage.rest(stage.shape.ttl * dice.uniform(0.8, 1.2))
        return stage.tally.kinds["failed"] > before

    def prepare(self, stage: Stage) -> None:
        stage.store.small = True

    def heal(self, stage: Stage) -> None:
        stage.store.accept()
