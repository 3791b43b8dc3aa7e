"""Threads that share a client of ZooKeeper, through interrupts and cut connections."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from crew import wait_until
from redis_desk import proxied
from tools.servers import start
from zookeeper_desk import znodes

from fencelock import Client, FencelockError

SECONDS = 4.0
PATIENCE = 20.0
THREADS = 6


@pytest.fixture(scope="module")
def group() -> Iterator[Any]:
    with start("zookeeper") as group:
        yield group


@pytest.fixture
def server(group: Any) -> Iterator[Any]:
    threads = threading.active_count()
    yield group.members[0]
    wait_until(lambda: not znodes(group.members[0]), "no znode is left", PATIENCE)
    wait_until(lambda: threading.active_count() <= threads, "no thread is left", PATIENCE)


class Interrupted(BaseException):
    """What Ctrl-C is to a program."""


class Alarm:
    """Interrupts the main thread now and then, at any point of what it does."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.rung = 0
        self.is_on = False

    def __enter__(self) -> Alarm:
        self._before = signal.signal(signal.SIGALRM, self._ring)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    def set(self) -> None:
        self.is_on = True
        signal.setitimer(signal.ITIMER_REAL, self._chance.uniform(0.0001, 0.02))

    def _ring(self, *_: object) -> None:
        if self.is_on:
            self.is_on = False
            self.rung += 1
            raise Interrupted


def all_go_on(threads: Sequence[threading.Thread], turns: list[int], over: threading.Event) -> None:
    """Each thread has another turn, and then ends."""
    before = list(turns)
    wait_until(
        lambda: all(now > then for now, then in zip(turns, before, strict=True)), "all go on", PATIENCE
    )
    over.set()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_interrupts_at_any_moment(group: Any, server: Any) -> None:
    """An interrupt of one thread costs no other its answer, and leaves no znode."""
    over = threading.Event()
    inside: list[int] = []
    turns = [0] * THREADS

    def work(locks: Client, number: int) -> None:
        while not over.is_set():
            with locks.lock("job", ttl=20, timeout=PATIENCE):
                inside.append(number)
                assert inside == [number]
                inside.remove(number)
                turns[number] += 1

    with Client(group.url) as locks, Alarm(7) as alarm:
        threads = [threading.Thread(target=work, args=(locks, n), daemon=True) for n in range(THREADS)]
        for thread in threads:
            thread.start()
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            lease = None
            try:
                alarm.set()
                lease = locks.lock("job", ttl=20, timeout=PATIENCE).acquire()
                lease.release()
            except Interrupted:
                pass
            finally:
                alarm.is_on = False
            if lease is not None:
                lease.release()
        all_go_on(threads, turns, over)
    assert alarm.rung > 20


def test_connections_that_are_cut_while_threads_share_them(group: Any, server: Any) -> None:
    over = threading.Event()
    inside: list[int] = []
    wrong: list[object] = []
    turns = [0] * THREADS

    def work(locks: Client, number: int) -> None:
        name = f"job-{number % 2}"
        while not over.is_set():
            with suppress(FencelockError), locks.lock(name, ttl=20, timeout=PATIENCE):
                inside.append(number)
                if [one for one in inside if one % 2 == number % 2] != [number]:
                    wrong.append(list(inside))
                inside.remove(number)
                turns[number] += 1

    with proxied(group.url) as (proxy, url), Client(url) as locks:
        threads = [threading.Thread(target=work, args=(locks, n), daemon=True) for n in range(THREADS)]
        for thread in threads:
            thread.start()
        until = time.monotonic() + SECONDS
        chance = random.Random(7)
        while time.monotonic() < until:
            time.sleep(chance.uniform(0.05, 0.4))
            proxy.reset()
        all_go_on(threads, turns, over)
    assert not wrong


INTERRUPTED = """
import sys, threading, time
from fencelock import Client
from fencelock.testing.conformance.scripts import Interrupter, _expect_loose_ends, _interrupted

def threads():
    return [thread for thread in threading.enumerate() if thread.name == "fencelock-zookeeper"]

def until(most):
    deadline = time.monotonic() + 10
    while len(threads()) > most and time.monotonic() < deadline:
        time.sleep(0.01)
    return len(threads())

_expect_loose_ends()
client = Client(sys.argv[1])
places = 0
while True:
    interrupter = Interrupter(places + 1)
    _interrupted(client.lock("job", ttl=20, timeout=10), interrupter, [])
    if not interrupter.where:
        break
    places += 1
at_work = until(2)
client.close()
print(places, at_work, until(0))
"""


def test_a_session_whose_beginning_was_interrupted_is_ended(group: Any) -> None:
    """One session for those who hold and one for those who wait, wherever Ctrl-C came; none in the end."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, group.url],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    places, at_work, closed = map(int, done.stdout.split())
    assert places > 200
    assert (at_work, closed) == (2, 0)
