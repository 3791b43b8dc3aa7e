"""However a program ends, short of being killed, it leaves no lock and no waiter behind.

Real programs take a lock with a ttl of two minutes and end: at the end of the file, by an
exception, by `sys.exit`, by Ctrl-C while they hold and while they wait, with a thread that dies
with a lease in a local variable. Right after that the lock is free, which the ttl cannot explain.
The control ends by `os._exit`, which runs nothing: there the lock stays, as it must.
"""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest
from crew import Crew, sqlite_url, wait_until

import fencelock

INTERRUPTED = {130, -signal.SIGINT}


@pytest.mark.parametrize(
    ("way", "status"),
    [
        ("plain_end", 0),
        ("many", 0),
        ("sys_exit", 3),
        ("raises_inside", 1),
        ("raises_outside", 1),
        ("daemon_thread", 0),
        ("async_block_end", 0),
        ("async_never_closed", 0),
    ],
)
def test_the_end_of_a_program_releases(tmp_path: Path, way: str, status: int) -> None:
    with Crew() as crew, fencelock.Client(sqlite_url(tmp_path)) as locks:
        leaver = crew.start("leaver", tmp_path, way)
        token = leaver.hear()["token"]
        assert leaver.end() == status, leaver.errors
        assert ("RuntimeError" in leaver.errors) == way.startswith("raises"), leaver.errors
        assert locks.list() == []
        with locks.lock("job", timeout=0) as lease:
            assert lease.token > token


def test_the_control_does_not(tmp_path: Path) -> None:
    with Crew() as crew, fencelock.Client(sqlite_url(tmp_path)) as locks:
        leaver = crew.start("leaver", tmp_path, "hard_exit")
        token = leaver.hear()["token"]
        assert leaver.end() == 0
        (left,) = locks.inspect("job").holders
        assert left.token == token


@pytest.mark.parametrize("way", ["hold", "hold_in_hand", "async_hold"])
def test_ctrl_c_while_it_holds(tmp_path: Path, way: str) -> None:
    with Crew() as crew, fencelock.Client(sqlite_url(tmp_path)) as locks:
        leaver = crew.start("leaver", tmp_path, way)
        leaver.hear()
        leaver.signal(signal.SIGINT)
        assert leaver.end() in INTERRUPTED
        assert "KeyboardInterrupt" in leaver.errors
        assert locks.list() == []


@pytest.mark.parametrize("way", ["wait", "async_wait"])
def test_ctrl_c_while_it_waits(tmp_path: Path, way: str) -> None:
    with Crew() as crew, fencelock.Client(sqlite_url(tmp_path)) as locks:
        with locks.lock("job", ttl=60) as lease:
            leaver = crew.start("leaver", tmp_path, way)
            wait_until(lambda: locks.inspect("job").waiters, "it waits")
            leaver.signal(signal.SIGINT)
            assert leaver.end() in INTERRUPTED
            assert "KeyboardInterrupt" in leaver.errors
            state = locks.inspect("job")
            assert state.waiters == ()
            assert [holder.owner for holder in state.holders] == [lease.owner]
        assert locks.list() == []


@pytest.mark.parametrize("way", ["wait", "async_wait"])
def test_ctrl_c_in_the_hand_over(tmp_path: Path, way: str) -> None:
    """Interrupted while it waits, as it is granted, as it releases: nothing is left."""
    with Crew() as crew, fencelock.Client(sqlite_url(tmp_path)) as locks:
        lease = locks.lock("job", ttl=60).acquire()
        waiters = [crew.start("leaver", tmp_path, way) for _ in range(6)]
        wait_until(lambda: len(locks.inspect("job").waiters) == len(waiters), "all wait")
        for waiter in waiters[::2]:
            waiter.signal(signal.SIGINT)
        lease.release()  # the others race with it, and with each other
        for waiter in waiters[1::2]:
            waiter.signal(signal.SIGINT)
        for waiter in waiters:
            assert waiter.end() in INTERRUPTED | {0}, waiter.errors
        assert locks.list() == []


def test_the_death_of_a_thread_releases(tmp_path: Path) -> None:
    with Crew() as crew, fencelock.Client(sqlite_url(tmp_path)) as locks:
        leaver = crew.start("leaver", tmp_path, "thread_raises")
        leaver.hear()
        assert leaver.hear() == {"joined": True}
        wait_until(lambda: locks.list() == [], "the lease of the dead thread was given back")
        assert leaver.process.poll() is None, "and not because the program has ended"
        leaver.tell()
        assert leaver.end() == 0
        assert "RuntimeError" in leaver.errors


@pytest.mark.parametrize("url", ["memory://exit", "sqlite"])
def test_a_thread_that_returns_with_a_lease_in_a_local_variable(tmp_path: Path, url: str) -> None:
    with fencelock.Client(sqlite_url(tmp_path) if url == "sqlite" else url) as locks:
        tokens: list[int] = []

        def body() -> None:
            lease = locks.lock("job", ttl=120).acquire().__enter__()
            tokens.append(lease.token)

        thread = threading.Thread(target=body)
        thread.start()
        thread.join()
        with locks.lock("job", timeout=30) as lease:
            assert lease.token > tokens[0]
