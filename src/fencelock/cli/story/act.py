"""An act: all jobs of a list done by a troupe of workers, without locks or with them, troubles and all."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fencelock.cli.story.ledger import Ledger
from fencelock.cli.story.picture import Cell, Line, Picture, Row, short
from fencelock.cli.story.troubles import Troubles
from fencelock.cli.story.troupe import Player, Troupe
from fencelock.cli.story.worker import LEDGER, LOCKS, TTL, WITH, WITHOUT, lock_name
from fencelock.client import Client

__all__ = ["Act", "Cast", "StoryFailed"]

TICK = 0.1
LONGEST, LONGEST_JOB = 40.0, 3.0
"""No act takes so long; if it does, something has gone wrong that the story does not know."""

Tell = Callable[[Line], None]


class StoryFailed(Exception):
    """The story could not be told to its end."""


class Cast(NamedTuple):
    """Who plays, how much, where and how fast."""

    folder: Path
    workers: int
    jobs: int
    seed: int
    speed: float


class Act:
    """One run from the first job to the last."""

    def __init__(self, number: int, cast: Cast, opened: float, tell: Tell) -> None:
        self.number, self.cast = number, cast
        self.opened = opened
        self.ttl = TTL / cast.speed
        self.lines: list[Line] = []
        self.troubles: Troubles | None = None
        self._tell = tell

    def tell(self, text: str, mood: str = "plain") -> None:
        """Say a sentence of the story."""
        line = Line(time.monotonic() - self.opened, text, mood)
        self.lines.append(line)
        self._tell(line)

    def play(self) -> Generator[Picture, None, None]:
        """Play the act; yield a picture about ten times a second."""
        cast = self.cast
        ledger = Ledger(cast.folder / LEDGER)
        ledger.fill(self.number, cast.jobs)
        self._introduce()
        troupe = Troupe(cast.folder, self.number, cast.workers, cast.seed, cast.speed)
        if self.number == WITH:
            self.troubles = self._troubles(troupe, ledger)
        try:
            with Client(f"sqlite://{cast.folder / LOCKS}") as locks, troupe:
                yield from self._run(troupe, ledger, locks)
        finally:
            ledger.close()

    def _introduce(self) -> None:
        cast = self.cast
        if self.number == WITHOUT:
            self.tell(
                f"{cast.workers} workers share {cast.jobs} jobs, without a lock: look, do, write", "note"
            )
        else:
            self.tell(f"the same with fencelock: a lock for each job, with a ttl of {self.ttl:.2g}s", "note")

    def _troubles(self, troupe: Troupe, ledger: Ledger) -> Troubles:
        cast = self.cast
        return Troubles(
            troupe,
            ledger,
            self.number,
            files=(cast.folder / LEDGER, cast.folder / LOCKS),
            seed=cast.seed,
            speed=cast.speed,
            patient=cast.jobs >= 2 * cast.workers,
            tell=self.tell,
        )

    def _run(self, troupe: Troupe, ledger: Ledger, locks: Client) -> Iterator[Picture]:
        shown = 0.0
        longest = (LONGEST + LONGEST_JOB * self.cast.jobs) / min(1.0, self.cast.speed)
        give_up = time.monotonic() + longest
        while True:
            over = troupe.all_ended
            for player, event in troupe.hear(TICK / 2):
                self._heard(player, event, ledger)
            if self.troubles is not None:
                self.troubles.step()
            now = time.monotonic()
            if now - shown >= TICK or over:
                shown = now
                self._check(troupe)
                yield self._picture(troupe, ledger, locks)
            if over:
                return
            if now > give_up:
                raise StoryFailed(f"act {self.number} did not end within {longest:g}s")

    def _check(self, troupe: Troupe) -> None:
        for player in troupe.players.values():
            if player.alive or player.state == "killed":
                continue
            if player.process.returncode != 0:
                raise StoryFailed(f"{player.name} ended by itself: {troupe.errors(player)}")
            player.state, player.job, player.token = "ended", None, None

    def _heard(self, player: Player, event: dict[str, Any], ledger: Ledger) -> None:
        kind, job = event["event"], event["job"]
        if self.troubles is not None:
            self.troubles.heard(player, event)
        if kind == "works":
            player.state, player.job, player.token = "works", job, event["token"]
            player.began, player.seconds = time.monotonic(), event["seconds"]
        elif kind == "waits":
            player.state, player.job, player.token = "waits", job, None
        elif kind in {"done", "refused"}:
            player.state, player.job, player.token = "looks", None, None
            if kind == "done":
                self._tell_done(player, event, ledger)

    def _tell_done(self, player: Player, event: dict[str, Any], ledger: Ledger) -> None:
        job = event["job"]
        if self.number == WITH:
            self.tell(f"{player.name} did job {job:02d} under token {short(event['token'])}")
            return
        times = sum(effect.job == job for effect in ledger.effects(self.number))
        if times > 1:
            self.tell(f"{player.name} did job {job:02d}, which was done already: {times} effects", "bad")
        else:
            self.tell(f"{player.name} did job {job:02d}")

    def _picture(self, troupe: Troupe, ledger: Ledger, locks: Client) -> Picture:
        now = time.monotonic()
        held: dict[tuple[str, int], tuple[int, float]] = {}
        if self.number == WITH:
            for state in locks.list("job:"):
                for entry in state.holders:
                    held[state.name, entry.pid] = entry.token, entry.expires_in
        effects = Counter(effect.job for effect in ledger.effects(self.number))
        busy = {player.job for player in troupe.players.values() if player.state in {"works", "stopped"}}
        return Picture(
            act=self.number,
            elapsed=now - self.opened,
            ttl=self.ttl,
            rows=[_row(player, held, now) for player in troupe.players.values()],
            jobs={job: Cell(effects[job], job in busy) for job in range(1, self.cast.jobs + 1)},
            lines=self.lines,
        )


def _row(player: Player, held: dict[tuple[str, int], tuple[int, float]], now: float) -> Row:
    job = player.job
    lease = held.get((lock_name(job), player.pid)) if job is not None else None
    progress = player.progress(now) if player.state == "works" else None
    token, left = lease if lease is not None else (player.token, None)
    return Row(player.name, player.state, job, progress, token, left)
