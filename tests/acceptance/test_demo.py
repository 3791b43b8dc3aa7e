"""`fencelock demo` tells the truth: real faults, a verdict from the ledger, and nothing left behind.

The story is told in plain lines to a pipe and as a picture on a terminal. Ctrl-C, at any time, ends the
workers, stopped ones too, and removes the folder. A ledger that does not bear the promise out is
said so: the verdict has teeth.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_helpers import FENCELOCK, on_terminal
from crew import PATIENCE, wait_until

from fencelock.cli.story.ledger import Ledger
from fencelock.cli.story.picture import Cell, Line, Picture, Row
from fencelock.cli.story.troubles import Hit
from fencelock.cli.story.verdict import judge
from fencelock.cli.story.worker import WITH, WITHOUT

FAST = ["--speed", "2.5"]


@pytest.fixture
def temp(tmp_path: Path) -> Iterator[Path]:
    """Where the demo makes its folder; it must be gone in the end, and its workers with it."""
    folder = tmp_path / "temp"
    folder.mkdir()
    yield folder
    assert list(folder.iterdir()) == []
    assert workers_in(folder) == []


def workers_in(folder: Path) -> list[int]:
    """Return the processes that were told to work in this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(folder) in (process / "cmdline").read_text():
                found.append(int(process.name))
    return found


def environment(temp: Path, **more: str) -> dict[str, str]:
    inherited = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    return {**inherited, "TMPDIR": str(temp), "TERM": "xterm-256color", **more}


def in_order(text: str, *parts: str) -> None:
    """Assert that these follow each other in the text."""
    place = 0
    for part in parts:
        match = re.compile(part, re.DOTALL).search(text, place)
        assert match, f"{part!r} is missing, or out of order, in:\n{text}"
        place = match.end()


