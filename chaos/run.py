"""One run: a backend, a fault, a seed.

1. the store is started, and the clients; they work undisturbed for a moment;
2. the nemesis strikes again and again, with seeded dice, until the time is over;
3. everything is healed; every name must be granted again within its bound;
4. the clients end in good order; a fresh client takes and releases each name; nothing may be left;
5. the history is judged.

The same seed gives the same dice. Real processes on a real machine do not repeat to the microsecond; what a
seed found, it tends to find again.

A failed run keeps its folder: the history, the verdict, the picture.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.servers import NotReady

from chaos.backends import BACKENDS, Shape, Store, patiently
from chaos.faults import FAULTS, Fault
from chaos.machine import Lateness, commit
from chaos.stage import Stage
from chaos.subjects import SUBJECTS
from chaos.tally import Tally
from chaos.timeline import picture
from chaos.verdict import SLACK, Outcome, declared, judge
from fencelock import Client, FencelockError
from fencelock.backends.checkup import examine
from fencelock.runtime.blocking import run as complete
from fencelock.testing import Event, History, boottime, check

__all__ = ["Plan", "Progress", "run"]

OURS = ["chaos.ours:blocking", "chaos.ours:asyncio"]
WARM = 2
"""Grants of each name, on average, before the first fault."""
WARM_SECONDS = 30.0
ENDING = 30.0
ROUND = 5.0
"""Seconds in which somebody certainly asks for each name."""
MEMORY = Path("/dev/shm")
"""Where clients write down what happens: a disk that others keep busy would stop them now and then."""


@dataclass(frozen=True)
class Plan:
    """What is to be run."""

    backend: str
    fault: str
    seconds: float
    seed: int
    factories: tuple[str, ...] = tuple(OURS)
    subject: str = "fencelock"
    injections: int = 0
    """Go on beyond the time until there are so many, or it has taken ten times as long."""
    keep: bool = False
    """Whether the folder of a run that passed is kept too."""
    ease: float = 0.0
    """Seconds, on average, that a lane rests between two turns: a long run need not fill the machine."""

    @property
    def command(self) -> str:
        """What runs it again."""
        words = f"make chaos BACKEND={self.backend} FAULT={self.fault} SEED={self.seed}"
        subject = "" if self.subject == "fencelock" else f" SUBJECT={self.subject}"
        ease = f" EASE={self.ease:g}" if self.ease else ""
        return f"{words} MINUTES={self.seconds / 60:.3g}{subject}{ease}"


def _sockets(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if (Path(folder) / name).is_socket()]


Progress = Callable[[str, Stage, Tally], None]
"""Told the phase every now and then."""


def run(plan: Plan, progress: Progress | None = None) -> Outcome:
    """Run it, and say what became of it."""
    folder, memory = (
        Path(tempfile.mkdtemp(prefix=f"chaos-{plan.backend}-{plan.fault}-", dir=place))
        for place in (None, MEMORY if MEMORY.is_dir() else None)
    )
    folder.chmod(0o711)
    store, fault = BACKENDS[plan.backend](folder), FAULTS[plan.fault]()
    outcome = Outcome(plan.backend, plan.fault, "failed", subject=plan.subject, seed=plan.seed)
    outcome.commit = commit()
    library = SUBJECTS[plan.subject]
    shape = library.fit(store.shape)
    modes = list(fault.modes)
    seed = f"{plan.seed}/{plan.backend}/{plan.fault}"
    stage = Stage(store, memory, shape, list(plan.factories), seed, modes)
    library.introduce(stage)
    stage.ease = plan.ease
    try:
        fault.prepare(stage)
        with store:
            _Run(plan, outcome, store, fault, stage, stage.shape, progress or (lambda *_: None)).whole()
    finally:
        stage.close()
        outcome.folder = str(folder)
        shutil.copytree(memory, folder, dirs_exist_ok=True, ignore=_sockets)
        shutil.rmtree(memory)
        (folder / "verdict.json").write_text(json.dumps(outcome.as_dict(), indent=1))
        (folder / "picture.svg").write_text(outcome.picture)
    return outcome


class _Run:
    def __init__(
        self,
        plan: Plan,
        outcome: Outcome,
        store: Store,
        fault: Fault,
        stage: Stage,
        shape: Shape,
        progress: Progress,
    ) -> None:
        self.plan, self.outcome, self.store, self.fault = plan, outcome, store, fault
        self.stage, self.shape, self.progress = stage, shape, progress
        self.tally = stage.tally
        self.troubles: list[str] = []

    def whole(self) -> None:
        began = time.monotonic()
        self.outcome.version = self.store.version()
        with Client(self.store.url) as locks:
            here = complete(examine(locks._session.backend, rounds=1)).guarantees
            allowed = declared(self.plan.fault, here)
        # A clock that decides nothing breaks nothing.
        self.sharp = self.fault.teeth and (self.fault.word != "clock" or "exclusion" in allowed)
        # What fencelock declares is no excuse for others.
        self.allowed = allowed if self.plan.subject == "fencelock" else {}
        self.wanted = self.plan.injections
        with Lateness() as self.late, self.stage:
            self.warm_up()
            self.strike()
            self.fault.heal(self.stage)
            self.store.recover()
            self.stage.settle()
            healed = boottime()
            self.wait_for_all(healed)
            until = boottime()
            self.show("ending")
            self.stage.finish(ENDING)
        self.clear_up()
        self.outcome.seconds = time.monotonic() - began
        self.conclude(healed, until)

    def show(self, phase: str) -> None:
        self.tally.update()
        self.progress(phase, self.stage, self.tally)

    def warm_up(self) -> None:
        wanted = WARM * len(self.shape.names)

        def warm() -> bool:
            self.show("starting")
            return self.tally.kinds["granted"] >= wanted

        if not patiently(warm, WARM_SECONDS):
            raise RuntimeError(f"no work was done within {WARM_SECONDS:g}s, before any fault")

    # The nemesis ---------------------------------------------------------------------------

    def strike(self) -> None:
        """Strike with as many hands as the fault has, until the time is over."""
        over = threading.Event()
        many = self.fault.at_once * (self.shape.hands if self.fault.at_once > 1 else 1)
        hands = [
            threading.Thread(target=self.hand, args=(number, over), daemon=True) for number in range(many)
        ]
        for hand in hands:
            hand.start()
        ends = time.monotonic() + self.plan.seconds
        last = time.monotonic() + 10 * self.plan.seconds
        while not self.troubles and time.monotonic() < last:
            if time.monotonic() > ends and self.is_enough():
                break
            self.show("striking")
            time.sleep(0.2)
        over.set()
        self.stage.hurry.set()
        for hand in hands:
            hand.join()
        self.stage.hurry.clear()
        if self.troubles:
            raise RuntimeError(self.troubles[0])

    def is_enough(self) -> bool:
        """Whether it has struck as often as was asked for, and has shown its teeth if it must."""
        struck = max(self.stage.struck, self.stage.done[self.fault.word])
        if struck < self.wanted or (self.sharp and not self.tally.lost_updates):
            return False
        if self.plan.injections:  # not every one has hit somebody: the history tells
            missing = self.plan.injections - self.fault.count(self.stage, self.history())
            self.wanted = struck + missing
            return missing <= 0
        return True

    def history(self) -> History:
        return History.load(self.stage.folder / "history")

    def hand(self, number: int, over: threading.Event) -> None:
        dice = random.Random(f"{self.stage.seed}/{number}")
        try:
            while not over.is_set():
                try:
                    struck = self.fault.strike(self.stage, dice)
                except (NotReady, OSError):  # a server that does not answer is part of the day
                    struck = False
                    self.stage.rest(0.2)
                with self.stage.counting:
                    self.stage.struck += struck
        except Exception as error:
            self.troubles.append(f"{self.fault.word}: {type(error).__name__}: {error}")

    # The end -------------------------------------------------------------------------------

    def wait_for_all(self, healed: float) -> None:
        for player in self.stage.players:
            self.stage.say(player, "sweep")

        def all_granted() -> bool:
            self.show("healing")
            return all(self.tally.granted.get(name, 0.0) > healed for name in self.shape.names)

        bound = self.store.bound(self.shape.ttl)
        # On a busy machine nobody may have asked for a name so far: the history tells.
        healthy = patiently(all_granted, bound + SLACK + self.late.worst + ROUND)
        self.outcome.slack = round(SLACK + self.late.worst, 2)
        if not healthy:
            missing = [name for name in self.shape.names if self.tally.granted.get(name, 0.0) <= healed]
            self.outcome.notes.append(f"not granted after healing: {', '.join(missing)}")
            self.outcome.notes += self.store.residue()

    def clear_up(self) -> None:
        """Take and release every name once more, and see that nothing is left."""
        if self.plan.subject != "fencelock":
            return
        bound = self.store.bound(self.shape.ttl) + self.outcome.slack
        with Client(self.store.url, client_name="judge") as locks:
            for name in self.shape.names:
                try:
                    locks.lock(name, ttl=self.shape.ttl).acquire(timeout=bound).release()
                except FencelockError as error:
                    self.outcome.violations.append(f"available: {name!r} after the end: {error}")
        if not patiently(lambda: not self.store.residue(), bound):
            left = self.store.residue()
            self.outcome.violations.append(f"residue: {len(left)} left in the store: {', '.join(left[:5])}")

    def conclude(self, healed: float, until: float) -> None:
        history = self.history()
        self.outcome.violations += self.stage.faults
        self.outcome.notes += self.stage.notes
        self.outcome.injections = self.fault.count(self.stage, history)
        judge(
            self.outcome,
            history,
            traits=self.stage.traits,
            allowed=self.allowed,
            causes=self.stage.causes,
            lanes=self.stage.lanes,
            line=self.fault.line,
            ttl=self.shape.ttl,
            healed=healed,
            until=until,
            bound=self.store.bound(self.shape.ttl),
            names=self.shape.names,
            teeth=self.sharp,
        )
        title = f"{self.plan.backend} × {self.plan.fault}, seed {self.plan.seed}"
        self.outcome.picture = picture(history, self.stage.marks, title, self.first_violation(history))

    def first_violation(self, history: History) -> float | None:
        """When the first violation that a history shows was seen."""
        if not self.outcome.violations:
            return None
        for violation in check(history, fifo=False).violations:
            for item in violation.operations[-1:]:
                return item.at if isinstance(item, Event) else item.invoked.at
        return None


def forget(outcome: Outcome) -> None:
    """Remove the folder of a run that passed."""
    shutil.rmtree(outcome.folder, ignore_errors=True)
    outcome.folder = ""
