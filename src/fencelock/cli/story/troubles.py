"""What goes wrong in the second act: one worker is killed, another sleeps through its lease.

Both are hit in the middle of a job. That is made sure of, not hoped for: the worker is stopped first,
and only if the ledger says that its job is still open does the story go on with it. And it keeps a job
open for each trouble that is still to come, so that there is somebody to be hit.

    calm ──SIGKILL──► killed ──lease runs out, job taken over──► taken
    taken ──SIGSTOP──► stopped ──job taken over and done──► late ──SIGCONT──► woken ──refused──► over
"""

from __future__ import annotations

import random
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from fencelock.cli.story.ledger import Ledger
from fencelock.cli.story.picture import short
from fencelock.cli.story.troupe import Player, Troupe
from fencelock.cli.text import span

__all__ = ["Hit", "Troubles"]

EARLIEST, LATEST = 0.15, 0.6
"""Between these parts of its job a worker may be hit, or when it is overdue."""
BEAT = 0.8
"""Seconds between what happens and what happens next, for those who watch."""


class Hit(NamedTuple):
    """A worker that was killed or stopped, and what it held then."""

    worker: str
    job: int
    token: int


class Troubles:
    """Makes the trouble and tells of it."""

    def __init__(
        self,
        troupe: Troupe,
        ledger: Ledger,
        act: int,
        *,
        files: tuple[Path, ...],
        seed: int,
        speed: float,
        patient: bool,
        tell: Callable[[str, str], None],
    ) -> None:
        self.troupe, self.ledger, self.act = troupe, ledger, act
        self.files, self.speed, self.tell = files, speed, tell
        self.random = random.Random(seed)
        self.scene = "calm" if patient else "restless"
        self.since = time.monotonic()
        self.killed: Hit | None = None
        self.stopped: Hit | None = None
        ledger.keep_open(act, 2)

    def step(self) -> None:
        """Do what is due now."""
        waited = time.monotonic() - self.since
        if self.scene == "calm" and len(self.ledger.effects(self.act)) >= 2:
            self._go("restless")
        elif self.scene == "restless":
            self._kill_one()
        elif self.scene == "taken" and waited > BEAT / 2 / self.speed:
            self._stop_one()
        elif self.scene == "stopped" and self.stopped and self._is_done(self.stopped.job):
            self._go("late")
        elif self.scene == "late" and waited > BEAT / self.speed:
            self._wake()

    def heard(self, player: Player, event: dict[str, Any]) -> None:
        """Tell of the trouble's end, if this is it."""
        if (
            event["event"] == "works"
            and self.scene == "killed"
            and self._is_after(player, event, self.killed)
        ):
            self._tell_take_over(player, event, self.killed, "the kill")
            self._go("taken")
        elif event["event"] == "works" and self._is_after(player, event, self.stopped):
            self._tell_take_over(player, event, self.stopped, "the stop")
        elif event["event"] == "refused":
            token, newest = short(event["token"]), short(event["newest"])
            self.tell(f"the ledger refuses {player.name}'s write: {token} < {newest}, stale", "good")
            if not event["held"]:
                self.tell(f"{player.name}'s lease knew it too: is_held() is False, without any I/O", "note")
            if self.stopped is not None and player.name == self.stopped.worker:
                self._go("over")  # else: a worker that this machine kept from renewing in time

    def _kill_one(self) -> None:
        player = self._seize()
        if player is None:
            return
        self.troupe.kill(player)
        player.state = "killed"
        self.killed = _hit(player)
        self.ledger.keep_open(self.act, 1)
        self.tell(f"SIGKILL ends {player.name} in the middle of job {player.job:02d}", "bad")
        self.tell(f"job {player.job:02d} stays locked until the lease has run out", "note")
        self._go("killed")

    def _stop_one(self) -> None:
        player = self._seize()
        if player is None:
            return
        if not all(_is_free(file) for file in self.files):
            # Stopped in the middle of a transaction it would hold up everybody.
            self.troupe.signal(player, signal.SIGCONT)
            return
        player.state = "stopped"
        self.stopped = _hit(player)
        self.ledger.keep_open(self.act, 0)
        self.tell(f"SIGSTOP freezes {player.name} in the middle of job {player.job:02d}", "bad")
        self.tell(f"nobody renews {player.name}'s lease now", "note")
        self._go("stopped")

    def _wake(self) -> None:
        assert self.stopped is not None
        player = self.troupe.players[self.stopped.worker]
        player.state = "works"
        self.tell(f"SIGCONT wakes {player.name}: it has noticed nothing and finishes its job", "bad")
        self.troupe.signal(player, signal.SIGCONT)
        self._go("woken")

    def _seize(self) -> Player | None:
        """Stop one that is certainly in the middle of a job, if there is one."""
        now = time.monotonic()
        working = [
            player for player in self.troupe.players.values() if player.state == "works" and player.token
        ]
        # One story at a time: whoever has just taken a job over is left alone, if there are others.
        others = [player for player in working if self.killed is None or player.job != self.killed.job]
        ready = [player for player in others or working if _in_the_middle(player.progress(now))]
        if not ready:
            return None
        player = self.random.choice(ready)
        self.troupe.signal(player, signal.SIGSTOP)
        time.sleep(0.02)  # signals are delivered soon, not at once
        if player.job is None or self._is_done(player.job) or not player.alive:
            self.troupe.signal(player, signal.SIGCONT)
            return None
        return player

    def _is_done(self, job: int) -> bool:
        return job not in self.ledger.open_jobs(self.act)

    def _is_after(self, player: Player, event: dict[str, Any], hit: Hit | None) -> bool:
        return hit is not None and event["job"] == hit.job and player.name != hit.worker

    def _tell_take_over(self, player: Player, event: dict[str, Any], hit: Hit | None, what: str) -> None:
        assert hit is not None
        after = span(time.monotonic() - self.since)
        newer = f"{short(event['token'])} > {short(hit.token)}"
        self.tell(f"{player.name} takes over job {hit.job:02d}, {after} after {what}: {newer}", "good")

    def _go(self, scene: str) -> None:
        self.scene = scene
        self.since = time.monotonic()


def _in_the_middle(progress: float) -> bool:
    return EARLIEST < progress < LATEST or progress >= 1.0


def _hit(player: Player) -> Hit:
    assert player.job is not None
    assert player.token is not None
    return Hit(player.name, player.job, player.token)


def _is_free(file: Path) -> bool:
    """Whether nobody is in the middle of writing this database."""
    db = sqlite3.connect(file, timeout=0.2, isolation_level=None)
    try:
        db.execute("BEGIN IMMEDIATE")
        db.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return False
    finally:
        db.close()
    return True
