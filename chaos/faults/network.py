"""Faults of the network itself: clients and servers in namespaces of their own, and rules of iptables."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from tools.servers import Server

from chaos.faults.base import Fault
from chaos.stage import Player, Stage

__all__ = ["Cut", "Loss", "Partition", "Reset"]

Path = tuple[str, str]
"""From an address, into a namespace."""


class Network(Fault):
    """Everybody has a namespace of its own."""

    needs = ("namespaces",)

    def prepare(self, stage: Stage) -> None:
        stage.store.netns = True

    def heal(self, stage: Stage) -> None:
        stage.store.group.heal()


@contextmanager
def hindered(stage: Stage, paths: list[Path], *how: str) -> Iterator[None]:
    """What takes these paths suffers."""
    network = stage.store.group.site.network
    for source, namespace in paths:
        network.hinder(namespace, "-s", source, *how)
    try:
        yield
    finally:
        for source, namespace in paths:
            network.lift(namespace, "-s", source, *how)


def between(player: Player, servers: list[Server], way: str = "both") -> list[Path]:
    """The paths from a player to servers, back, or both."""
    to = [(player.host, server.netns) for server in servers]
    back = [(server.host, player.netns) for server in servers]
    return {"to": to, "back": back, "both": to + back}[way]


class Cut(Network):
    """No packet passes between a client and the servers, one way or both."""

    word = "cut"
    number = 9
    about = "a client and the servers cannot reach each other, one way or both, for longer than the ttl"
    at_once = 3

    def strike(self, stage: Stage, dice: random.Random) -> bool:
        with stage.borrow(dice) as player, stage.mark(player.name):
            paths = between(player, stage.store.servers, dice.choice(["to", "back", "both", "both"]))
            with hindered(stage, paths, "-j", "DROP"):
                stage.rest(stage.shape.ttl * dice.uniform(0.8, 2.0))
        stage.rest(stage.shape.ttl * dice.uniform(0.3, 0.8))
        return True


class Loss(Network):
    """Three packets of ten are lost."""

    word = "loss"
    number = 10
    about = "30% of the packets between a client and the servers are lost"
    at_once = 3

    def strike(self, stage: Stage, dice: random.Random) -> bool:
        with stage.borrow(dice) as player, stage.mark(player.name):
            how = ("-m", "statistic", "--mode", "random", "--probability", "0.3", "-j", "DROP")
            with hindered(stage, between(player, stage.store.servers), *how):
                stage.rest(stage.shape.ttl * dice.uniform(0.5, 1.5))
        stage.rest(stage.shape.ttl * dice.uniform(0.1, 0.4))
        return True


class Reset(Network):
    """Every packet of a client is answered with a reset."""

    word = "reset"
    number = 10
    about = "connections are reset by whoever is in between"
    at_once = 2

    def strike(self, stage: Stage, dice: random.Random) -> bool:
        with stage.borrow(dice) as player, stage.mark(player.name):
            paths = between(player, stage.store.servers, "to")
            with hindered(stage, paths, "-p", "tcp", "-j", "REJECT", "--reject-with", "tcp-reset"):
                stage.rest(dice.uniform(0.01, 0.3))
        stage.rest(stage.shape.ttl * dice.uniform(0.1, 0.4))
        return True


class Partition(Network):
    """The ensemble falls apart: one member alone, one way, in a ring, or with some of the clients."""

    word = "partition"
    number = 11
    about = "members of an ensemble cannot reach each other: a minority, one way, in a ring"

    def strike(self, stage: Stage, dice: random.Random) -> bool:
        servers = list(stage.store.servers)
        dice.shuffle(servers)
        few = servers[: (len(servers) - 1) // 2]
        many = servers[len(few) :]
        shape = dice.choice(["minority", "one way", "ring", "clients"])
        pairs = [(a, b) for a in few for b in many]
        if shape == "minority":
            pairs += [(b, a) for a, b in pairs]
        elif shape == "ring":  # each hears one neighbour less
            pairs = [*zip(servers, servers[1:] + servers[:1], strict=True)]
        paths = [(a.host, b.netns) for a, b in pairs]
        if shape == "clients":  # some clients reach the minority only
            paths += [(b.host, a.netns) for a, b in pairs]
            for player in stage.players[::2]:
                paths += between(player, many)
        with stage.mark(), hindered(stage, paths, "-j", "DROP"):
            stage.rest(stage.shape.ttl * dice.uniform(0.7, 2.0))
        stage.rest(stage.shape.ttl * dice.uniform(0.5, 1.0))
        return True
