"""Connections: none is shared with a forked child, none is left when a client is garbage."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from crew import Crew, wait_until
from mysql_desk import FLAVOURS, getlock, nothing_left, ours, residue
from tools.servers import start

from fencelock import AsyncClient, Client

FORMS = ["mysql", "mysql+getlock"]


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with start("mariadb") as group:
        yield group.members[0]


FORK_AMID_A_READ = """
import os, sys, threading, time
import fencelock
from fencelock.runtime import clock
from fencelock.runtime.blocking import run
with fencelock.Client(sys.argv[1]) as locks:
    locks.lock("job", timeout=20).acquire().release()
    pool = locks._session.backend._pool
    link = run(pool.take(clock.now() + 10))
    reader = threading.Thread(target=lambda: run(link.query("SELECT SLEEP(3)", 10)))
    reader.start()
    time.sleep(0.5)
    child = os.fork()
    if not child:
        with locks.lock("other", timeout=20):
            os._exit(0)
    ends = time.monotonic() + 20
    done = 0
    while not done and time.monotonic() < ends:
        done, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)
    if not done:
        os.kill(child, 9)
        os.waitpid(child, 0)
    reader.join()
    print("ended" if done else "hung")
"""
AS_DJANGO_DOES = """
import sys
import pymysql
pymysql.install_as_MySQLdb()
import MySQLdb.converters  # from now on pymysql.err is a second copy of the module, with errors of its own
import fencelock
with fencelock.Client(sys.argv[1]) as locks, locks.lock("job", timeout=20) as lease:
    print(lease.token)
"""


def url_of(server: Any, form: str) -> str:
    return str(server.url if form == "mysql" else getlock(server.url))


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("form", FORMS)
def test_a_forked_child_leaves_the_parents_connections_alone(server: Any, form: str, flavour: str) -> None:
    with Crew() as crew:
        member = crew.start("mysql_fork", url_of(server, form), flavour)
        assert member.hear()["token"]
        before = ours(server)
        member.tell()
        child = member.hear()
        assert child == {"who": "child", "held": False, "taken": False, "own": True}
        assert member.hear() == {"who": "parent", "held": True, "verified": True}
        wait_until(lambda: ours(server) == before, "the parent has the connections it had, the child is gone")
        member.tell()
        assert member.hear()["released"] is True
        assert member.end() == 0, member.errors
        assert member.errors == ""
    nothing_left(server)


@pytest.mark.parametrize("form", FORMS)
def test_a_client_that_is_garbage_gives_its_connections_back(server: Any, form: str) -> None:
    locks = Client(url_of(server, form))
    lease = locks.lock("job", ttl=30).acquire().__enter__()
    assert ours(server)
    del locks, lease
    gc.collect()
    nothing_left(server)
    with Client(url_of(server, form)) as others:
        others.lock("job").acquire(timeout=5).release()


@pytest.mark.parametrize("form", FORMS)
def test_an_async_client_whose_loop_has_ended(server: Any, form: str) -> None:
    async def main() -> Any:
        locks = AsyncClient(url_of(server, form))
        return locks, await locks.lock("job", ttl=30).acquire()

    with asyncio.Runner() as runner:
        locks, lease = runner.run(main())
    with pytest.warns(ResourceWarning, match="was not closed"):
        locks._session.last_will(locks._session)
    with Client(url_of(server, form)) as others:
        others.lock("job").acquire(timeout=5).release()
    assert not lease.is_held()
    locks._finalizer.detach()
    del locks, lease
    gc.collect()
    nothing_left(server)


def test_a_connection_is_used_again(server: Any) -> None:
    with Client(server.url) as locks:
        for number in range(20):
            with locks.lock(f"job-{number}"):
                assert len(ours(server)) == 1
    assert residue(server) == 0


@pytest.mark.parametrize("form", FORMS)
def test_a_program_that_has_pymysql_stand_in_for_mysqldb(form: str) -> None:
    with start("mariadb") as group:  # of its own: that a table is missing must be recognised
        command = [sys.executable, "-c", AS_DJANGO_DOES, url_of(group.members[0], form)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.stderr == ""
        assert int(done.stdout) > 0


def test_a_child_that_is_forked_while_another_thread_reads_does_not_hang(server: Any) -> None:
    """Found by chaos: the parent's thread had locked the buffer that the child wanted to close."""
    command = [sys.executable, "-c", FORK_AMID_A_READ, server.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "ended", done.stderr
