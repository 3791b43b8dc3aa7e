"""Instructions for one pair, as callgrind counts them: untouched by noise, compared with the commit before.

A program does many pairs and then more; the difference, divided, is what one pair takes: the start of the
interpreter, imports and connections are in both. Only the client is counted, never a server, and with it
all of its threads. Hashes have no seed, and the garbage collector is off.

Not promised: that fewer instructions are faster. A system call is one instruction here and the waiting for a
server none; this tells what Python does, and finds a change of a percent that no clock finds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tools.servers import packages, start

from bench.effort import QUICK
from bench.instructions import changes, collected, load, reservation
from bench.measure import Figure, Result, Suite
from bench.peers import Entry
from bench.suites.pair import ROWS, database
from bench.suites.targets import to_limit

__all__ = ["SUITE"]

ROOT = Path(__file__).parents[2]
FEW, MANY = (5, 15) if QUICK else (100, 300)
SECONDS = 600.0

BLOCKING = Entry("fencelock, blocking", "ours", "fencelock")
ASYNCIO = Entry("fencelock, asyncio", "ours", "fencelock", drill="asyncio")
MEMORY = [Entry("threading.Lock", "mutex", "limit"), BLOCKING, ASYNCIO]
SQLITE = [ROWS, BLOCKING, ASYNCIO, Entry("filelock, object kept", "file_lock")]
REDIS = [
    Entry("raw socket, SET and script", "raw", "limit"),
    BLOCKING,
    ASYNCIO,
    Entry("redis-py Lock", "redis_py"),
    Entry("redis.asyncio Lock", "redis_py", drill="asyncio"),
]


def command(entry: Entry, url: str, count: int) -> list[str]:
    words = ["-m", "bench.peers.counted", entry.adapter, entry.drill or "blocking", url]
    return [sys.executable, *words, str(count), json.dumps(dict(entry.options))]


def run(words: Sequence[str]) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{words[0]} ended with status {done.returncode}: {done.stderr[-400:]}")


def counted(entry: Entry, url: str, count: int) -> int:
    """Return how many instructions it takes to start, and do so many pairs."""
    with tempfile.TemporaryDirectory(prefix="fencelock-bench-") as folder:
        out = Path(folder, "callgrind.out")
        tool = [packages.program("valgrind"), "--tool=callgrind", f"--callgrind-out-file={out}"]
        run([*tool, *command(entry, url, count)])
        return collected(out.read_text(encoding="utf-8", errors="replace"))


def one_pair(entry: Entry, url: str, progress: Callable[[str], None]) -> Figure:
    progress(f"{entry.label} on {url.partition(':')[0]}://")
    run(command(entry, url, 1))  # what is compiled and made on first use is there then
    few, many = (counted(entry, url, count) for count in (FEW, MANY))
    return Figure(entry.label, entry.role, [(many - few) / (MANY - FEW)])


def on(url: str, place: str, entries: Sequence[Entry], progress: Callable[[str], None]) -> Result:
    figures = [one_pair(entry, url, progress) for entry in entries]
    kept = load()
    return Result(
        f"Instructions for one pair on {place}",
        figures,
        reservation(kept),
        verdicts=[
            *changes(figures, place, kept),
            *to_limit(figures, None, BLOCKING.label),
            *to_limit(figures, None, ASYNCIO.label),
        ],
        key=f"instructions.{place}",
        unit="instructions",
    )


def measure(progress: Callable[[str], None]) -> Sequence[Result]:
    packages.install([packages.VALGRIND])
    with database() as url, start("redis") as group:
        return [
            on("memory://counted", "memory://", MEMORY, progress),
            on(url, "sqlite://", SQLITE, progress),
            on(group.url, "redis://", REDIS, progress),
        ]


SUITE = Suite("instructions", "instructions for one pair, compared with the commit before", measure)
