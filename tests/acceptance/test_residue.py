"""Many names, each locked and released once, leave no more behind than the first thousand did.

A user locks `job-uuid#send_email`, once per job, for ever: whatever is kept per name, a counter, a
row, a dictionary entry, fills the store in the end. Counted in memory: the entries of the store
and of the client's tables, threads, and the memory of the process. In SQLite: the rows of every
table, the pages and bytes of the file and its log after a checkpoint.

FENCELOCK_NAMES is how many in memory, and ten times as many as in SQLite: a million for the whole proof.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from crew import Crew

IN_MEMORY = int(os.environ.get("FENCELOCK_NAMES", "100000"))
IN_SQLITE = IN_MEMORY // 10
NOISE = 2 * 1024
"""KiB by which the memory of a process may drift without anyone keeping anything: 2 bytes a name."""
THREADS = 3
"""The main one, and the two services of a client, which come and go as they are needed."""
LOG = 5 * 1024 * 1024
"""SQLite writes its log back every 1,000 pages, so it stays near 4 MiB however long one goes on."""


def looked(*args: object) -> tuple[dict[str, Any], dict[str, Any]]:
    with Crew() as crew:
        worker = crew.start("many_names", *args)
        first, last = worker.hear(seconds=120), worker.hear(seconds=240)
        assert worker.end() == 0, worker.errors
    return first, last


def test_many_names_in_memory(record_property) -> None:
    first, last = looked("memory", IN_MEMORY)
    record_property("rss growth in KiB", last["rss"] - first["rss"])
    print(f"rss: {first['rss']} KiB after 1,000 names, {last['rss']} KiB after {IN_MEMORY:,}")
    assert last["sizes"] == first["sizes"]
    assert last["sizes"]["queues"] == 0
    assert last["threads"] <= THREADS
    assert last["rss"] <= first["rss"] + NOISE


def test_many_names_in_sqlite(tmp_path: Path, record_property) -> None:
    first, last = looked("sqlite", IN_SQLITE, tmp_path / "locks.db")
    for measure in ("pages", "files", "wal_before_checkpoint", "rss"):
        record_property(measure, f"{first[measure]} then {last[measure]}")
    print(f"after 1,000 names {first}\nafter {IN_SQLITE:,} {last}")
    assert last["sizes"] == first["sizes"]
    assert last["sizes"]["queue"] == 0
    assert last["pages"] <= first["pages"]
    assert sum(last["files"].values()) <= sum(first["files"].values())
    assert last["files"].keys() <= first["files"].keys()
    assert last["wal_before_checkpoint"] <= LOG
    assert last["threads"] <= THREADS
    assert last["rss"] <= first["rss"] + NOISE
