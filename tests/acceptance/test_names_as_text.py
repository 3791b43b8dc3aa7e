"""What others wrote is text: in pipes, on a terminal, in logs and in errors, and columns stay in line.

Names, programs, hosts and metadata come from whoever takes a lock. Here they carry markup, commands for
terminals, line ends, and signs that turn text round or take two columns or none.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cli_helpers import FENCELOCK, PATIENCE, environment, fencelock_command, running
from crew import sqlite_url, wait_until
from rich.cells import cell_len
from sqlalchemy import create_engine
from test_terminal import TAKE_TERMINAL

import fencelock
from fencelock import jobs

ESCAPES = "\x1b]0;owned\x07\x1b[6n\x9b6n"
HOST = "host\x1b[6n\u202e[bold]"
PROGRAM = "program\r\n\x1b]0;owned\x07鎖"
METADATA = {"\x1b[6n": ["\u2066", "<b>", "\0"]}
NAMES = {
    "plain": "plain",
    "<script>alert(1)</script>": "<script>alert(1)</script>",
    f"esc {ESCAPES}": r"esc \x1b]0;owned\x07\x1b[6n\x9b6n",
    "two\r\nlines": r"two\r\nlines",
    "turned \u202egnp.exe": r"turned \u202egnp.exe",
    "hidden \u200b\u2060": r"hidden \u200b\u2060",
    "wide 発注 🔒": "wide 発注 🔒",
    "marks हिन्दी e\u0301": "marks हिन्दी e\u0301",
    "markup [red]x[/red] :lock:": "markup [red]x[/red] :lock:",
    "back\\slash": "back\\\\slash",
}
"""Each as it is, and as it is shown."""
OWN = re.compile(r"\x1b\[(?:[0-9;]*m|\?(?:25|7|1049)[hl]|[0-9]*[ABJKH])")
"""What fencelock itself sends to a terminal: colours, moves and erasing, none of it in the names."""
CLOCK = re.compile(r"^\d\d:\d\d:\d\d\.\d{3} ")


class Shop(NamedTuple):
    url: str
    held: dict[str, fencelock.Lease]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Every name is held, and one is waited for, by a program and on a host that mean no good."""
    url = sqlite_url(tmp_path_factory.mktemp("shop"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("socket.gethostname", lambda: HOST)
        with fencelock.Client(url, client_name=PROGRAM) as locks:
            held = {name: locks.lock(name, ttl=600, metadata=METADATA).acquire() for name in NAMES}
            waiter = threading.Thread(target=_waits, args=(locks, f"esc {ESCAPES}"))
            waiter.start()
            wait_until(lambda: locks.inspect(f"esc {ESCAPES}").waiters, "somebody waits")
            yield Shop(url, held)
            locks.force_release(f"esc {ESCAPES}")
            waiter.join()


def _waits(locks: fencelock.Client, name: str) -> None:
    locks.lock(name, ttl=600, metadata=METADATA, timeout=600).acquire().release()


def is_harmless(text: str) -> bool:
    """Whether a terminal does nothing but show it, line by line."""
    return all(char.isprintable() or char == "\n" for char in text)


def on_terminal(url: str, *args: str, until: str = "", keys: str = "", columns: int = 260) -> str:
    """Run a command on a terminal; once it has written `until`, press keys; return all that it wrote."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    env = {key: value for key, value in environment(url).items() if key not in {"COLUMNS", "LINES"}}
    command = [sys.executable, "-c", TAKE_TERMINAL, os.ttyname(theirs), FENCELOCK, *args]
    files = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    process = subprocess.Popen(
        command, start_new_session=True, env={**env, "TERM": "xterm-256color"}, **files
    )
    os.close(theirs)
    text = ""
    try:
        while select.select([ours], [], [], PATIENCE)[0]:
            try:
                text += os.read(ours, 65536).decode()
            except OSError:
                break  # the other side is gone
            if until and until in text:
                until = ""
                os.write(ours, keys.encode())
        process.wait(PATIENCE)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(ours)
    return text


def drawn(raw: str) -> str:
    """Return what a terminal was given, without fencelock's own commands."""
    return OWN.sub("", raw).replace("\r\n", "\n").replace("\r", "\n")


def in_line(lines: Sequence[str], word: str) -> bool:
    """Whether a word begins in the same column of all lines, as terminals count columns."""
    return len({cell_len(line.partition(word)[0]) for line in lines}) == 1


def rows(text: str) -> list[str]:
    """Return the lines of all names, one for each."""
    found = [[line for line in text.splitlines() if line.startswith(f"{shown} ")] for shown in NAMES.values()]
    assert all(found), f"not all names in:\n{text}"
    return [lines[-1] for lines in found]


LISTS = [("ls",), ("top", "--once", "--sort", "name")]
OTHERS = [
    ("show", f"esc {ESCAPES}"),
    ("show", f"free {ESCAPES}"),
    ("ls", f"none {ESCAPES}"),
    ("break", f"free {ESCAPES}", "--yes"),
    ("break", f"esc {ESCAPES}", "--owner", ESCAPES, "--yes"),
    ("run", f"esc {ESCAPES}", "--try", "--", "true"),
    ("run", "job", "--", f"no such {ESCAPES}"),
    ("doctor",),
    ("ls", "--url", f"nonsense{ESCAPES}"),
    ("ls", "--url", f"sqlite:///{ESCAPES}/locks.db"),
]


@pytest.mark.parametrize("command", LISTS, ids=" ".join)
def test_lists(shop: Shop, command: tuple[str, ...]) -> None:
    piped = fencelock_command(shop.url, *command)
    assert (piped.returncode, piped.stderr) == (0, "")
    raw = on_terminal(shop.url, *command)
    for text in (piped.stdout, drawn(raw)):
        assert is_harmless(text), text
        assert in_line(rows(text), "exclusive"), text
        assert in_line(rows(text), str(os.getpid())), text
        assert r"program\r\n\x1b]0;owned\x07鎖 host\x1b[6n\u202e[bold]:" in text


@pytest.mark.parametrize("command", OTHERS, ids=lambda words: " ".join(words).split("esc")[0][:20])
def test_one_line_each(shop: Shop, command: tuple[str, ...]) -> None:
    piped = fencelock_command(shop.url, *command)
    for text in (piped.stdout, piped.stderr, drawn(on_terminal(shop.url, *command))):
        assert is_harmless(text), text
        assert "Traceback" not in text
    assert piped.stdout + piped.stderr
    if piped.returncode not in {0, 1}:
        assert piped.stderr.count("\n") == 1, "one clear line"


def test_show_has_the_metadata(shop: Shop) -> None:
    text = fencelock_command(shop.url, "show", f"esc {ESCAPES}").stdout
    assert r'{"\u001b[6n": ["\u2066", "<b>", "\u0000"]}' in text
    assert in_line(text.splitlines()[1:], "exclusive")


@pytest.mark.parametrize("command", [("ls", "--json"), ("show", "--json", f"esc {ESCAPES}")], ids=" ".join)
def test_json_is_ascii_and_says_all(shop: Shop, command: tuple[str, ...]) -> None:
    text = fencelock_command(shop.url, *command).stdout
    assert text.isascii() and is_harmless(text)
    told: Any = json.loads(text)
    states = {state["name"]: state for state in (told if isinstance(told, list) else [told])}
    assert set(states) == (set(NAMES) if isinstance(told, list) else {f"esc {ESCAPES}"})
    (holder,) = states[f"esc {ESCAPES}"]["holders"]
    (waiter,) = states[f"esc {ESCAPES}"]["waiters"]
    for entry in (holder, waiter):
        assert (entry["client"], entry["host"], entry["metadata"]) == (PROGRAM, HOST, METADATA)


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
def test_watch_in_a_pipe(shop: Shop, options: tuple[str, ...]) -> None:
    with running(shop.url, "watch", *options) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(len(NAMES) + 1)]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (130, "")
    assert is_harmless("".join(lines) + out)
    if options:
        assert {json.loads(line)["name"] for line in lines} == set(NAMES)
    else:
        told = {CLOCK.sub("", line).removeprefix("held     ").partition("  ")[0] for line in lines}
        assert set(NAMES.values()) <= told


@pytest.mark.parametrize(
    ("command", "key"), [(("top", "--sort", "name"), "q"), (("watch",), "\x03")], ids=["top", "watch"]
)
def test_live(shop: Shop, command: tuple[str, ...], key: str) -> None:
    raw = on_terminal(shop.url, *command, until=r"two\r\nlines", keys=key)
    text = drawn(raw).removesuffix("^C").replace("^C", "")
    assert is_harmless(text), text
    assert in_line(rows(text), "exclusive"), text


def test_break_asks_in_plain_words(shop: Shop) -> None:
    raw = on_terminal(shop.url, "break", f"esc {ESCAPES}", until="[y/N]", keys="n\r")
    assert is_harmless(drawn(raw)), raw
    assert r"esc \x1b]0;owned\x07\x1b[6n\x9b6n" in raw
    assert shop.held[f"esc {ESCAPES}"].is_held()


def test_jobs(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/app.db")
    table = jobs.Table(engine)
    table.create()
    for kind in NAMES:
        table.enqueue(kind, METADATA, key=kind)
    engine.dispose()
    command = ("jobs", "ls", "--db", f"sqlite:///{tmp_path}/app.db")
    piped = fencelock_command("memory://", *command)
    for text in (piped.stdout, drawn(on_terminal("memory://", *command))):
        assert is_harmless(text), text
        lines = [line for line in text.splitlines() if " pending " in line and "now" in line]
        assert len(lines) == len(NAMES)
        assert in_line(lines, "pending"), text
        assert all(any(shown in line for line in lines) for shown in NAMES.values())


def test_errors_and_logs(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever logs an error, or has none but the lines of the log, sees one line of text as well."""
    name = f"lost {ESCAPES}\r\n\u202e"
    with (
        caplog.at_level(logging.DEBUG, "fencelock"),
        fencelock.Client(shop.url, client_name=PROGRAM) as locks,
    ):
        lease = locks.lock(name, ttl=1, metadata=METADATA).acquire()
        locks.force_release(name)
        assert lease.lost.wait(30)
        errors: list[BaseException] = []
        for act in (
            lease.check,
            locks.lock(f"esc {ESCAPES}", timeout=0.05).acquire,
            lambda: locks.lock("job\0" + name),
            lambda: fencelock.Client(f"nonsense{ESCAPES}://"),
        ):
            with pytest.raises(fencelock.FencelockError) as caught:
                act()
            errors.append(caught.value)
    told = [record.getMessage() for record in caplog.records if record.name.startswith("fencelock")]
    assert any("lost" in line for line in told)
    for line in [*told, *map(str, errors)]:
        assert line.isprintable(), line
