"""Faults of the servers: killed, stopped, failed over, refused a disk, asked by an operator to forget."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from tools.servers.redis import SERVICE

from chaos.backends import patiently
from chaos.backends.redis import is_primary
from chaos.disk import Disks
from chaos.faults.base import Fault, outlast
from chaos.stage import Cause, Stage
from fencelock.testing import boottime

__all__ = ["Delete", "Failover", "Full", "Leader", "Pooler", "Restart"]

PATIENCE = 30.0
HURRY = 400
"""Milliseconds after which a silent primary is taken for dead while one is: sooner than usual."""
CALM = 60_000
"""The same at any other time."""


class Restart(Fault):
    """kill -9 of a server, and an instant restart."""

    word = "restart"
    number = 7
    about = "a server is killed and started again at once, with what it keeps by its own settings"
    line = False

    def strike(self, stage: Stage, dice: random.Random) -> bool:
        server = dice.choice(stage.store.servers)
        with stage.mark(), stage.cause():
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
        with stage.mark(), stage.cause():
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
    """A replica that lags behind takes over from a primary that died.

    Sentinels are in a hurry only while they must find that out, or they would depose a primary that is merely
    slow. Should they do so all the same, the epoch shows it, and it is a cause like any other."""

    word = "failover"
    number = 13
    about = "the primary dies, and a replica that lags behind takes over"
    line = False

    def __init__(self) -> None:
        self.epoch = 0
        self.seen = 0.0

    def prepare(self, stage: Stage) -> None:
        stage.store.kind_now = "sentinel"
        outlast(stage)

    def strike(self, stage: Stage, dice: random.Random) -> bool:
        self._look(stage)
        servers: list[Any] = [*stage.store.servers]
        primary = self._named(stage, servers, len(stage.store.group.sentinels))
        if primary is None:
            stage.rest(0.2)
            return False
        others = [one for one in servers if one is not primary]
        with stage.mark():
            for one in others:
                one.pause()
            stage.rest(dice.uniform(0.05, 0.4))  # grants that no replica hears of
            self._patience(stage, HURRY)
            with stage.cause():
                primary.kill()
                for one in others:
                    one.resume()
                promoted = patiently(lambda: self._named(stage, others, 1), PATIENCE)
            with stage.cause():  # it comes back empty, and as a primary
                primary.restart()
                if promoted:
                    self._patience(stage, CALM)
                    patiently(lambda: self._settled(stage, servers), PATIENCE)
        self.epoch, self.seen = self._epoch(stage), boottime()
        stage.rest(dice.uniform(0.5, 1.0))
        return bool(promoted)

    def heal(self, stage: Stage) -> None:
        self._patience(stage, CALM)
        patiently(lambda: self._settled(stage, [*stage.store.servers]), PATIENCE)
        self._look(stage)

    def _settled(self, stage: Stage, servers: list[Any]) -> bool:
        """Whether all Sentinels name one primary, and it is the only one.

        Two Sentinels in a hurry may promote one replica each. Others that take themselves for the primary are
        told whom to follow: a Sentinel would do so after some 8 seconds."""
        primary = self._named(stage, servers, len(stage.store.group.sentinels))
        if primary is None or any("failover" in each["flags"] for each in self._told(stage)):
            return False
        rivals = [one for one in servers if one is not primary and is_primary(one)]
        for one in rivals:
            one.ask("REPLICAOF", primary.host, primary.port)
        return not rivals

    def _look(self, stage: Stage) -> None:
        """See whether there was a failover that no strike asked for."""
        epoch, now = self._epoch(stage), boottime()
        if epoch != self.epoch:
            stage.causes.append(Cause(self.seen, now))
        self.epoch, self.seen = epoch, now

    def _epoch(self, stage: Stage) -> int:
        """A number that rises with each failover."""
        return max(int(each["config-epoch"]) for each in self._told(stage))

    def _named(self, stage: Stage, servers: list[Any], sentinels: int) -> Any:
        """The primary that so many Sentinels name. One that they do not name they may leave alone again."""
        named = Counter(f"{each['ip']}:{each['port']}" for each in self._told(stage))
        return next((one for one in servers if named[one.address] >= sentinels and is_primary(one)), None)

    def _told(self, stage: Stage) -> list[dict[str, str]]:
        """What each Sentinel says of the primary."""
        replies = [sentinel.ask("SENTINEL", "MASTER", SERVICE) for sentinel in stage.store.group.sentinels]
        return [dict(zip(reply[::2], reply[1::2], strict=True)) for reply in replies]

    def _patience(self, stage: Stage, milliseconds: int) -> None:
        """Take a primary for dead after so long."""
        settings = ("down-after-milliseconds", milliseconds, "failover-timeout", 2000)
        for sentinel in stage.store.group.sentinels:
            sentinel.ask("SENTINEL", "SET", SERVICE, *settings)


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
