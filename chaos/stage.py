"""A run's stage: the client processes, what reaches them, and what they say.

A *player* is a place for a client process; when its process is killed another takes its place, under
another name, since a history must not take the two for one. Faults *borrow* players, so that two of them
never hit the same process at once, and several are hit at a time."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

from chaos.backends import Shape, Store, patiently
from chaos.nursery import Nursery
from chaos.tally import Tally
from fencelock.testing import HistoryFile, TCPProxy, boottime, kill, pause, resume

__all__ = ["Cause", "Mark", "Player", "Stage"]

STARTING = 30.0
TRIES = 30


class Mark(NamedTuple):
    """A fault that was in force from `start` to `end`, on one client or (empty) on all."""

    start: float
    end: float
    client: str


class Cause(NamedTuple):
    """A time in which a fault made servers forget leases, or take them for expired."""

    start: float
    end: float


class Player:
    """A place for a client process."""

    def __init__(self, number: int, factory: str) -> None:
        self.number = number
        self.factory = factory
        self.proxies: dict[str, TCPProxy] = {}
        self.host = self.netns = ""
        self.incarnation = 0
        self.pid = 0

    @property
    def name(self) -> str:
        """The client's id in the history."""
        return f"c{self.number}.{self.incarnation}"


class Stage:
    """Everything that a fault can lay its hands on."""

    def __init__(
        self,
        store: Store,
        folder: Path,
        shape: Shape,
        factories: list[str],
        seed: str,
        modes: list[str],
    ) -> None:
        self.store, self.folder, self.shape, self.seed, self.modes = store, folder, shape, seed, modes
        self.is_acquire: Callable[[bytes], bool] = store.is_acquire
        self.is_renewal: Callable[[bytes], bool] = store.is_renewal
        self.delete: Callable[[], None] = store.delete
        self.sockets: float = store.sockets
        """How many a process may have left in the end."""
        self.history = HistoryFile(self.folder / "history")
        self.players = [Player(n, factories[n % len(factories)]) for n in range(shape.players)]
        self.long = 0.005
        """The part of the sections that last longer than the ttl, and need renewals."""
        self.ease = 0.0
        """Seconds, on average, that a lane rests between two turns."""
        self.env: dict[str, str] = {}
        """Added to the environment of the clients."""
        self.boot: Path | None = None
        """Where the clients read which boot of the machine this is, if not where everybody does."""
        self.tally = Tally(self.folder / "history")
        self.struck = 0
        self.marks: list[Mark] = []
        self.causes: list[Cause] = []
        """What may explain a break that is declared."""
        self.faults: list[str] = []
        """What was seen that no history tells: each a violation."""
        self.notes: list[str] = []
        """What may help to find a cause."""
        self.done: Counter[str] = Counter()
        self.started: set[str] = set()
        """The clients that have begun to work."""
        self.last_words: dict[str, dict[str, Any]] = {}
        self.traits = set(TRAITS)
        """What every subject offers."""
        self.counting = threading.Lock()
        self.over = threading.Event()
        self.hurry = threading.Event()
        """Set when the faults are to come to their end."""
        self._lent: set[int] = set()
        self._changed = threading.Condition()
        self._stack = contextlib.ExitStack()

    @property
    def lanes(self) -> int:
        """The lanes of all clients: each holds one lease at a time."""
        return self.shape.players * self.shape.lanes

    # Life ----------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._mail = self._stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        self._mail.bind(str(self.folder / "runner"))
        self._mail.settimeout(0.2)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        modules = ["chaos.client", *{player.factory.partition(":")[0] for player in self.players}]
        self._nursery = self._stack.enter_context(Nursery(modules, self.env))
        for player in self.players:
            self._connect(player)
            self.spawn(player)
        if not self.settle():
            raise RuntimeError("the client processes did not start: look above for what they said")
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._stack.close()
        self._listener.join()

    def close(self) -> None:
        """Close the history, also that of a run which never began."""
        self.history.close()

    def _connect(self, player: Player) -> None:
        if self.store.netns:
            network = self.store.group.site.network
            player.host, player.netns = network.join(f"client-{player.number}")
        if self.store.proxies:
            for server in self.store.servers:
                proxy = self._stack.enter_context(TCPProxy(server.host, server.port))
                player.proxies[server.address] = proxy

    def spawn(self, player: Player) -> None:
        """Start a new process in this place."""
        player.incarnation += 1
        player.pid = self._nursery.spawn(
            {
                "client": player.name,
                "factory": player.factory,
                "url": self.store.through(player.proxies),
                "folder": str(self.folder),
                "names": self.shape.names,
                "modes": self.modes,
                "ttl": self.shape.ttl,
                "timeout": self.shape.ttl * 4 + 3,
                "section": self.shape.section,
                "long": self.long,
                "ease": self.ease,
                "lanes": self.shape.lanes,
                "seed": self.seed,
                "netns": player.netns,
                "boot": str(self.boot or ""),
            }
        )

    def settle(self) -> bool:
        """Wait until every player's process works: one that was just born may need a while."""
        return bool(patiently(lambda: all(map(self.works, self.players)), STARTING))

    def works(self, player: Player) -> bool:
        """Whether the process in this place has begun to work."""
        return player.name in self.started

    # What faults use -----------------------------------------------------------------------

    @contextlib.contextmanager
    def borrow(self, dice: random.Random) -> Iterator[Player]:
        """A player that no other fault has."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._lent) < len(self.players))
            player = dice.choice([one for one in self.players if one.number not in self._lent])
            self._lent.add(player.number)
        try:
            yield player
        finally:
            with self._changed:
                self._lent.discard(player.number)
                self._changed.notify_all()

    def say(self, player: Player, do: str, **fields: Any) -> bool:
        """Send a word to a client; return whether it can have reached it."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mail:
            mail.settimeout(1.0)
            try:
                mail.sendto(json.dumps({"do": do, **fields}).encode(), str(self.folder / player.name))
            except OSError:
                return False
        return True

    def stop(self, player: Player) -> bool:
        """SIGSTOP a client where it holds up nobody but itself; return whether it stands still."""
        for _ in range(TRIES):
            self.history.paused(player.name)
            pause(player.pid)
            if self.store.can_stop(player.pid):
                return True
            self.go_on(player)
            self.rest(0.002)
        return False

    def go_on(self, player: Player) -> None:
        """SIGCONT a client."""
        resume(player.pid)
        self.history.resumed(player.name)

    @contextlib.contextmanager
    def mark(self, client: str = "") -> Iterator[None]:
        """Shade this time in the picture."""
        start = boottime()
        try:
            yield
        finally:
            self.marks.append(Mark(start, boottime(), client))

    @contextlib.contextmanager
    def cause(self) -> Iterator[None]:
        """What is done here may make servers forget leases, or take them for expired."""
        start = boottime()
        try:
            yield
        finally:
            self.causes.append(Cause(start, boottime()))

    @contextlib.contextmanager
    def breaking(self) -> Iterator[None]:
        """What is done here ends locks behind the back of their holders."""
        self.history.breaking("operator")
        try:
            yield
        finally:
            self.history.broke("operator")

    def rest(self, seconds: float) -> None:
        """Sleep, but not beyond the end of the run's faults."""
        self.hurry.wait(seconds)

    # The end -------------------------------------------------------------------------------

    def finish(self, seconds: float) -> None:
        """Let every client end in good order."""
        pids = {player.pid: player for player in self.players}

        def all_ended() -> bool:
            left = [player for pid, player in pids.items() if pid not in self._nursery.ended]
            for player in left:  # again and again: a process that was just born does not hear yet
                self.say(player, "stop")
            return not left

        if not patiently(all_ended, seconds, 0.2):
            self.notes += self.store.residue()
        for pid, player in pids.items():
            status = self._nursery.ended.get(pid)
            if status is None:
                os.kill(pid, signal.SIGUSR1)  # it writes down where each of its threads is
                patiently((self.folder / f"stacks-{player.name}").exists, 1.0)
                kill(pid)
                self.faults.append(f"{player.name} did not end within {seconds:g}s of being told to")
            elif status:
                self.faults.append(f"{player.name} ended with status {status}")
        for name, words in self.last_words.items():
            if words["threads"]:
                self.faults.append(f"{name} has left threads: {', '.join(words['threads'])}")
            if words["sockets"] > self.sockets:
                self.faults.append(f"{name} has left {words['sockets']} sockets")

    def _listen(self) -> None:
        while not self.over.is_set() or self.last_words:
            try:
                word = json.loads(self._mail.recv(65536))
            except TimeoutError:
                if self.over.is_set():
                    return
                continue
            except OSError:
                return
            self.done[word["did"]] += 1
            if word["did"] == "start":
                self.started.add(word["client"])
                self.traits &= {trait for trait in TRAITS if word[trait]}
            elif word["did"] == "stop":
                self.last_words[word["client"]] = word
            elif word["did"] == "fork" and word["status"]:
                self.faults.append(
                    f"fork: the child of {word['client']} {FORK.get(word['status'], 'failed')}"
                )


TRAITS = {"tokens", "fifo", "losses"}
FORK = {4: "says that it holds what its parent holds", -14: "hung"}
