"""What a lock, a waiter and a renewal cost: memory in the server and in the client, processor on both sides.

    python -m bench sizing                       all backends: `bench/results/sizes.json`
    python -m bench.suites.sizing redis          one, as JSON

Each backend has a process of its own, with a new server: memory that an earlier one has left free would hide
what a lease takes. The server's memory is what the server itself says where it says anything of use: what is
stored, not what the process has taken from the system. The client's is what Python has allocated, as
tracemalloc counts it. Two sizes are measured and their difference is divided, so what is there without any
lock does not count.

A sweep renews all leases once, as the renewer does. The processor time of both sides during it tells what is
full first: a client is one process with one interpreter, so it is full at one second a second; a server at as
many as it has processors that it can use.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tools.servers import start

import fencelock
from bench.measure import Figure, Result, Suite
from bench.suites.leases import TTL, held, sweep

__all__ = ["SUITE"]

RESULTS = Path(__file__).parents[1] / "results"
FEW, MANY = (int(number) for number in os.environ.get("FENCELOCK_SIZES", "200,1200").split(","))
"""Leases: what is between the two is divided."""
WAITERS = (20, int(os.environ.get("FENCELOCK_WAITERS", "120")))
ROUNDS = 5
PAIRS = 300
TICK = os.sysconf("SC_CLK_TCK")


class Place(NamedTuple):
    """Where locks are kept, and how much that takes there."""

    url: str
    version: str
    stored: Callable[[], int]
    pids: Sequence[int]


@contextmanager
def sqlite() -> Iterator[Place]:
    import sqlite3

    with tempfile.TemporaryDirectory(prefix="fencelock-bench-") as folder:

        def stored() -> int:
            with sqlite3.connect(f"{folder}/locks.db") as db:
                pages, free, size = (
                    db.execute(f"PRAGMA {word}").fetchone()[0]
                    for word in ("page_count", "freelist_count", "page_size")
                )
            return int((pages - free) * size)

        yield Place(f"sqlite://{folder}/locks.db", sqlite3.sqlite_version, stored, [])


@contextmanager
def server(kind: str, stored: Callable[[Any], int], **settings: str) -> Iterator[Place]:
    with start(kind, settings=settings) as group:
        member = group.members[0]
        yield Place(group.url, group.version(), lambda: stored(member), [member.pid])


def redis_says(member: Any) -> int:
    found = re.search(r"used_memory_dataset:(\d+)", _text(member.ask("INFO", "memory")))
    assert found is not None
    return int(found[1])


def _text(said: Any) -> str:
    return said.decode() if isinstance(said, bytes) else str(said)


def postgres_says(member: Any) -> int:
    member.query("VACUUM fencelock.queue")
    return int(member.query("SELECT pg_total_relation_size('fencelock.queue')"))


def mariadb_says(member: Any) -> int:
    member.query("ANALYZE TABLE fencelock_queue")
    sizes = "SELECT data_length + index_length FROM information_schema.TABLES"
    return int(member.query(f"{sizes} WHERE table_name = 'fencelock_queue'"))


def zookeeper_says(member: Any) -> int:
    found = re.search(r"zk_approximate_data_size\s+(\d+)", member.ask("mntr"))
    assert found is not None
    return int(found[1])


def etcd_says(member: Any) -> int:
    said = member.ask("maintenance/status", {})
    revision = int(said["header"]["revision"])
    member.ask("kv/compaction", {"revision": revision, "physical": True})
    return int(member.ask("maintenance/status", {})["dbSizeInUse"])


def consul_says(member: Any) -> int:
    """Consul does not tell: the memory of its process."""
    return int(Path(f"/proc/{member.pid}/statm").read_text().split()[1]) * 4096


WHAT = {
    "sqlite": "pages in use of the file",
    "redis": "used_memory_dataset",
    "postgres": "pg_total_relation_size of the queue",
    "mariadb": "data and index of the queue's table",
    "zookeeper": "zk_approximate_data_size",
    "etcd": "size in use, compacted",
    "consul": "memory of the process",
}
PLACES: dict[str, Callable[[], Any]] = {
    "sqlite": sqlite,
    "redis": lambda: server("redis", redis_says),
    "postgres": lambda: server("postgres", postgres_says),
    "mariadb": lambda: server("mariadb", mariadb_says),
    "zookeeper": lambda: server("zookeeper", zookeeper_says, maxSessionTimeout="600000"),
    "etcd": lambda: server("etcd", etcd_says),
    "consul": lambda: server("consul", consul_says, limits='{"http_max_conns_per_client": 2000}'),
}


def processor(pids: Sequence[int]) -> float:
    """Return the seconds of processor that these processes and those that they have ended took."""
    taken = 0
    for pid in [*pids, *(child for parent in pids for child in _children(parent))]:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        taken += sum(int(word) for word in words[11:13])
    return taken / TICK


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def sizes(kind: str) -> dict[str, Any]:
    """Measure one backend."""
    with PLACES[kind]() as place:
        waiting = asyncio.run(_waiters(place))  # first: room that leases have left would hide them
        with fencelock.Client(place.url) as locks:
            pairs = [_pairs(locks) for _ in range(ROUNDS)]
        stored = []
        for count in (FEW, MANY):
            with held(place.url, count) as locks:
                stored.append(place.stored())
                if count == MANY:
                    sweeps, client, busy = _sweeps(locks, place.pids)
        memory = [_taken_by(place.url, count) for count in (FEW, MANY)]
        return {
            "kind": kind,
            "version": place.version,
            "measured": WHAT[kind],
            "leases": MANY,
            "waiters": WAITERS[1],
            "server_lock": max(0, stored[1] - stored[0]) / (MANY - FEW),
            "client_lease": max(0, memory[1] - memory[0]) / (MANY - FEW),
            "server_waiter": max(0, waiting[1][0] - waiting[0][0]) / (WAITERS[1] - WAITERS[0]),
            "client_waiter": max(0, waiting[1][1] - waiting[0][1]) / (WAITERS[1] - WAITERS[0]),
            "pair": pairs,
            "renewal": [seconds / MANY for seconds in sweeps],
            "client_processor": client / (ROUNDS * MANY),
            "server_processor": busy / (ROUNDS * MANY),
        }


def _taken_by(url: str, count: int) -> int:
    """Return what so many leases take in the client."""
    tracemalloc.start()
    try:
        with held(url, count):
            return allocated()
    finally:
        tracemalloc.stop()


def allocated() -> int:
    """Return the bytes that Python has allocated since tracemalloc counts."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def _pairs(locks: fencelock.Client) -> float:
    lock = locks.lock("pair", ttl=TTL)
    started = time.perf_counter()
    for _ in range(PAIRS):
        lock.acquire().release()
    return (time.perf_counter() - started) / PAIRS


