"""Tokens of advisory locks: they never repeat and never fall, whatever becomes of server and tables."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from advisory_desk import advisory, backend_of, clean
from crew import wait_until
from postgres_desk import ask, until_ready
from tools.servers import start

from fencelock import BackendUnavailable, Client, LeaseLost

LONG = 60.0


@pytest.fixture(scope="module")
def group() -> Iterator[Any]:
    with start("postgres") as group:
        yield group


@pytest.fixture
def server(group: Any) -> Iterator[Any]:
    server = group.members[0]
    yield server
    clean(server)


def tokens(locks: Client, count: int = 20, name: str = "job") -> list[int]:
    """Take a lock so many times."""
    found = []
    for _ in range(count):
        with locks.lock(name, timeout=30) as lease:
            found.append(lease.token)
    return found


def load(url: str, stop: threading.Event, found: list[int]) -> None:
    """Take a lock again and again, whatever goes wrong, and note the tokens in the order of the grants."""
    with Client(url) as locks:
        while not stop.is_set():
            try:
                with locks.lock("job", ttl=5, timeout=1) as lease:
                    found.append(lease.token)
            except (BackendUnavailable, LeaseLost, TimeoutError):
                stop.wait(0.05)


@pytest.mark.parametrize("victim", ["server", "backend"])
def test_a_crash_under_load(server: Any, victim: str) -> None:
    """kill -9 of the whole server, or of one of its processes: then it drops all sessions and its memory."""
    url = advisory(server.url)
    found: list[int] = []
    stop = threading.Event()
    workers = [threading.Thread(target=load, args=(url, stop, found)) for _ in range(3)]
    for worker in workers:
        worker.start()
    try:
        for _ in range(2):
            before = len(found)
            wait_until(lambda before=before: len(found) > before + 50, "the load goes on")
            if victim == "server":
                server.kill()
                server.restart()
            else:
                (pid,) = ask(
                    server, "SELECT pid FROM pg_stat_activity WHERE application_name = 'fencelock' LIMIT 1"
                )[0]
                os.kill(pid, signal.SIGKILL)
            until_ready(server)
        before = len(found)
        wait_until(lambda: len(found) > before + 50, "the load goes on after the last crash")
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    assert found == sorted(set(found))


def test_a_crash_of_the_server_is_a_loss(server: Any) -> None:
    with Client(advisory(server.url)) as locks, Client(advisory(server.url)) as others:
        lease = locks.lock("job", ttl=LONG).acquire(timeout=30)
        os.kill(backend_of(server, "job"), signal.SIGKILL)
        wait_until(lease.lost.is_set, "the loss is known", 20)
        until_ready(server)
        successor = others.lock("job", ttl=LONG).acquire(timeout=30)
        assert successor.token > lease.token
        assert not lease.is_held() and lease.release() is False
        assert successor.verify() is True
        successor.release()


def test_a_clean_restart(server: Any) -> None:
    with Client(advisory(server.url)) as locks:
        before = tokens(locks)
        mark = ask(server, "SELECT reserved FROM fencelock.advisory_mark")
        server.stop()
        server.restart()
        after = tokens(locks)
        assert before + after == sorted({*before, *after})
        assert ask(server, "SELECT reserved FROM fencelock.advisory_mark") == mark  # no block was wasted


def test_a_crash_wastes_a_block_and_no_more(server: Any) -> None:
    with Client(advisory(server.url)) as locks:
        before = tokens(locks)
        ((mark,),) = ask(server, "SELECT reserved FROM fencelock.advisory_mark")
        assert mark > before[-1]
        server.kill()
        server.restart()
        after = tokens(locks)
        assert after[0] > mark  # it does not count on the clock alone


@pytest.mark.parametrize(
    "tampering",
    [
        "DELETE FROM fencelock.advisory_block",
        "DELETE FROM fencelock.advisory_mark",
        "DELETE FROM fencelock.advisory_slots",
        "TRUNCATE fencelock.advisory_block, fencelock.advisory_mark, fencelock.advisory_slots",
        "SELECT setval('fencelock.advisory_tokens', 1)",
        "DROP SCHEMA fencelock CASCADE",
    ],
)
def test_an_operator_tampers_with_the_tables(server: Any, tampering: str) -> None:
    with Client(advisory(server.url)) as locks:
        before = tokens(locks, 5)
        ask(server, tampering)
        same = tokens(locks, 5)
        with Client(advisory(server.url)) as others:
            after = tokens(others, 5)
            last = tokens(locks, 5)
    everything = before + same + after + last
    assert everything == sorted(set(everything))


def test_a_block_that_is_used_up(server: Any) -> None:
    """The next one is reserved, on disk, before a number of it is given."""
    with Client(advisory(server.url)) as locks:
        before = tokens(locks, 2)
        ((mark,),) = ask(server, "SELECT reserved FROM fencelock.advisory_mark")
        ask(server, f"SELECT setval('fencelock.advisory_tokens', {mark - 3})")
        after = tokens(locks, 8)
        ((next_mark,),) = ask(server, "SELECT reserved FROM fencelock.advisory_mark")
    assert before + after == sorted({*before, *after})
    assert after[0] <= mark < after[-1] <= next_mark
