"""One backend's soak.

1. the servers are started, and a few clients of each flavour, each behind proxies of its own;
2. rounds: the clients work, faults strike in turn and are healed, short-lived processes are killed in the
   middle of what they do; then comes a lull, in which nobody works and the figures are taken;
3. the clients close, the last figures are taken, and `verdict.py` says what was flat.

Every ten seconds, and in every lull, what is seen goes into a file of JSON lines. The same seed throws the
same dice. Servers that were not back by the end of a round, a client that died or would not come to rest:
each is a *trouble*, and a failure.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from chaos.backends import patiently
from chaos.machine import commit
from chaos.nursery import Nursery
from chaos.soak.stores import AWAY, STORES
from chaos.soak.verdict import Finding, Moment, Sample, judge
from fencelock.testing import TCPProxy, kill

__all__ = ["Outcome", "Plan", "Soak"]

CLIENT = "chaos.soak.client"
FLAVOURS = ("blocking", "asyncio")
LONGEST = 100.0
"""Seconds of work in a round; a shorter run has `ROUNDS` of them, or at least what a verdict needs."""
ROUNDS = 12
FEWEST = 6
EVERY = 10.0
"""Seconds between two samples at work."""
QUIET = 60.0
STARTING = 30.0
ANSWER = 10.0
SETTLE = 0.3
CALM = 3.0
HOUR = 3600.0
TRIES = 5
T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """What is to be run."""

    backends: tuple[str, ...]
    seconds: float
    seed: int
    clients: int = 2
    """Of each flavour."""
    lanes: int = 3
    pause: float = 0.35
    """Seconds between two turns of a lane, on average: it bounds the load."""
    plant: tuple[str, ...] = ()
    """Leaks to be made on purpose: those of the client, and `record`, which the store is left with."""

    @property
    def command(self) -> str:
        """What runs it again."""
        words = " ".join(self.backends)
        return f'make soak BACKEND="{words}" MINUTES={self.seconds / 60:.3g} SEED={self.seed}'


@dataclass
class Outcome:
    """What became of one backend."""

    backend: str
    version: str = ""
    commit: str = ""
    rounds: int = 0
    seconds: float = 0.0
    struck: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def failures(self) -> list[str]:
        bad = [f"{one.who} {one.measure}: {one.why}" for one in self.findings if one.why]
        return [*self.troubles, *bad]

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "failures": self.failures}


class Player:
    """A client process and the proxies it comes through."""

    def __init__(self, name: str, flavour: str, proxies: dict[str, TCPProxy]) -> None:
        self.name, self.flavour, self.proxies = name, flavour, proxies
        self.pid = 0


Tell = Callable[[str, str, Outcome], None]
"""Told the backend, the phase and the figures so far."""


class Soak:
    """One backend. `start()`, `run()`, `stop()`."""

    def __init__(self, plan: Plan, backend: str, diary: Path, tell: Tell) -> None:
        self.plan, self.diary, self.tell = plan, diary, tell
        self.folder = Path(tempfile.mkdtemp(prefix=f"soak-{backend}-"))  # the path of a socket must be short
        self.side = STORES[backend](self.folder)
        self.store = self.side.store
        self.ttl = self.store.shape.ttl
        self.dice = random.Random(f"{plan.seed}/{backend}")
        self.outcome = Outcome(backend, commit=commit())
        self.samples: list[Sample] = []
        self.struck: Counter[str] = Counter()
        self.victims: dict[int, tuple[str, float]] = {}
        self.players: list[Player] = []
        self.began = 0.0
        self._number = self._born = 0
        self._turn = 0
        self._stack = contextlib.ExitStack()

    # Life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the servers and the clients."""
        self._stack.enter_context(self.store)
        self.outcome.version = self.store.version()
        self.mail = self._stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        self.mail.bind(str(self.folder / "runner"))
        self.nursery = self._stack.enter_context(Nursery([CLIENT]))
        self.idle = self.side.connections()  # an etcd talks to itself
        for number in range(self.plan.clients * len(FLAVOURS)):
            flavour = FLAVOURS[number % len(FLAVOURS)]
            proxies = {
                server.address: self._stack.enter_context(TCPProxy(server.host, server.port))
                for server in self.store.servers
            }
            player = Player(f"{flavour}-{number}", flavour, proxies)
            player.pid = self.spawn(player.name, flavour, self.store.through(proxies), self.ttl)
            self.players.append(player)
        if len(self.hear("start", len(self.players), STARTING)) < len(self.players):
            raise RuntimeError("the client processes did not start: look above for what they said")

    def stop(self) -> None:
        """End whatever still runs."""
        self._stack.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def spawn(self, name: str, flavour: str, url: str, ttl: float, turns: Sequence[str] = ()) -> int:
        return self.nursery.spawn(
            {
                "module": CLIENT,
                "client": name,
                "flavour": flavour,
                "url": url,
                "ttl": ttl,
                "folder": str(self.folder),
                "lanes": self.plan.lanes,
                "pause": self.plan.pause,
                "plant": [plant for plant in self.plan.plant if plant != "record"],
                "seed": f"{self.plan.seed}",
                "turns": turns,
            }
        )

    # Words ---------------------------------------------------------------------------------

    def say(self, do: str, **fields: Any) -> None:
        """Send a word to every client."""
        for player in self.players:
            with (
                contextlib.suppress(OSError),
                socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mail,
            ):
                mail.settimeout(1.0)
                mail.sendto(json.dumps({"do": do, **fields}).encode(), str(self.folder / player.name))

    def hear(self, did: str, many: int, seconds: float, number: int | None = None) -> dict[str, Any]:
        """What the clients say of this, by their names."""
        heard: dict[str, Any] = {}
        names = {player.name for player in self.players}
        ends = time.monotonic() + seconds
        while len(heard) < many and (left := ends - time.monotonic()) > 0:
            self.mail.settimeout(left)
            try:
                word = json.loads(self.mail.recv(65536))
            except TimeoutError:
                break
            if word["did"] == did and word["client"] in names and word.get("number") == number:
                heard[word["client"]] = word
        return heard

    def ask(self, do: str, did: str, **fields: Any) -> dict[str, Any]:
        self._number += 1
        self.say(do, number=self._number, **fields)
        return self.hear(did, len(self.players), ANSWER, self._number)

    # The whole -----------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return time.monotonic() - self.began

    def run(self) -> Outcome:
        """Run it to the end, and judge it."""
        self.began = time.monotonic()
        length = max(1.0, min(LONGEST, self.plan.seconds / ROUNDS))
        try:
            while not self.outcome.troubles and (
                self.now < self.plan.seconds or self.outcome.rounds < FEWEST
            ):
                self.work(length)
                self.rest()
                self.outcome.rounds += 1
            self.finish()
        except Exception as error:
            text = str(error).splitlines() or [""]
            self.outcome.troubles.append(f"the run broke off: {type(error).__name__}: {text[0]}")
        self.outcome.seconds = self.now
        self.outcome.struck = dict(self.struck)
        if self.outcome.rounds >= FEWEST:
            self.outcome.findings = judge(self.samples)
        else:
            self.outcome.troubles.append(f"only {self.outcome.rounds} lulls: too few to judge")
        if self.plan.seconds >= QUIET:
            self.outcome.troubles += [f"{word} never struck" for word in FAULTS if not self.struck[word]]
        if not self.outcome.counts.get("grants"):
            self.outcome.troubles.append("no lock was ever granted")
        self.tell(self.outcome.backend, "over", self.outcome)
        return self.outcome

    def work(self, seconds: float) -> None:
        """Let them work for so long, with faults."""
        self.say("go")
        ends = self.now + seconds
        pace = min(EVERY, seconds / 4)
        sample_at, strike_at, victim_at = self.now + pace, self.now + pace / 2, self.now
        while self.now < ends:
            if self.now >= sample_at:
                self.sample("work")
                sample_at = self.now + pace
            if self.now >= strike_at:
                self.strike()
                strike_at = self.now + pace * self.dice.uniform(0.4, 0.8)
            if self.now >= victim_at:
                self.next_victim()
                victim_at = self.now + pace * self.dice.uniform(0.2, 0.6)
            time.sleep(0.05)
        for pid in [*self.victims]:
            self.end_victim(pid)
        for player in self.players:
            for proxy in player.proxies.values():
                proxy.heal()
        self.store.recover()
        time.sleep(min(CALM, seconds / 4))  # so that whoever lost a connection has it again

    def rest(self) -> None:
        """A lull: park the lanes, wait until nothing is left, and take the figures."""
        self.tell(self.outcome.backend, "lull", self.outcome)
        self.say("lull")
        if not patiently(self.all_parked, QUIET, 0.1):
            self.outcome.troubles.append(f"the clients did not come to rest within {QUIET:g}s")
        patiently(lambda: not insist(self.side.left), self.store.bound(self.ttl) + 1.0, 0.2)
        insist(self.side.sweep)
        time.sleep(SETTLE)
        self.sample("lull")

    def all_parked(self) -> bool:
        said = self.ask("parked", "parked")
        for player in self.players:
            if player.pid in self.nursery.ended:
                raise RuntimeError(f"{player.name} ended with status {self.nursery.ended[player.pid]}")
        return len(said) == len(self.players) and all(word["parked"] for word in said.values())

    def finish(self) -> None:
        """Let every client close, and see what is left."""
        self.tell(self.outcome.backend, "closing", self.outcome)
        self.say("stop")
        said = self.hear("stop", len(self.players), QUIET)
        for player in self.players:
            if player.name not in said:
                self.outcome.troubles.append(f"{player.name} did not end within {QUIET:g}s of being told to")
        for name, word in said.items():
            self.keep(name, "closed", word["values"])
        self.count(said)

        def none_left() -> bool:
            return not insist(self.side.left) and self.side.connections() <= self.idle

        patiently(none_left, self.store.bound(self.ttl) + 2.0, 0.2)
        self.side.settle()
        connections = max(0, self.side.connections() - self.idle)
        self.keep("server", "closed", {"left": len(self.store.residue()), "connections": connections})

    # Figures -------------------------------------------------------------------------------

    def sample(self, moment: Moment) -> None:
        """Take the figures of everybody."""
        try:
            values = insist(self.side.figures) if moment == "lull" else self.side.figures()
            values["connections"] -= self.idle
            self.keep("server", moment, values)
        except AWAY:
            if moment == "lull":
                raise
        said = self.ask("sample", "sample", exact=moment == "lull")
        for name, word in said.items():
            self.keep(name, moment, word["values"])
        if moment == "lull" and len(said) < len(self.players):
            self.outcome.troubles.append("a client gave no figures in a lull")
        self.count(said)
        self.tell(self.outcome.backend, "work", self.outcome)

    def keep(self, who: str, moment: Moment, values: dict[str, float]) -> None:
        sample = Sample(round(self.now, 2), self.outcome.backend, who, moment, values)
        self.samples.append(sample)
        with self.diary.open("a") as file:
            file.write(json.dumps(sample.as_dict()) + "\n")

    def count(self, said: dict[str, Any]) -> None:
        if len(said) == len(self.players):
            self.outcome.counts = dict(sum((Counter(word["counts"]) for word in said.values()), Counter()))
        self.outcome.struck = dict(self.struck)

    # Harm ----------------------------------------------------------------------------------

    def strike(self) -> None:
        """The next fault."""
        word = [*FAULTS][self._turn % len(FAULTS)]
        self._turn += 1
        with contextlib.suppress(*AWAY):
            self.struck[word] += bool(FAULTS[word](self))

    def next_victim(self) -> None:
        """A process that will be killed; those whose time has come are."""
        for pid in [pid for pid, (_, ends) in self.victims.items() if self.now >= ends]:
            self.end_victim(pid)
        self._born += 1
        name = f"victim-{self._born}"
        # Planted: nobody else asks for its names, and they stay for an hour.
        ttl, turns = (HOUR, ["renewed"]) if "record" in self.plan.plant else (self.ttl, ())
        pid = self.spawn(name, self.dice.choice(FLAVOURS), self.store.url, ttl, turns)
        self.victims[pid] = (name, self.now + self.dice.uniform(0.2, 2.0))

    def end_victim(self, pid: int) -> None:
        name, _ = self.victims.pop(pid)
        kill(pid)
        (self.folder / name).unlink(missing_ok=True)
        self.struck["kill"] += 1


