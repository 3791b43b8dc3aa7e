"""The worker processes of an act: started, heard, stopped and killed, by the processes started here.

Each has a process group of its own, so that Ctrl-C reaches only the demo, which then ends them; and
if the demo itself is killed, the kernel wakes a stopped worker (its group is orphaned) and
SIGHUP ends it.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["ENDING", "NAMES", "Player", "Troupe"]

WORKER = "fencelock.cli.story.worker"
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NAMES = ("ada", "ben", "cleo", "dov", "eve", "finn", "gus", "hana")


class Player:
    """A worker process and what is known of it."""

    def __init__(self, name: str, process: subprocess.Popen[bytes]) -> None:
        self.name = name
        self.process = process
        self.pid = process.pid
        self.state = "starts"  # starts, works, waits, looks, killed, stopped, ended
        self.job: int | None = None
        self.token: int | None = None
        self.began = 0.0
        self.seconds = 0.0
        self._rest = b""

    def lines(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Take what came through the pipe, and yield the events that are complete."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            yield json.loads(line)

    def progress(self, now: float) -> float:
        """How far it is with its job, from 0 to 1, if nothing has stopped it."""
        return min(1.0, (now - self.began) / self.seconds) if self.seconds else 0.0

    @property
    def alive(self) -> bool:
        return self.process.poll() is None


class Troupe:
    """All workers of an act. They end with the block."""

    def __init__(self, folder: Path, act: int, workers: int, seed: int, speed: float) -> None:
        self._folder = folder
        self._names = NAMES[:workers]
        self._arguments = (str(folder), str(act)), (str(seed), str(speed))
        self._selector = selectors.DefaultSelector()
        self.players: dict[str, Player] = {}

    def _start(self, name: str) -> None:
        before, after = self._arguments
        with (self._folder / f"{name}.err").open("ab") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", WORKER, *before, name, *after],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                process_group=0,
            )
        player = self.players[name] = Player(name, process)
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._selector.register(process.stdout, selectors.EVENT_READ, player)

    def hear(self, seconds: float) -> Iterator[tuple[Player, dict[str, Any]]]:
        """Yield what the workers say within so many seconds."""
        if not self._selector.get_map():
            return
        for key, _ in self._selector.select(seconds):
            player: Player = key.data
            data = os.read(key.fd, 65536)
            if not data:
                self._selector.unregister(key.fileobj)
            for event in player.lines(data):
                yield player, event

    def signal(self, player: Player, signum: int) -> None:
        """Send a signal to a worker that is still there."""
        with contextlib.suppress(ProcessLookupError):
            player.process.send_signal(signum)

    def kill(self, player: Player) -> None:
        """Kill a worker, and wait until it is gone."""
        self.signal(player, signal.SIGKILL)
        player.process.wait()

    @property
    def all_ended(self) -> bool:
        return not any(player.alive for player in self.players.values())

    def errors(self, player: Player) -> str:
        """Return the last line of what a worker complained of."""
        lines = (self._folder / f"{player.name}.err").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def __enter__(self) -> Troupe:
        try:
            for name in self._names:
                with undisturbed():
                    self._start(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        with undisturbed():
            for player in self.players.values():
                self.kill(player)
                assert player.process.stdout is not None
                player.process.stdout.close()
            self._selector.close()


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Let signals that end the demo wait until the block is over.

    Their handlers raise, and in the middle of `Popen` that would lose a process that runs already.
    """
    came: list[int] = []
    before = {signum: signal.signal(signum, lambda number, _: came.append(number)) for signum in ENDING}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
    for number in came:
        signal.raise_signal(number)