def _sweeps(locks: fencelock.Client, pids: Sequence[int]) -> tuple[list[float], float, float]:
    """Return the seconds of each sweep, and the processor time of the client and of the server in all."""
    sweep(locks)
    client, busy = time.process_time(), processor(pids)
    rounds = [sweep(locks) for _ in range(ROUNDS)]
    return rounds, time.process_time() - client, processor(pids) - busy


async def _waiters(place: Place) -> list[tuple[int, int]]:
    """Let few and then many wait for one lock; return what is stored then, and the client's memory."""
    found: list[tuple[int, int]] = []
    tasks: list[asyncio.Task[Any]] = []
    tracemalloc.start()
    async with fencelock.AsyncClient(place.url) as locks:
        lease = await locks.lock("waited-for", ttl=TTL).acquire()
        for count in WAITERS:
            lock = locks.lock("waited-for", ttl=TTL)
            tasks += [asyncio.create_task(lock.acquire()) for _ in range(count - len(tasks))]
            while len((await locks.inspect("waited-for")).waiters) < count:
                await asyncio.sleep(0.2)
            found.append((await asyncio.to_thread(place.stored), allocated()))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await lease.release()
    tracemalloc.stop()
    return found


def measure(progress: Callable[[str], None]) -> Sequence[Result]:
    """Measure every backend; keep the whole table beside the figures that are plotted."""
    before, found = os.getloadavg()[0], []
    for kind in PLACES:
        progress(f"{kind}: {MANY} leases, {WAITERS[1]} waiters")
        # Its package has imported it already, of which runpy warns.
        command = [sys.executable, "-W", "ignore::RuntimeWarning:runpy", "-m", "bench.suites.sizing", kind]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=1800)
        found.append(json.loads(done.stdout.splitlines()[-1]))
    RESULTS.mkdir(exist_ok=True)
    about = {"processors": os.cpu_count(), "load": before, "python": platform.python_version()}
    (RESULTS / "sizes.json").write_text(json.dumps({**about, "backends": found}, indent=1) + "\n")
    return [
        Result(
            "Renewals, one client",
            [Figure(one["kind"], "fencelock", one["renewal"]) for one in found],
            rate=True,
        ),
        Result(
            "Acquire and release, one client",
            [Figure(one["kind"], "fencelock", one["pair"]) for one in found],
        ),
    ]


SUITE = Suite(
    "sizing", "what locks, waiters and renewals cost on each backend, in memory and processor", measure
)

if __name__ == "__main__":
    print(json.dumps(sizes(sys.argv[1])))
