"""`fencelock top` on a terminal, over a real Redis: it lives, takes keys, rides out an outage."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from cli_helpers import FENCELOCK, environment, fencelock_command
from crew import wait_until
from test_terminal import TAKE_TERMINAL
from tools.servers import start

import fencelock

EVIL = "evil\x1b]0;title\x07\x1b[2J\u202e<script>alert(1)</script>"
SHOWN = r"evil\x1b]0;title\x07\x1b[2J\u202e<script>alert(1)</script>"
PATIENCE = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with start("redis", settings={"appendonly": "yes"}) as group:
        yield group


@pytest.fixture
def locks(server: Any) -> Iterator[fencelock.Client]:
    with fencelock.Client(server.url) as client:
        yield client


class Screen:
    """A terminal on which `fencelock top` runs, and what is drawn there."""

    def __init__(self, process: subprocess.Popen[bytes], end: int) -> None:
        self.process, self.end = process, end
        self.raw = ""

    def press(self, keys: str) -> None:
        os.write(self.end, keys.encode())

    def read(self) -> bool:
        """Read what has come; say whether there may be more."""
        while select.select([self.end], [], [], 0.02)[0]:
            try:
                data = os.read(self.end, 65536)
            except OSError:
                return False  # the other side is gone
            self.raw += data.decode(errors="replace")
        return True

    def frame(self) -> str:
        """The last picture that is complete, without colours."""
        self.read()
        frames = self.raw.split("\x1b[H")
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", frames[-2] if len(frames) > 2 else "")

    def shows(self, *words: str, without: str = "\0") -> str:
        """Wait for a picture that has all these words."""

        def found() -> str | None:
            frame = self.frame()
            return frame if all(word in frame for word in words) and without not in frame else None

        try:
            return str(wait_until(found, f"{words} without {without!r}", PATIENCE))
        except AssertionError as error:
            raise AssertionError(f"{error}, but:\n{self.frame()}") from None

    def ends(self) -> int:
        wait_until(lambda: not self.read() or self.process.poll() is not None, "it ends", PATIENCE)
        return self.process.wait(PATIENCE)


@contextmanager
def top(url: str, *args: str, columns: int = 150, lines: int = 12) -> Iterator[Screen]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    before = termios.tcgetattr(theirs)
    env = {name: value for name, value in environment(url).items() if name not in {"COLUMNS", "LINES"}}
    command = [sys.executable, "-c", TAKE_TERMINAL, os.ttyname(theirs), FENCELOCK, "top", *args]
    process = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**env, "TERM": "xterm-256color"},
    )
    try:
        yield Screen(process, ours)
        assert termios.tcgetattr(theirs) == before, "the terminal is as it was"
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(theirs)
        os.close(ours)


def test_it_lives(server: Any, locks: fencelock.Client) -> None:
    with top(server.url, "--interval", "100ms") as screen:
        screen.shows("0 held", "No lock is held or waited for", "q quit")
        lease = locks.lock(EVIL, ttl=60).acquire()
        screen.shows("1 held", SHOWN, str(lease.token), "exclusive", f":{os.getpid()}", "█")
        assert "\x1b]0;" not in screen.raw and "\x1b[2J" not in screen.raw and "\u202e" not in screen.raw
        lease.release()
        frame = screen.shows("0 held", without=SHOWN)
        assert not re.search(r"\b0\.0 changes/s", frame), "it was taken and released"
        screen.press("q")
        assert screen.ends() == 0
        assert "\x1b[?1049l" in screen.raw, "the screen is given back"


def test_a_bar_runs_down_to_expiry(server: Any, locks: fencelock.Client) -> None:
    lease = locks.lock("dying", ttl=4, renew=False).acquire()
    with top(server.url, "--interval", "100ms") as screen:
        first = screen.shows("dying").count("█")
        wait_until(lambda: 0 < screen.frame().count("█") < first, "it runs down", PATIENCE)
        screen.shows("0 held", without="dying")
        screen.press("q")
        assert screen.ends() == 0
    assert not lease.is_held()


def test_keys_sort_and_filter(server: Any, locks: fencelock.Client) -> None:
    leases = [locks.lock(name, ttl=60).acquire() for name in ("job:old", "job:new", "other")]
    with top(server.url, "--sort", "name", "--interval", "200ms") as screen:
        frame = screen.shows("by name", "job:new", "job:old", "other")
        assert frame.index("job:new") < frame.index("job:old") < frame.index("other")
        screen.press("ss")  # by waiters, by age
        frame = screen.shows("by age")
        assert frame.index("job:old") < frame.index("job:new") < frame.index("other")
        screen.press("/job:\r")
        screen.shows("filter: job:", "job:old", "job:new", "q quit", without="other")
        screen.press("\x1b")
        screen.shows("other", "by age")
        screen.press("\x03")
        assert screen.ends() == 130
    for lease in leases:
        lease.release()


def test_a_prefix_and_more_locks_than_lines(server: Any, locks: fencelock.Client) -> None:
    leases = [locks.lock(f"many:{number:02}", ttl=60).acquire() for number in range(30)]
    stranger = locks.lock("stranger", ttl=60).acquire()
    with top(server.url, "many:", "--sort", "name", lines=12) as screen:
        frame = screen.shows("30 held", "8 of 30 shown", without="stranger")
        assert re.findall(r"many:\d\d", frame) == [f"many:{number:02}" for number in range(8)]
        screen.press("/y:29")  # a holder may have 29 in its number
        screen.shows("filter: y:29_", "many:29")
        screen.press("\rq")
        assert screen.ends() == 0
    for lease in (*leases, stranger):
        lease.release()


def test_a_backend_that_goes_away_and_comes_back(server: Any, locks: fencelock.Client) -> None:
    lease = locks.lock("kept", ttl=600).acquire()
    with top(server.url, "--interval", "100ms") as screen:
        screen.shows("1 held", "kept")
        server.members[0].kill()
        screen.shows("the backend does not answer, still asking:", "kept")
        server.members[0].start()
        server.wait()
        screen.shows("1 held", "kept", "by waiters", without="does not answer")
        screen.press("q")
        assert screen.ends() == 0
        assert "Traceback" not in screen.raw
    lease.release()


def test_one_picture_for_a_pipe(server: Any, locks: fencelock.Client) -> None:
    with locks.lock(EVIL, ttl=60) as lease:
        done = fencelock_command(server.url, "top")
        assert done.returncode == 0 and done.stderr == ""
        assert done.stdout.startswith("1 held  0 waiting") and SHOWN in done.stdout
        assert str(lease.token) in done.stdout and "\x1b" not in done.stdout
    gone = fencelock_command("redis://127.0.0.1:1", "top")
    assert gone.returncode == 69 and len(gone.stderr.splitlines()) == 1
