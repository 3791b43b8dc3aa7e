"""Power loss: what was not on disk is gone, of one server, of some, or of all at once.

1. The disks of those who are hit stall: writes are taken, an fsync waits. So there is always something
   that is written and not yet durable.
2. They are killed, and only then do their fsyncs end, in vain: nobody hears of it.
3. The disks are unmounted, which puts each file back to what it was at its last fsync, and mounted again.
4. The servers are started.

Where there is no server it is all clients that are hit; and they then read another boot id, as after a real
power loss. A strike counts if the log lost something. What is durable, and what is not promised, is told
by `chaos/disk.c`.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import uuid
from collections.abc import Callable, Sequence

from tools.servers import Server, proc

from chaos.disk import Disk, Disks
from chaos.faults.base import Fault, outlast
from chaos.stage import Stage
from fencelock.testing import kill

__all__ = ["PowerLoss"]

ALL = 0.5
"""The part of the strikes that hit a whole ensemble; the others hit one member or some."""


class PowerLoss(Fault):
    """SIGKILL, and only what was on disk is left."""

    word = "powerloss"
    number = 8
    about = "the power fails: servers are killed, and their files are again what they were when last synced"
    needs = ("fuse",)
    line = False

    def prepare(self, stage: Stage) -> None:
        stage.store.disks = Disks(stage.store.folder)
        stage.store.persist()
        if stage.store.kind:
            outlast(stage)
        else:
            stage.boot = stage.folder / "boot"
            self.reboot(stage)

    def strike(self, stage: Stage, dice: random.Random) -> bool:
        with stage.mark(), stage.cause():
            lost = self.lose_servers(stage, dice) if stage.store.kind else self.lose_clients(stage, dice)
        stage.rest(dice.uniform(0.3, 1.2))
        return any(stage.store.log in path for path in lost)

    def lose_servers(self, stage: Stage, dice: random.Random) -> list[str]:
        """Servers lose their power; return the files that lost something."""
        hit = _some(stage.store.servers, dice)
        disks = [stage.store.disk(server.name) for server in hit]

        def end() -> None:
            for server in hit:
                proc.signal_tree(server.pid, signal.SIGKILL)

        self.fail(stage, disks, dice.uniform(0.02, 0.1), end)
        for server in hit:
            server.kill()
        lost = [path for disk in disks for path in disk.lose()]
        for server in hit:
            server.restart(wait=False)
        stage.store.recover()
        return lost

    def lose_clients(self, stage: Stage, dice: random.Random) -> list[str]:
        """The machine on which all clients are loses its power."""
        assert stage.store.disks is not None
        disks = [*stage.store.disks.by_name.values()]

        def end() -> None:
            for player in stage.players:
                stage.history.crashed(player.name)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(player.pid, signal.SIGKILL)

        self.fail(stage, disks, dice.uniform(0.02, 0.1), end)
        for player in stage.players:
            kill(player.pid)
            stage.history.crashed(player.name)  # once more: what it did before the signal came ends here too
        lost = [path for disk in disks for path in disk.lose()]
        self.reboot(stage)
        for player in stage.players:
            stage.spawn(player)
        return lost

    def fail(self, stage: Stage, disks: Sequence[Disk], seconds: float, end: Callable[[], None]) -> None:
        """Let the disks stall for so long, and end those who wait for them before these hear anything."""
        with contextlib.ExitStack() as stack:
            for disk in disks:
                stack.enter_context(disk.failing())
            stage.rest(seconds)
            end()

    def reboot(self, stage: Stage) -> None:
        """Give the machine of the clients another boot id."""
        assert stage.boot is not None
        stage.boot.write_text(f"{uuid.uuid4()}\n")


def _some(servers: Sequence[Server], dice: random.Random) -> list[Server]:
    if len(servers) == 1 or dice.random() < ALL:
        return [*servers]
    return dice.sample(servers, dice.randint(1, len(servers) - 1))
