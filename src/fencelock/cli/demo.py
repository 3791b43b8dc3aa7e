"""`fencelock demo`: a story to watch, with real processes, on an embedded lock file in a temporary folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import click

from fencelock.cli import status
from fencelock.cli.options import statuses
from fencelock.cli.story.act import Act, Cast, StoryFailed
from fencelock.cli.story.ledger import Ledger
from fencelock.cli.story.picture import Line, Picture
from fencelock.cli.story.troupe import ENDING, NAMES
from fencelock.cli.story.verdict import Verdict, judge
from fencelock.cli.story.worker import LEDGER, WITH, WITHOUT
from fencelock.cli.text import complain, plain_table

__all__ = ["demo"]

HELP = """Watch workers share jobs while some of them die.

Several processes work through one list of jobs, twice. First without locks: some jobs are done more
than once. Then with fencelock, while one worker is killed at work (SIGKILL) and another sleeps
through its lease (SIGSTOP) and wakes up with a stale token. The ledger of what was done has the last
word. Takes about half a minute, needs no server, and leaves nothing behind.

\b
Examples:
  fencelock demo
  fencelock demo --workers 6 --jobs 24
  fencelock demo --plain --speed 2 > story.txt

"""

STATUSES = statuses(
    ("0", "the promise held: every job exactly once, the stale write refused"),
    ("1", "it did not, or the run without locks happened to show no duplicate"),
    ("64", "wrong usage"),
    ("130", "ended by Ctrl-C"),
)

BROKEN = 1
PAUSE = 2.5
MORAL = "A lock keeps workers apart; its token stops the one that overslept."
READ_ON = "Read on: docs/tutorial.md, and examples/fencing.py for the resource's side."


@click.command("demo", help=HELP + STATUSES, short_help="Watch workers share jobs while some of them die.")
@click.option(
    "--workers", type=click.IntRange(3, len(NAMES)), default=4, help="Worker processes. Default: 4."
)
@click.option("--jobs", type=click.IntRange(6, 60), default=12, help="Jobs on the list. Default: 12.")
@click.option("--seed", type=int, default=1, help="Another seed, other choices. Default: 1.")
@click.option("--speed", type=click.FloatRange(0.5, 5.0), default=1.0, help="2 is twice as fast. Default: 1.")
@click.option("--plain", is_flag=True, help="Plain lines. The default when stdout is no terminal.")
def demo(workers: int, jobs: int, seed: int, speed: float, plain: bool) -> int:
    with _ended_by_signals(), _folder() as folder:
        cast = Cast(folder, workers, jobs, seed, speed)
        try:
            verdict = _plain(cast) if plain or not _has_screen() else _live(cast)
        except StoryFailed as error:
            complain(f"the demo could not go on: {error}")
            return BROKEN
    for fault in verdict.faults:
        complain(f"the promise did not hold: {fault}")
    return BROKEN if verdict.faults else status.OK


def _play(cast: Cast, tell: Callable[[Line], None], show: Callable[[Picture], None]) -> Verdict:
    opened = time.monotonic()
    acts = {number: Act(number, cast, opened, tell) for number in (WITHOUT, WITH)}
    for act in acts.values():
        # Closed for certain: an interrupt may strike out here, and the workers must end all the same.
        with contextlib.closing(act.play()) as pictures:
            for picture in pictures:
                show(picture)
        time.sleep(PAUSE / cast.speed)
    troubles = acts[WITH].troubles
    assert troubles is not None
    ledger = Ledger(cast.folder / LEDGER)
    try:
        return judge(ledger, cast.jobs, troubles.killed, troubles.stopped)
    finally:
        ledger.close()


def _plain(cast: Cast) -> Verdict:
    def tell(line: Line) -> None:
        print(f"{line.at:5.1f}s  {line.text}", flush=True)

    verdict = _play(cast, tell, lambda picture: None)
    print()
    print(plain_table(("the ledger says", "without locks", "with fencelock"), verdict.table))
    print()
    if not verdict.faults:
        print(f"{MORAL}\n{READ_ON}", flush=True)
    return verdict


def _live(cast: Cast) -> Verdict:
    from rich.console import Console
    from rich.live import Live

    from fencelock.cli.story.live import curtain, frame

    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:

        def show(picture: Picture) -> None:
            live.update(frame(picture, console.width, console.height), refresh=True)

        verdict = _play(cast, lambda line: None, show)
    curtain(console, verdict)
    if not verdict.faults:
        console.print(MORAL, style="bold green")
        console.print(READ_ON, style="dim")
    return verdict


def _has_screen() -> bool:
    """Whether there is a terminal to draw on, large enough, and nobody asked for no colours."""
    from fencelock.cli.story.live import LOWEST, NARROWEST

    if not sys.stdout.isatty() or "NO_COLOR" in os.environ or os.environ.get("TERM", "dumb") == "dumb":
        return False
    size = shutil.get_terminal_size()
    return size.columns >= NARROWEST and size.lines >= LOWEST


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A temporary folder that is gone afterwards; a second Ctrl-C does not keep it."""
    folder = Path(tempfile.mkdtemp(prefix="fencelock-demo-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the demo as Ctrl-C does: workers ended, folder removed."""

    def end(signum: int, _: FrameType | None) -> None:
        for other in before:
            signal.signal(other, signal.SIG_IGN)
        if signum == signal.SIGINT:
            raise KeyboardInterrupt
        raise click.exceptions.Exit(status.by_signal(signum))

    before = {signum: signal.getsignal(signum) for signum in ENDING}
    for signum in before:
        signal.signal(signum, end)
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
