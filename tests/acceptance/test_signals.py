"""A program that called `release_on_exit` leaves no lock and no waiter, and dies of the signal that it got.

Real programs take a lock with a ttl of two minutes. Right after their end the lock is free, which the ttl
cannot explain. The control calls nothing: there the lock stays, as it must.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from crew import WORKERS, Crew, sqlite_url, wait_until
from tools.servers import start

import fencelock

HOLDING = [
    "hold",
    "hold_and_close",
    "keep",
    "async_hold",
    "async_busy",
    "async_tasks",
    "async_keep",
]


@pytest.fixture(scope="module", params=["sqlite", "redis", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "sqlite":
        yield sqlite_url(tmp_path_factory.mktemp("signals"))
        return
    with start(request.param) as group:
        yield str(group.url)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return sqlite_url(tmp_path)


def is_free(url: str, *names: str) -> bool:
    """Whether nothing is held and nothing waits, and each of these locks is granted at the first try."""
    with fencelock.Client(url) as locks:
        left = locks.list()
        for name in names or ("job",):
            with locks.lock(name, timeout=0):
                pass
    return left == []


# What ends is released ---------------------------------------------------------------------


@pytest.mark.parametrize("way", HOLDING)
def test_sigterm_while_it_holds(store: str, way: str, crew: Crew) -> None:
    member = crew.start("signalled", store, way, "SIGTERM")
    assert member.hear()["token"]
    member.signal(signal.SIGTERM)
    assert member.end() == -signal.SIGTERM, member.errors
    assert is_free(store)
    assert "Traceback" not in member.errors


@pytest.mark.parametrize("way", ["wait", "async_wait"])
def test_sigterm_while_it_waits(store: str, way: str, crew: Crew) -> None:
    with fencelock.Client(store) as locks, locks.lock("job", ttl=60) as lease:
        member = crew.start("signalled", store, way, "SIGTERM")
        wait_until(lambda: locks.inspect("job").waiters, "it waits")
        member.signal(signal.SIGTERM)
        assert member.end() == -signal.SIGTERM, member.errors
        state = locks.inspect("job")
        assert state.waiters == ()
        assert [holder.owner for holder in state.holders] == [lease.owner]
    assert is_free(store)


@pytest.mark.parametrize("way", ["hold", "keep", "async_hold"])
def test_the_control_leaves_its_lock(url: str, way: str, crew: Crew) -> None:
    """Nothing is installed unasked: without the call the signal ends the process at once."""
    member = crew.start("signalled", url, way)
    token = member.hear()["token"]
    member.signal(signal.SIGTERM)
    assert member.end() == -signal.SIGTERM
    with fencelock.Client(url) as locks:
        (left,) = locks.inspect("job").holders
        assert left.token == token


@pytest.mark.parametrize("way", ["hold", "hold_and_close", "async_hold", "async_tasks"])
def test_a_signal_that_comes_many_times_cuts_no_release_short(store: str, way: str, crew: Crew) -> None:
    for round_ in range(3):
        member = crew.start("signalled", store, way, "SIGTERM")
        assert member.hear()["token"]
        while member.process.poll() is None:
            member.signal(signal.SIGTERM)
            time.sleep(0.0005 * (round_ + 1))
        assert member.end() == -signal.SIGTERM, member.errors
        assert is_free(store)


@pytest.mark.parametrize("way", ["hold", "async_hold"])
@pytest.mark.parametrize("signum", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_any_of_several_signals(url: str, way: str, signum: signal.Signals, crew: Crew) -> None:
    member = crew.start("signalled", url, way, "SIGHUP", "INT", "SIGTERM", "SIGUSR1")
    member.hear()
    member.signal(signum)
    assert member.end() == -signum, member.errors
    assert ("KeyboardInterrupt" in member.errors) == (signum == signal.SIGINT)
    assert is_free(url)


# How it ends -------------------------------------------------------------------------------


def test_what_an_orderly_exit_does_is_done(url: str, crew: Crew) -> None:
    """Exit hooks that are older than the call run, and what they print and log is flushed."""
    member = crew.start("signalled", url, "last_words", "SIGTERM")
    assert member.hear()["token"]
    member.signal(signal.SIGTERM)
    assert member.hear() == {"hook": "older"}
    assert member.end() == -signal.SIGTERM
    assert member.errors == "logged\n"


@pytest.mark.parametrize("way", ["hold", "main_is_over"])
def test_a_signal_whose_default_action_does_not_end_a_process(url: str, way: str, crew: Crew) -> None:
    """So is any signal to process 1 of a container: the exit status tells of it."""
    member = crew.start("signalled", url, way, "SIGWINCH")
    member.hear()
    member.signal(signal.SIGWINCH)
    if way == "main_is_over":
        member.tell()
    assert member.end() == 128 + signal.SIGWINCH
    assert is_free(url)


def test_a_program_that_catches_the_exception_goes_on(url: str, crew: Crew) -> None:
    member = crew.start("signalled", url, "caught", "SIGTERM")
    member.hear()
    member.signal(signal.SIGTERM)
    assert member.hear() == {"caught": 128 + signal.SIGTERM, "goes_on": True}
    member.tell("on")
    assert member.hear()["token"]
    member.signal(signal.SIGTERM)
    assert member.hear() == {"caught": 128 + signal.SIGTERM, "goes_on": True}
    member.tell("end")
    assert member.end() == 0, "it ended by itself, long after the signal"
    assert is_free(url)


def test_a_second_signal_ends_a_program_that_caught_the_first(url: str, crew: Crew) -> None:
    code = (
        "import sys, time, fencelock\n"
        "fencelock.release_on_exit()\n"
        "locks = fencelock.Client(sys.argv[1])\n"
        "for last in (False, True):\n"
        "    try:\n"
        "        with locks.lock('job', ttl=120):\n"
        "            print('{}', flush=True)\n"
        "            while True: time.sleep(0.1)\n"
        "    except SystemExit:\n"
        "        if last: raise\n"
    )
    member = crew.python(code, url)
    for _ in range(2):
        member.hear()
        member.signal(signal.SIGTERM)
    assert member.end() == -signal.SIGTERM
    assert is_free(url)


# The handler before ------------------------------------------------------------------------


def test_the_handler_before_is_called_first(url: str, crew: Crew) -> None:
    member = crew.start("signalled", url, "own_handler", "SIGTERM")
    member.hear()
    member.signal(signal.SIGTERM)
    assert member.hear() == {"handled": signal.SIGTERM}
    assert member.end() == -signal.SIGTERM
    assert is_free(url)


def test_what_the_handler_before_raises_travels_on(url: str, crew: Crew) -> None:
    member = crew.start("signalled", url, "own_exit", "SIGTERM")
    member.hear()
    member.signal(signal.SIGTERM)
    assert member.end() == 7
    assert is_free(url)


def test_a_signal_that_is_ignored_stays_ignored(url: str, crew: Crew) -> None:
    """As under nohup: SIGHUP does not end it, SIGTERM does."""
    code = "import os, signal, sys; signal.signal(1, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    member = crew.python(code, sys.executable, WORKERS / "signalled.py", url, "hold", "SIGHUP", "SIGTERM")
    token = member.hear()["token"]
    member.signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        member.process.wait(0.5)
    with fencelock.Client(url) as locks:
        assert [holder.token for holder in locks.inspect("job").holders] == [token]
    member.signal(signal.SIGTERM)
    assert member.end() == -signal.SIGTERM
    assert is_free(url)


def test_a_server_with_handlers_of_its_own_ends_in_its_own_way(url: str, crew: Crew) -> None:
    """uvicorn replaces the handler while it serves, and sends the signal again when it is done."""
    member = crew.start("signalled", url, "served", "SIGTERM")
    assert member.hear()["token"]
    assert member.hear() == {"serving": True}
    member.signal(signal.SIGTERM)
    assert member.hear() == {"orderly": True}
    assert member.end() == -signal.SIGTERM, member.errors
    assert is_free(url)


# Threads and children ----------------------------------------------------------------------


@pytest.mark.parametrize("way", ["join", "main_is_over", "executor"])
def test_other_threads_finish_first(url: str, way: str, crew: Crew) -> None:
    """The thread is told to end after the signal: it still holds its lock, and releases it by itself."""
    member = crew.start("signalled", url, way, "SIGTERM")
    token = member.hear()["token"]
    for _ in range(3):
        member.signal(signal.SIGTERM)
        time.sleep(0.1)
    if way == "join":
        assert member.hear() == {"joining": "interrupted"}
    with fencelock.Client(url) as locks:
        assert [holder.token for holder in locks.inspect("job").holders] == [token]
    member.tell()
    assert member.hear() == {"held": True}
    assert member.end() == -signal.SIGTERM, member.errors
    assert "Traceback" not in member.errors
    assert is_free(url)


def test_a_forked_child_ends_for_itself(store: str, crew: Crew) -> None:
    member = crew.start("signalled", store, "fork", "SIGTERM")
    child = member.hear()["pid"]
    os.kill(child, signal.SIGTERM)
    assert member.hear() == {"child": -signal.SIGTERM, "held": True}
    with fencelock.Client(store) as locks:
        assert [state.name for state in locks.list()] == ["job"], (
            "the child's lock is free, the parent's is not"
        )
    member.signal(signal.SIGTERM)
    assert member.end() == -signal.SIGTERM
    assert is_free(store, "job", "child")


def test_a_child_of_multiprocessing_ends_with_a_status(url: str, crew: Crew) -> None:
    """`multiprocessing` catches SystemExit in its children: the status is that of a shell."""
    member = crew.start("signalled", url, "multiprocessing_fork", "SIGTERM")
    os.kill(member.hear()["pid"], signal.SIGTERM)
    assert member.hear() == {"child": 128 + signal.SIGTERM}
    assert member.end() == 0
    assert is_free(url)
