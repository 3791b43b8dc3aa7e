"""Faults of the servers: killed, stopped, failed over, refused a disk, asked by an operator to forget."""

from __future__ import annotations

import random
from typing import Any

from tools.servers.redis import SERVICE

from chaos.backends import patiently
from chaos.backends.redis import is_primary
from chaos.disk import Disks
from chaos.faults.base import Fault
from chaos.stage import Stage

__all__ = ["Delete", "Failover", "Full", "Leader", "Pooler", "Restart"]

PATIENCE = 30.0


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
            stage.delete()
        stage.rest(stage.shape.ttl * dice.uniform(0.3, 0.8))
        return True


class Full(Fault):
    """The store refuses to write."""

    word = "full"
    number = 20
    needs = ("fuse",)
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
        stage.store.disks = Disks(stage.store.folder)

    def heal(self, stage: Stage) -> None:
        stage.store.accept()


class Leader(Fault):
    """The leader of an ensemble is killed, or stopped for a while."""

    word = "leader"
    number = 12
    about = "the leader of an ensemble is killed, or stands still until another leads"

    def strike(self, stage: Stage, dice: random.Random) -> bool:
        leader = stage.store.leader()
        if leader is None:
            stage.rest(0.2)
            return False
        with stage.mark():
            if dice.random() < 0.5:
                leader.kill()
                stage.rest(dice.uniform(0.0, 2.0))
                leader.restart(wait=False)
            else:
                leader.pause()
                stage.rest(dice.uniform(1.0, 3.0))
                leader.resume()
            stage.store.group.wait()
        stage.rest(stage.shape.ttl * dice.uniform(0.2, 0.5))
        return True


class Failover(Fault):
    """A replica that lags behind takes over from a primary that died."""

    word = "failover"
    number = 13
    about = "the primary dies, and a replica that lags behind takes over"
    line = False

    def prepare(self, stage: Stage) -> None:
        stage.store.kind_now = "sentinel"

    def strike(self, stage: Stage, dice: random.Random) -> bool:
        self._hurry(stage)
        servers: list[Any] = [*stage.store.servers]
        primary = next((one for one in servers if is_primary(one)), None)
        if primary is None:
            stage.rest(0.2)
            return False
        others = [one for one in servers if one is not primary]
        with stage.mark():
            for one in others:
                one.pause()
            stage.rest(dice.uniform(0.05, 0.4))  # grants that no replica hears of
            primary.kill()
            for one in others:
                one.resume()
            promoted = patiently(lambda: next(filter(is_primary, others), None), PATIENCE)
            primary.restart()
            if promoted:  # a Sentinel would tell it so after some 8 seconds
                primary.ask("REPLICAOF", promoted.host, promoted.port)
            patiently(lambda: sum(map(is_primary, servers)) == 1, PATIENCE)
        stage.rest(dice.uniform(0.5, 1.0))
        return bool(promoted)

    def _hurry(self, stage: Stage) -> None:
        """Take a primary for dead sooner than usual."""
        for sentinel in stage.store.group.sentinels:
            sentinel.ask("SENTINEL", "SET", SERVICE, "down-after-milliseconds", 400, "failover-timeout", 2000)


class Pooler(Fault):
    """Everybody comes through a pooler in transaction mode, which is killed and started again."""

    word = "pooler"
    number = 18
    about = "clients come through pgbouncer in transaction mode, which is killed and started again"

    def prepare(self, stage: Stage) -> None:
        stage.store.kind_now = "pgbouncer"

    def strike(self, stage: Stage, dice: random.Random) -> bool:
        pooler = stage.store.group["pgbouncer-transaction"]
        with stage.mark():
            pooler.kill()
            stage.rest(dice.uniform(0.0, 0.2))
            pooler.restart()
        stage.rest(stage.shape.ttl * dice.uniform(0.5, 1.5))
        return True