def test_the_story_in_plain_lines(temp: Path) -> None:
    done = subprocess.run(
        [FENCELOCK, "demo", *FAST],
        env=environment(temp),
        capture_output=True,
        text=True,
        timeout=PATIENCE * 2,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    in_order(
        done.stdout,
        "without a lock",
        "which was done already",
        "the same with fencelock",
        "SIGKILL ends (?P<dead>\\w+) in the middle of job",
        "takes over job",
        "SIGSTOP freezes",
        "takes over job",
        "SIGCONT wakes",
        "the ledger refuses",
        "the ledger says",
        "effects in the ledger +[0-9]+ +12\n",
        "jobs done exactly once +[0-9]+ +12\n",
        "jobs done more than once +[1-9][0-9]* +0\n",
        "stale writes refused +- +[1-9]\n",
        "Read on",
    )


def test_the_story_on_a_terminal(temp: Path) -> None:
    with demo(temp, *FAST) as (process, screen):
        told = read_all(screen)
        assert process.wait(PATIENCE) == 0, told
    assert told.count("\x1b[?25l") == told.count("\x1b[?25h") == 1, "the cursor is back"
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", told)
    in_order(
        plain, "act 1 of 2", "act 2 of 2", "killed in job", "asleep in job", "the ledger says", "Read on"
    )
    assert max(len(line) for line in re.split(r"[\r\n]+", plain)) <= 80, "no line wraps"


@pytest.mark.parametrize("moment", ["done already", "SIGKILL", "SIGSTOP"])
def test_ctrl_c(temp: Path, moment: str) -> None:
    with demo(temp, NO_COLOR="1") as (process, screen):
        seen = read_until(process, screen, moment)
        assert "\x1b" not in seen, "without colours the story is told in plain lines"
        assert workers_in(temp)
        os.write(screen, b"\x03")
        rest = read_all(screen)
        assert process.wait(PATIENCE) == 130, rest
        assert "Traceback" not in rest


def test_ctrl_c_gives_the_terminal_back(temp: Path) -> None:
    with demo(temp) as (process, screen):
        seen = read_until(process, screen, "act 1 of 2")
        time.sleep(0.5)
        os.write(screen, b"\x03")
        seen += read_all(screen)
        assert process.wait(PATIENCE) == 130
    assert seen.rindex("\x1b[?25h") > seen.rindex("\x1b[?25l"), "the cursor is hidden"


def test_sigterm(temp: Path) -> None:
    with subprocess.Popen(
        [FENCELOCK, "demo"], env=environment(temp), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        wait_until(lambda: workers_in(temp), "workers")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 143


def test_the_verdict_is_the_ledgers(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    killed, stopped = Hit("ada", 1, 10), Hit("ben", 2, 11)

    def faults() -> str:
        return "; ".join(judge(ledger, 2, killed, stopped).faults)

    for act in (WITHOUT, WITH):
        ledger.fill(act, 2)
    assert "no duplicate" in faults()
    assert "not done exactly once: [1, 2]" in faults()
    for job in (1, 1, 2):
        ledger.write(WITHOUT, job, "ada")
    for job in (1, 2):
        assert ledger.begin(WITH, job, 20)
        ledger.write_fenced(WITH, job, "cleo", 20)
    assert faults() == "the stale write of ben was not refused"
    with pytest.raises(Exception, match="stale"):
        ledger.write_fenced(WITH, 2, "ben", 11)
    assert faults() == ""
    ledger.write_fenced(WITH, 2, "cleo", 21)  # a second effect, by whatever way it came
    assert faults() == "with locks, jobs were not done exactly once: [2]"
    assert "no worker was killed" in "; ".join(judge(ledger, 2, None, stopped).faults)
    ledger.close()


@pytest.mark.parametrize(("width", "height"), [(72, 18), (80, 24), (120, 40), (300, 100)])
@pytest.mark.parametrize(("workers", "jobs"), [(3, 6), (8, 60)])
def test_frames_keep_their_size(width: int, height: int, workers: int, jobs: int) -> None:
    """Whatever happens in it, a frame has the same number of lines, and none is too long."""
    from rich.console import Console

    from fencelock.cli.story.live import frame

    console = Console(width=width, height=height, force_terminal=True)
    states = ["starts", "looks", "works", "waits", "killed", "stopped", "ended"]
    sizes = set()
    for moment in range(14):
        rows = [
            Row(f"w{number}", states[(number + moment) % 7], 7, 0.5, 1_794_729_511_000_000 + number, 1.5)
            for number in range(workers)
        ]
        cells = {job + 1: Cell((job + moment) % 3, job % 2 == 0) for job in range(jobs)}
        lines = [Line(float(n), "a long sentence " * 20, "bad") for n in range(moment)]
        picture = Picture(WITH, moment * 100.0, 3.0, rows, cells, lines)
        shown = console.render_lines(frame(picture, width, height), pad=False)
        text = ["".join(segment.text for segment in line) for line in shown]
        assert max(map(len, text)) <= width
        sizes.add(len(text))
    assert len(sizes) == 1


def demo(
    temp: Path, *options: str, **more: str
) -> contextlib.AbstractContextManager[tuple[subprocess.Popen[bytes], int]]:
    """Run the demo on a terminal of 80 columns and 24 lines."""
    return on_terminal(environment(temp, COLUMNS="80", LINES="24", **more), "demo", *options)


def read_some(screen: int) -> bytes | None:
    """Return what is shown next; `None` when the terminal has no user any more."""
    if not select.select([screen], [], [], PATIENCE)[0]:
        raise AssertionError("the demo shows nothing")
    try:
        return os.read(screen, 65536) or None
    except OSError:
        return None


def read_until(process: subprocess.Popen[bytes], screen: int, text: str) -> str:
    seen = b""
    while text.encode() not in seen:
        more = read_some(screen)
        assert more is not None, f"ended with {process.wait(PATIENCE)} before {text!r}: {seen!r}"
        seen += more
    return seen.decode(errors="replace")


def read_all(screen: int) -> str:
    seen = b""
    while (more := read_some(screen)) is not None:
        seen += more
    return seen.decode(errors="replace")
