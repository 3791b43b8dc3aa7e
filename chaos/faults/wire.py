"""Faults between a client and its server that choose what they hit: a proxy in front of each client."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from typing import Literal

from chaos.backends import patiently
from chaos.faults.base import Fault
from chaos.stage import Stage
from fencelock.testing import Fault as Strike

__all__ = ["Renewals", "Reply", "Swallow"]

SOON = 2.0


class Wire(Fault):
    """Every client has proxies of its own."""

    def __init__(self) -> None:
        self.alone = threading.Lock()

    def prepare(self, stage: Stage) -> None:
        stage.store.proxies = True


class Reply(Wire):
    """The reply to an acquire is on its way, and the client is stopped."""

    word = "reply"
    number = 2
    about = "a client is stopped while the reply to its acquire is on its way"
    at_once = 3

    def strike(self, stage: Stage, dice: random.Random) -> bool:
        with stage.borrow(dice) as player, stage.mark(player.name):
            holds = [proxy.hold("replies", match=stage.is_acquire) for proxy in player.proxies.values()]
            try:
                stopped = struck(holds) and stage.stop(player)
                if stopped:
                    stage.rest(stage.store.gone(stage.shape.ttl) * dice.uniform(0.9, 1.3))
            finally:
                for hold in holds:
                    hold.cancel()
            if stopped:
                stage.go_on(player)
        stage.rest(stage.shape.ttl * dice.uniform(0.1, 0.5))
        return stopped


class Swallow(Wire):
    """The request arrives, its reply does not."""

    word = "swallow"
    number = 4
    about = "a request is applied and its reply is lost"
    at_once = 2

    def strike(self, stage: Stage, dice: random.Random) -> bool:
        with stage.borrow(dice) as player, stage.mark(player.name):
            then: Literal["hang", "reset"] = "hang" if dice.random() < 0.1 else "reset"
            match = stage.is_acquire if dice.random() < 0.7 else None
            faults = [proxy.swallow(1, then=then, match=match) for proxy in player.proxies.values()]
            hit = struck(faults)
            if then == "hang":
                stage.rest(stage.shape.ttl * dice.uniform(0.2, 1.2))
            for fault in faults:
                fault.cancel()
        stage.rest(dice.uniform(0.02, 0.1))
        return hit


def struck(faults: Sequence[Strike], seconds: float = SOON) -> bool:
    """Wait until one of these has struck; return whether it has."""
    return bool(patiently(lambda: any(fault.struck for fault in faults), seconds, 0.002))


class Renewals(Wire):
    """Renewals do not arrive; everything else does."""

    word = "renewals"
    number = 15
    about = "renewals fail, or arrive after the lease has expired"
    at_once = 3

    def strike(self, stage: Stage, dice: random.Random) -> bool:
        if not stage.store.servers:
            return self.block(stage, dice)
        with stage.borrow(dice) as player, stage.mark(player.name):
            late = dice.random() < 0.3
            faults = [
                proxy.delay(1.5 * stage.shape.ttl, "requests", match=stage.is_renewal)
                if late
                else proxy.fail(match=stage.is_renewal)
                for proxy in player.proxies.values()
            ]
            stage.rest(stage.shape.ttl * dice.uniform(1.2, 2.0))
            for fault in faults:
                fault.cancel()
        return any(fault.struck for fault in faults)

    def prepare(self, stage: Stage) -> None:
        super().prepare(stage)
        stage.long = 0.1

    def block(self, stage: Stage, dice: random.Random) -> bool:
        """Where nothing lies in between, somebody else has the store locked."""
        with self.alone, stage.mark():
            with stage.store.blocked():
                stage.rest(stage.shape.ttl * dice.uniform(1.1, 1.5))
            stage.rest(stage.shape.ttl * dice.uniform(0.4, 0.8))
        return True