def insist(question: Callable[[], T]) -> T:
    """Ask a server that should be there; one answer that is late does not end an hour's run."""
    for _ in range(TRIES - 1):
        with contextlib.suppress(*AWAY):
            return question()
        time.sleep(1.0)
    return question()


def _reset(soak: Soak) -> int:
    return _reset_all([soak.dice.choice(soak.players)])


def _reset_all(players: Sequence[Player]) -> int:
    return sum(proxy.reset() for player in players for proxy in player.proxies.values())


def _cut(soak: Soak) -> bool:
    player = soak.dice.choice(soak.players)
    holds = [proxy.hold("both") for proxy in player.proxies.values()]
    time.sleep(soak.ttl * soak.dice.uniform(0.5, 1.5))
    for hold in holds:
        hold.cancel()
    return True


def _pause(soak: Soak) -> bool:
    server = soak.dice.choice(soak.store.servers)
    server.pause()
    time.sleep(soak.dice.uniform(0.5, 1.0) * min(2.0, soak.plan.seconds / 20))
    server.resume()
    return True


def _restart(soak: Soak) -> bool:
    server = soak.dice.choice(soak.store.servers)
    server.kill()
    time.sleep(soak.dice.choice([0.0, 0.2]))
    soak.store.restarted(server)
    return True


def _hang_up(soak: Soak) -> int:
    """The server ends every connection; where none does that, all proxies do."""
    return soak.side.hang_up() or _reset_all(soak.players)


FAULTS: dict[str, Callable[[Soak], object]] = {
    "reset": _reset,
    "cut": _cut,
    "pause": _pause,
    "restart": _restart,
    "hangup": _hang_up,
}
