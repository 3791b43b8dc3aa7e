"""`fencelock run` at a terminal: a real interactive shell on a pseudo-terminal, with job control."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_helpers import FENCELOCK, environment

TAKE_TERMINAL = (
    "import os, sys; os.close(os.open(sys.argv[1], os.O_RDWR)); os.execvp(sys.argv[2], sys.argv[2:])"
)
"""The first terminal that the leader of a session opens is its controlling terminal."""


BASH = ["bash", "--norc", "--noprofile", "--noediting", "-i"]


class Shell:
    """An interactive bash, and what it has written."""

    def __init__(self, url: str) -> None:
        self.end, theirs = pty.openpty()
        self.text = ""
        self.process = subprocess.Popen(
            [sys.executable, "-c", TAKE_TERMINAL, os.ttyname(theirs), *BASH],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env={**environment(url), "PS1": "", "TERM": "dumb", "FENCELOCK": FENCELOCK, "HISTFILE": ""},
        )
        os.close(theirs)
        self.type("stty -echo; set -m; echo rea''dy")
        self.expect("ready")

    def type(self, line: str) -> None:
        os.write(self.end, line.encode() + b"\n")

    def press(self, key: bytes) -> None:
        os.write(self.end, key)

    def expect(self, pattern: str, seconds: float = 30.0) -> re.Match[str]:
        """Wait until the pattern is written, and forget everything up to its end."""
        deadline = time.monotonic() + seconds
        while not (found := re.search(pattern, self.text)):
            left = deadline - time.monotonic()
            assert left > 0, f"{pattern!r} not in {self.text!r}"
            if select.select([self.end], [], [], left)[0]:
                self.text += os.read(self.end, 4096).decode(errors="replace")
        self.text = self.text[found.end() :]
        return found

    def ask(self, line: str, pattern: str) -> re.Match[str]:
        """Type a line until it is answered: what is typed around a Ctrl-C is thrown away."""
        for _ in range(30):
            self.type(line)
            try:
                return self.expect(pattern, 1.0)
            except AssertionError:
                continue
        raise AssertionError(f"{pattern!r} not in {self.text!r}")

    def close(self) -> None:
        os.close(self.end)  # hangs up
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(f"sqlite://{tmp_path}/locks.db")
    try:
        yield shell
    finally:
        shell.close()


def test_command_reads_from_the_terminal(shell: Shell) -> None:
    shell.type(
        """$FENCELOCK run job -- sh -c 'echo as''k; read line; echo "got:$line"; exit 3'; echo status=$?"""
    )
    shell.expect("ask")
    shell.type("hello")
    shell.expect("got:hello")
    shell.expect("status=3")
    shell.type("echo shell''-is-back")  # it has the terminal again
    shell.expect("shell-is-back")


def test_ctrl_c_ends_the_command(shell: Shell) -> None:
    shell.type("$FENCELOCK run job -- sh -c 'echo star''ted; exec sleep 100'")
    shell.expect("started")
    shell.press(b"\x03")
    shell.ask("echo status=$?", "status=130")


# `exec sleep`, since a Ctrl-C that comes while a shell forks its last command may be lost in that shell.


def test_ctrl_c_ends_the_loop_around_it(shell: Shell) -> None:
    shell.type("for i in 1 2 3; do $FENCELOCK run job -- sh -c 'echo round:'$i'; exec sleep 100'; done; echo")
    shell.expect("round:1")
    shell.press(b"\x03")
    before = shell.ask("echo after''wards", "(?s).*afterwards")[0]
    assert "round:2" not in before


def test_ctrl_c_ends_a_script_around_it(shell: Shell, tmp_path: Path) -> None:
    script = tmp_path / "script.sh"
    script.write_text("#!/bin/bash\n$FENCELOCK run job -- sh -c 'echo first; exec sleep 100'\necho second\n")
    script.chmod(0o755)
    shell.type(str(script))
    shell.expect("first")
    shell.press(b"\x03")
    before = shell.ask("echo after''wards", "(?s).*afterwards")[0]
    assert "second" not in before


def test_ctrl_z_and_fg(shell: Shell) -> None:
    shell.type(
        """$FENCELOCK run --ttl 60s job -- sh -c 'echo as''k; read line; echo "got:$line"'; echo status=$?"""
    )
    shell.expect("ask")
    shell.press(b"\x1a")
    shell.expect("Stopped")
    shell.expect("status=148")  # 128 + SIGTSTP
    shell.type("$FENCELOCK ls")  # the shell has the terminal, the command its lock
    shell.expect("job")
    shell.type("fg")
    time.sleep(0.5)
    shell.type("hello")
    shell.expect("got:hello")
    shell.type("$FENCELOCK ls")
    shell.expect("No lock is held")


def test_background_command_that_wants_to_read(shell: Shell) -> None:
    shell.type("""$FENCELOCK run --ttl 60s job -- sh -c 'echo as''k; read line; echo "got:$line"' &""")
    shell.expect("ask")
    shell.type("sleep 0.5; jobs")
    shell.expect("Stopped")
    shell.type("fg")
    time.sleep(0.5)
    shell.type("hello")
    shell.expect("got:hello")


def test_pipe_and_prompt(shell: Shell) -> None:
    """In a pipeline the reader keeps the terminal; the command gets it when it asks for it."""
    shell.type(
        """$FENCELOCK run job -- sh -c 'echo as''k; read line; echo "got:$line"' | cat; echo status=$?"""
    )
    shell.expect("ask")
    shell.type("hello")
    shell.expect("got:hello")
    shell.expect("status=0")


def test_lock_that_was_waited_for_at_the_terminal(shell: Shell) -> None:
    shell.type("$FENCELOCK run job -- sleep 100 & sleep 1")
    shell.type("$FENCELOCK run job -- echo ran")
    time.sleep(2)
    shell.press(b"\x03")
    shell.ask("echo status=$?", "status=130")
    shell.type("$FENCELOCK show job --json | grep -c client; kill %1; wait")
    shell.expect(r"(?m)^1\s*$")


def test_live_tables(shell: Shell) -> None:
    shell.type("$FENCELOCK run job$'\\x1b'[31m -- sleep 100 & sleep 1")
    shell.type("TERM=xterm $FENCELOCK ls; echo list''ed")
    shell.expect(r"job\\x1b\[31m")
    shell.expect("listed")
    shell.type("TERM=xterm $FENCELOCK watch --interval 100ms; echo status=$?")
    shell.expect(r"job\\x1b\[31m")
    shell.press(b"\x03")
    shell.expect("status=130")
    shell.type("TERM=xterm $FENCELOCK break job$'\\x1b'[31m; echo status=$?")
    shell.expect(r"Break 'job\\x1b\[31m'\?")
    shell.type("n")
    shell.expect("nothing was broken")
    shell.expect("status=1")
    shell.type("$FENCELOCK break job$'\\x1b'[31m; echo status=$?")
    shell.expect(r"Break 'job\\x1b\[31m'\?")
    shell.type("y")
    shell.expect("status=0")
