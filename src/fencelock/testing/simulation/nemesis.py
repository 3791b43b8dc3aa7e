"""The nemesis: makes the faults of a plan happen, and in the end takes them all back."""

from __future__ import annotations

from collections.abc import Callable

from fencelock.runtime.simulated import World
from fencelock.testing.history import History
from fencelock.testing.simulation.actor import Actor
from fencelock.testing.simulation.client import Client
from fencelock.testing.simulation.model import Server
from fencelock.testing.simulation.network import Weather
from fencelock.testing.simulation.plan import Fault, Plan

__all__ = ["Nemesis"]

OPERATOR = "operator"


class Nemesis:
    """Breaks things, one function for each kind of fault."""

    def __init__(
        self,
        world: World,
        plan: Plan,
        server: Server,
        weather: Weather,
        clients: list[Client],
        actors: list[list[Actor]],
        history: History,
    ) -> None:
        self.world = world
        self.server = server
        self.weather = weather
        self.clients = clients
        self.actors = actors
        self.history = history
        self.over = False
        for fault in plan.faults:
            world.at(world.now + fault.at, self._happen, fault)

    def _happen(self, fault: Fault) -> None:
        if self.over:
            return
        act: Callable[[Fault], None] = getattr(self, f"_{fault.kind}")
        act(fault)

    def _pause(self, fault: Fault) -> None:
        self.clients[fault.target].process.pause(fault.seconds)

    def _crash(self, fault: Fault) -> None:
        self.clients[fault.target].process.crash()

    def _partition(self, fault: Fault) -> None:
        self._cut([self.clients[fault.target]], fault)

    def _outage(self, fault: Fault) -> None:
        self._cut(self.clients, fault)

    def _cut(self, clients: list[Client], fault: Fault) -> None:
        for client in clients:
            client.link.up = fault.detail == "down"
            client.link.down = fault.detail == "up"
        self.world.at(self.world.now + fault.seconds, self._mend, clients)

    def _mend(self, clients: list[Client]) -> None:
        for client in clients:
            client.link.up = client.link.down = True

    def _renewals(self, fault: Fault) -> None:
        self.weather.failing = frozenset({"renew"})
        self.world.at(self.world.now + fault.seconds, self._let_renew)

    def _let_renew(self) -> None:
        self.weather.failing = frozenset()

    def _clock(self, fault: Fault) -> None:
        if fault.target < 0:
            self.server.offset += fault.seconds
        else:
            self.clients[fault.target].process.wall += fault.seconds

    def _break(self, fault: Fault) -> None:
        self.history.breaking(OPERATOR, fault.detail)
        self.server.break_lock(fault.detail)
        self.history.broke(OPERATOR, fault.detail)

    def _delete(self, fault: Fault) -> None:
        self.history.breaking(OPERATOR)
        self.server.delete_everything()
        self.history.broke(OPERATOR)

    def _cancel(self, fault: Fault) -> None:
        actors = self.actors[fault.target]
        # Ctrl-C reaches the main thread only.
        number = int(fault.detail) % len(actors) if self.world.flavour == "asyncio" else 0
        if not self.clients[fault.target].process.dead:
            actors[number].strike()

    def _close(self, fault: Fault) -> None:
        client = self.clients[fault.target]
        if not client.process.dead and not client.closing:
            client.process.call_soon(lambda: client.close_session(in_need=True))

    def heal(self) -> float:
        """Take all faults back; return from when on nothing of them is felt any more."""
        self.over = True
        self.weather.calm_down()
        self._mend(self.clients)
        healed = self.world.now
        for client in self.clients:
            client.process.stalls = client.process.stalls._replace(every=0.0)
            client.process.light_fuse()
            healed = max(healed, client.link.last, client.process.frozen_until)
        return healed
