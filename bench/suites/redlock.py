"""Redlock of five: the uncontended pair, all nodes well and one of them hung.

The limit is what the network and the servers take by themselves: a packed command to five blocking sockets,
then five replies, twice; no token, nothing kept. fencelock returns at a quorum and has everything on. Peers
are shown with all nodes well: with one hung most of them take a tenth of a second for a pair, or hang.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Sequence

import hiredis
from tools.servers import Group, start

import fencelock
from bench.children import Field, finished
from bench.measure import Contestant, Figure, Result, Run, Suite, interleave, named, timed
from bench.peers import Entry
from bench.suites.targets import ratio, to_limit
from bench.verdict import Verdict
from fencelock.backends.redis.commands import pack
from fencelock.backends.redlock import RedlockBackend

__all__ = ["SUITE"]

ROUNDS, COUNT = 11, 200
PEERS = [
    Entry("redlock-ng", "redlock_ng", environment="redlock-ng"),
    Entry("redlock-py", "redlock_py", environment="redlock-py"),
    Entry("pottery", "pottery", environment="pottery"),
]
ASYNC_PEERS = [
    Entry("redlock-ng, asyncio", "redlock_ng", environment="redlock-ng"),
    Entry("aioredlock", "aioredlock", environment="aioredlock"),
    Entry("pottery, asyncio", "pottery", environment="pottery"),
]
RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


@contextlib.contextmanager
def bare(group: Group) -> Iterator[Run]:
    """The limit: send to five sockets, then read five."""
    with contextlib.ExitStack() as stack:
        places = [(member.host, member.port) for member in group.members]
        sockets = [stack.enter_context(socket.create_connection(place)) for place in places]
        for sock in sockets:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        readers = [hiredis.Reader() for _ in sockets]

        def ask(command: bytes) -> object:
            for sock in sockets:
                sock.sendall(command)
            for sock, reader in zip(sockets, readers, strict=True):
                reply = reader.gets()
                while reply is False:
                    reader.feed(sock.recv(65536))
                    reply = reader.gets()
            return reply

        sha = ask(pack("SCRIPT", "LOAD", RELEASE))
        assert isinstance(sha, bytes)
        acquire = pack("SET", "bare", "owner", "NX", "PX", 30000)
        release = pack("EVALSHA", sha, 1, "bare", "owner")

        def pair() -> None:
            ask(acquire)
            ask(release)

        yield timed(pair)


@contextlib.contextmanager
def blocking(group: Group, hung: bool = False) -> Iterator[Run]:
    with fencelock.Client(RedlockBackend.from_url(group.url)) as locks:
        lock = locks.lock("hung" if hung else "blocking")

        def pair() -> None:
            with lock:
                pass

        pair()
        yield with_one_hung(group, timed(pair)) if hung else timed(pair)


@contextlib.contextmanager
def asynchronous(group: Group, hung: bool = False) -> Iterator[Run]:
    loop = asyncio.new_event_loop()
    locks = fencelock.AsyncClient(RedlockBackend.from_url(group.url))
    lock = locks.lock("hung asyncio" if hung else "asyncio")

    async def pairs(count: int) -> float:
        started = time.perf_counter()
        for _ in range(count):
            async with lock:
                pass
        return time.perf_counter() - started

    def run(count: int) -> float:
        return loop.run_until_complete(pairs(count))

    try:
        run(1)
        yield with_one_hung(group, run) if hung else run
    finally:
        loop.run_until_complete(locks.close())
        loop.close()


def with_one_hung(group: Group, run: Run) -> Run:
    """One node stands still while it runs, from before the first request on."""

    def hung(count: int) -> float:
        group.members[0].pause()
        try:
            return run(count)
        finally:
            group.members[0].resume()
            run(1)  # what it was sent meanwhile is answered, and not in the next round

    return hung


def redlock(progress: Callable[[str], None]) -> Sequence[Result]:
    with start("redlock") as group:
        contestants = [
            Contestant("five sockets, sent to, then read", lambda: bare(group), "limit"),
            Contestant("fencelock, blocking", lambda: blocking(group), "fencelock"),
            Contestant("fencelock, asyncio", lambda: asynchronous(group), "fencelock"),
            Contestant("fencelock, blocking, one node hung", lambda: blocking(group, True), "fencelock"),
            Contestant("fencelock, asyncio, one node hung", lambda: asynchronous(group, True), "fencelock"),
        ]
        field = Field(" ".join(f"redis://{member.host}:{member.port}" for member in group.members), progress)
        with (
            field.contestants(PEERS, "pairs") as peers,
            field.contestants(ASYNC_PEERS, "tasks", {"tasks": 1}) as others,
        ):
            all_of_them = [*contestants, *peers, *others]
            figures = finished(interleave(all_of_them, rounds=ROUNDS, count=COUNT, progress=progress))
    title = "Uncontended pair on redlock:// of five"
    return [Result(title, figures, field.notes(), verdicts=judged(figures), key="redlock")]


def judged(figures: Sequence[Figure]) -> list[Verdict]:
    """Judge both flavours, token included: with all nodes well, and with one hung beside that."""
    said = []
    for flavour, target in (("blocking", 1.5), ("asyncio", 1.8)):
        name = f"fencelock, {flavour}"
        said += to_limit(figures, target, name, key=flavour)
        hung = named(figures, f"{name}, one node hung")
        what = f"{name}, one node hung: to all nodes well"
        said += ratio(what, hung, named(figures, name), 2, key=f"{flavour}-hung")
    return said


SUITE = Suite(
    "redlock", "acquire-release pair on Redlock of five beside its peers, and with one node hung", redlock
)
