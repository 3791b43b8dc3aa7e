"""A client process: many lanes that ask for locks, use them badly, and write down all that they see.

A *lane* (a thread, or a task) asks for one lock after another: exclusive, shared or a permit, over a few
names. Inside an exclusive section it reads a plain and a guarded resource, waits, and writes both; it
does not ask its lease before it writes, as most programs do not. A few sections last longer than the ttl
and need renewals. What the lease claims meanwhile goes into the history: the checker holds it to that.

Lanes are written once, as coroutines; those of the blocking flavour never suspend.

The runner sends words to the process's socket. `stop` ends the work in good order, `sweep` asks for each name
once more; the others are *stunts*, done by the next lane that is inside a section:

delay    the write is on its way for so many seconds, the lane gives up waiting for it and releases
fork     the section forks; the child must not hold, and must not harm, what its parent holds
desert   the lane drops its lease without a word, as a thread or task that dies does
cancel   a lane is cancelled, wherever it stands (asyncio only)

Each stunt that was done is told to the runner, with what was seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import json
import os
import random
import signal
import socket
import threading
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any

from chaos.files import open_files
from chaos.resources import Guarded, Plain
from chaos.subject import Ask, Subject, load
from chaos.ways import Asyncio, Blocking, Way
from fencelock import StaleToken
from fencelock.testing import Attempt, HistoryFile, Mode, boottime

__all__ = ["run"]

LIMIT = 3
"""Permits of a name."""
HOT = 3
HOT_PART = 0.1
"""So many names get so large a part of the requests for themselves: there, lines are long."""
HASTY = 0.7
"""So many requests give up soon, or all lanes would end up in the lines of those that are stopped."""
AFTER_A_FAILURE = 0.02
LAST_MOMENT = 2.0
JUMP = 30.0
"""A wall clock that moves by more than this against the other one was set."""


class Client:
    """What the lanes of one process share."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.name: str = config["client"]
        self.folder = Path(config["folder"])
        self.names: list[str] = config["names"]
        self.ttl: float = config["ttl"]
        self.timeout: float = config["timeout"]
        self.section: float = config["section"]
        self.long: float = config["long"]
        self.ease: float = config["ease"]
        self.url: str = config["url"]
        self.seed: str = f"{config['seed']}/{self.name}"
        self.lanes: int = config["lanes"]
        self.history = HistoryFile(self.folder / "history")
        self.plain = {name: Plain(self.folder / f"plain-{name}") for name in self.names}
        self.guarded = {name: Guarded(self.folder / f"guarded-{name}") for name in self.names}
        self.subject: Subject = load(config["factory"])(self.url, self.name)
        self.way: Way = Asyncio() if self.subject.flavour == "asyncio" else Blocking()
        self.modes: list[Mode] = [mode for mode in config["modes"] if mode in self.subject.traits.modes]
        self.stunts: deque[dict[str, Any]] = deque()
        self.round: deque[str] = deque()
        self.late = 0
        self.failures: Counter[str] = Counter()
        self.stopping = False
        self._wall = time.time() - boottime()
        self._mail = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._mail.bind(str(self.folder / self.name))

    # Words from and to the runner ----------------------------------------------------------

    def listen(self) -> None:
        """Take words from the runner until it says stop; runs on a thread of its own."""
        while not self.stopping:
            word = json.loads(self._mail.recv(4096))
            if word["do"] == "stop":
                self.stopping = True
            elif word["do"] == "sweep":
                self.round.extend(random.sample(self.names, len(self.names)))
            elif word["do"] == "cancel":
                if self.way.cancel_one():
                    self.tell(did="cancel")
            else:
                self.stunts.append(word)

    def tell(self, **fields: Any) -> None:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mail:
            mail.sendto(json.dumps({"client": self.name, **fields}).encode(), str(self.folder / "runner"))

    # The work ------------------------------------------------------------------------------

    async def lane(self, number: int) -> None:
        """Ask for one lock after another."""
        dice = random.Random(f"{self.seed}/{number}")
        while not self.stopping:
            with contextlib.suppress(asyncio.CancelledError):  # between two turns
                await self.turn(dice)
                if self.ease and not self.round:
                    await self.way.sleep(dice.expovariate(1 / self.ease))

    async def turn(self, dice: random.Random) -> None:
        """Ask for one lock, use it and give it back."""
        self.look_at_the_clock()
        name, mode, hasty = self.choose(dice)
        limit = LIMIT if mode == "permit" else None
        attempt = self.history.acquire(self.name, name, mode=mode, limit=limit)
        timeout = dice.uniform(0.0, self.ttl / 2) if hasty else self.timeout
        ask = Ask(name, mode, limit, self.ttl, timeout, attempt.lost, attempt.queued, attempt.requeued)
        try:
            lease = await self.way.call(self.subject.acquire, ask)
        except asyncio.CancelledError:
            attempt.cancelled()
            return
        except Exception as error:
            attempt.failed(brief(error))
            self.failures[type(error).__name__] += 1
            await self.way.sleep(dice.uniform(0, AFTER_A_FAILURE))
            return
        if lease is None:
            attempt.timeout()
            return
        self.granted(attempt, lease)
        with contextlib.suppress(asyncio.CancelledError):
            if await self.work(attempt, lease, mode, dice):
                return
        attempt.release()
        try:
            await self.way.call(lease.release)
        except (Exception, asyncio.CancelledError) as error:
            self.failures[type(error).__name__] += 1
        else:
            attempt.released()

    def choose(self, dice: random.Random) -> tuple[str, Mode, bool]:
        """The next name, how it is wanted, and whether it is given up soon."""
        with contextlib.suppress(IndexError):
            return self.round.popleft(), "exclusive", False
        names = self.names[:HOT] if dice.random() < HOT_PART else self.names
        return dice.choice(names), dice.choice(self.modes), dice.random() < HASTY

    def granted(self, attempt: Attempt, lease: Any) -> None:
        """Write down the grant; who gives no token gets a number that only tells grants apart."""
        at = boottime()
        token = lease.token if lease.token is not None else time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        attempt.granted(token=token, owner=lease.owner, deadline=at + lease.remaining(), at=at)

    async def work(self, attempt: Attempt, lease: Any, mode: Mode, dice: random.Random) -> bool:
        """Do what the lock is for; return whether the lease was dropped on the way."""
        found = self.read(attempt.name, lease.token) if mode == "exclusive" else None
        long = dice.random() < self.long
        seconds = dice.uniform(1.2, 1.6) * self.ttl if long else dice.expovariate(1 / self.section)
        await self.stay(attempt, lease, seconds)
        stunt = self.next_stunt(found is not None)
        if stunt is None:
            self.write(attempt.name, lease.token, found)
        elif stunt["do"] == "delay":
            self.send_late(attempt.name, lease.token, found, stunt["seconds"])
        elif stunt["do"] == "fork":
            await self.fork(attempt, lease)
            self.write(attempt.name, lease.token, found)
        else:
            attempt.release()
            self.tell(did="desert")
            return True
        return False

    def next_stunt(self, writes: bool) -> dict[str, Any] | None:
        if not writes:
            return None
        try:
            return self.stunts.popleft()
        except IndexError:
            return None

    async def stay(self, attempt: Attempt, lease: Any, seconds: float) -> None:
        """Let time pass, and write down what the lease says meanwhile."""
        ends = boottime() + seconds
        while True:
            await self.way.sleep(max(0.0, min(ends - boottime(), self.ttl / 5)))
            attempt.observe(lease)
            if boottime() >= ends:
                return

    # The resources -------------------------------------------------------------------------

    def read(self, name: str, token: int | None) -> tuple[int, int | None]:
        """Return the version of the plain resource, and that of the guarded one if it would tell."""
        plain = self.plain[name].read()
        if token is None:
            return plain, None
        try:
            return plain, self.guarded[name].read(token)
        except StaleToken:
            self.history.write(self.name, name, token=token, accepted=False)
            return plain, None

    def write(self, name: str, token: int | None, found: tuple[int, int | None] | None) -> None:
        """Write both resources, from what was found when the section began."""
        if found is None:
            return
        plain, base = found
        self.plain[name].write(plain + 1)
        self.history.plain(self.name, name, base=plain)
        if base is None or token is None:
            return
        try:
            seq = self.guarded[name].write(token)
        except StaleToken:
            self.history.write(self.name, name, token=token, base=base, accepted=False)
        else:
            self.history.write(self.name, name, token=token, base=base, seq=seq)

    # The stunts ----------------------------------------------------------------------------

    def send_late(
        self, name: str, token: int | None, found: tuple[int, int | None] | None, seconds: float
    ) -> None:
        """Send the write by a way that takes so long."""

        def arrive() -> None:
            self.write(name, token, found)
            self.tell(did="delay")
            self.late -= 1

        self.late += 1
        timer = threading.Timer(seconds, arrive)
        timer.daemon = True
        timer.start()

    async def fork(self, attempt: Attempt, lease: Any) -> None:
        """Fork while the lock is held."""
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            status = 3
            try:
                status = self.be_the_child(attempt.name, lease)
            finally:
                os._exit(status)
        done, status = 0, 0
        while not done:
            await self.stay(attempt, lease, AFTER_A_FAILURE)
            done, status = os.waitpid(child, os.WNOHANG)
        self.tell(did="fork", status=os.waitstatus_to_exitcode(status))

    def be_the_child(self, name: str, lease: Any) -> int:
        """Look at what the parent holds, try to give it back, and use the client: 0 if all is well."""
        if lease.is_held() or lease.remaining() > 0:
            return 4
        if self.subject.flavour == "asyncio":
            return 0
        lease.release()
        other = random.choice([each for each in self.names if each != name])
        self.history = HistoryFile(self.folder / "history")
        me = f"{self.name}-child-{os.getpid()}"
        attempt = self.history.acquire(me, other)
        try:
            mine = self.subject.acquire(Ask(other, "exclusive", None, self.ttl, self.ttl, attempt.lost))
        except Exception as error:
            attempt.failed(brief(error))
            return 0
        if mine is None:
            attempt.timeout()
            return 0
        self.granted(attempt, mine)
        attempt.release()
        mine.release()
        attempt.released()
        return 0

    # The end -------------------------------------------------------------------------------

    def show_stacks(self, *_: object) -> None:
        """Write down where each thread is, for whoever wonders why this does not end."""
        with (self.folder / f"stacks-{self.name}").open("w") as file:
            faulthandler.dump_traceback(file)

    def look_at_the_clock(self) -> None:
        wall = time.time() - boottime()
        if abs(wall - self._wall) > JUMP:
            self._wall = wall
            self.tell(did=f"jump {self.name}")

    async def finish(self) -> None:
        """Close what was opened, and tell what is left of it."""
        while self.late:
            await self.way.sleep(0.01)
        await self.way.call(self.subject.close)
        gc.collect()
        ends = boottime() + LAST_MOMENT
        while (threads() or self.sockets() > 0) and boottime() < ends:  # told to end, but perhaps not yet
            await self.way.sleep(0.02)
        self.tell(
            did="stop",
            failures=dict(self.failures),
            threads=threads(),
            sockets=self.sockets(),
        )

    def sockets(self) -> int:
        """How many are open beside those of this process itself."""
        return open_files()[1] - 1 - self.way.sockets


def threads() -> list[str]:
    """The threads that fencelock has started and that still run."""
    return [thread.name for thread in threading.enumerate() if "fencelock" in thread.name]


def brief(error: Exception) -> str:
    """One line of an error."""
    text = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {text[0][:120]}"


def run(config: dict[str, Any]) -> None:
    """Work until told to stop."""
    client = Client(config)
    signal.signal(signal.SIGUSR1, client.show_stacks)
    threading.Thread(target=client.listen, daemon=True).start()
    traits = client.subject.traits
    client.tell(did="start", tokens=traits.tokens, fifo=traits.fifo, losses=traits.losses)
    client.way.run(client.lane, client.lanes, client.finish)
