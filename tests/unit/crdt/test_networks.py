"""Networks that lose, double, reorder and part: once they heal, all replicas have the same state."""

from __future__ import annotations

import random
from typing import Any

import pytest

from .makers import KINDS, REPLICAS, clock_of, step

NETWORKS = 1000
SHARES = 4


class Network:
    """Replicas of one value, and the messages between them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.names = REPLICAS[: self.rng.randint(3, 7)]
        self.kind = KINDS[seed % len(KINDS)]
        self.clocks = {name: clock_of(self.rng, name) for name in self.names}
        self.states: dict[str, Any] = {name: self.kind() for name in self.names}
        self.on_the_way: list[tuple[str, str, bytes]] = []
        self.side = dict.fromkeys(self.names, 0)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.rng.choice([self.change, self.change, self.deliver, self.deliver, self.part, self.gossip])()

    def change(self) -> None:
        name = self.rng.choice(self.names)
        self.states[name], delta = step(self.rng, self.states[name], name, self.clocks[name])
        self.send(name, delta)

    def gossip(self) -> None:
        name = self.rng.choice(self.names)
        self.send(name, self.states[name])

    def send(self, source: str, value: Any) -> None:
        for target in self.names:
            if target != source and self.rng.random() > 0.3:  # lost
                copies = 2 if self.rng.random() < 0.2 else 1
                self.on_the_way += [(source, target, value.to_bytes())] * copies

    def deliver(self) -> None:
        if not self.on_the_way:
            return
        place = self.rng.randrange(len(self.on_the_way))  # out of order
        source, target, message = self.on_the_way.pop(place)
        if self.side[source] == self.side[target]:
            self.states[target] = self.states[target].merge(self.kind.from_bytes(message))

    def part(self) -> None:
        self.side = {name: self.rng.randint(0, 1) for name in self.names}

    def heal(self) -> None:
        """Everybody hears everybody's state once, in some order."""
        pairs = [(one, two) for one in self.names for two in self.names if one != two]
        self.rng.shuffle(pairs)
        told = {name: state.to_bytes() for name, state in self.states.items()}
        for one, two in pairs:
            self.states[two] = self.states[two].merge(self.kind.from_bytes(told[one]))


@pytest.mark.parametrize("share", range(SHARES))
def test_networks_converge(share: int) -> None:
    apart = 0
    for seed in range(share, NETWORKS, SHARES):
        network = Network(seed)
        network.run(40)
        apart += len({state.to_bytes() for state in network.states.values()}) > 1
        network.heal()
        states = [state.to_bytes() for state in network.states.values()]
        assert len(set(states)) == 1, f"seed {seed}: {network.kind.__name__}"
    assert apart > NETWORKS // SHARES // 2, "hardly any network was apart before it healed: no test"
