"""kill -9 of the server under load, again and again: no token twice or falling, no lock held twice.

Processes of both flavours pass a few locks on as fast as they can, so every crash finds steps under way.
With the lease table a lease survives the crash; with GET_LOCK every lease is lost, and its holder is told.

FENCELOCK_CRASHES=100 asks for more than a few.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crew import Crew, wait_until
from mysql_desk import FLAVOURS, ask, desk_for, getlock, nothing_left
from tools.servers import start

from fencelock.testing import History, boottime, check, check_available

ROUNDS = int(os.environ.get("FENCELOCK_CRASHES", "2"))
TTL = 2.0
BOUND = TTL + 2.0
SLACK = 10.0
"""For a machine that runs other tests at the same time, and a server that starts."""


@pytest.fixture
def server() -> Iterator[Any]:
    with start("mariadb") as group:
        yield group.members[0]


def grants(folder: Path) -> int:
    history = folder / "history"
    return history.read_text().count('"granted"') if history.exists() else 0


@pytest.mark.parametrize("form", ["mysql", "mysql+getlock"])
def test_the_server_is_killed_under_load(
    server: Any, tmp_path: Path, form: str, record_property: Any
) -> None:
    url = server.url if form == "mysql" else getlock(server.url)
    dice = random.Random(7)
    with Crew() as crew:
        for number in range(4):
            client, flavour = f"client-{number}", FLAVOURS[number % 2]
            member = crew.start("postgres_churn", url, tmp_path, client, flavour, TTL, 2, 4, name=client)
            assert member.hear()["ready"]
        for _ in range(ROUNDS):
            before = grants(tmp_path)
            wait_until(lambda before=before: grants(tmp_path) >= before + 30, "the work goes on")
            time.sleep(dice.random() * 0.3)
            server.kill()
            time.sleep(dice.choice([0.0, 0.2]))
            server.restart()
        back = boottime()
        before = grants(tmp_path)
        wait_until(lambda: grants(tmp_path) >= before + 30, "the work goes on")
        (tmp_path / "stop").touch()
        for member in crew.members:
            assert member.end() == 0, member.errors
            assert "Traceback" not in member.errors, member.errors
    history = History.load(tmp_path / "history")
    report = check(history)
    assert report.ok, str(report)
    assert report.grants > 30 * ROUNDS
    assert not check_available(history, healed=back, bound=BOUND + SLACK, names=["job-0", "job-1"])
    record_property("crashes", f"{ROUNDS} crashes, {report.grants} grants, {report.losses} losses")
    nothing_left(server)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_lease_survives_a_crash_of_the_server(server: Any, flavour: str) -> None:
    with desk_for(flavour, server.url) as desk:
        lease = desk.acquire("job", ttl=30)
        server.kill()
        server.restart()
        assert desk(lease.verify)
        with desk_for("blocking", server.url) as other:
            assert other.locks.lock("job").try_acquire() is None
            assert desk(lease.release)
            later = other.acquire("job")
            assert later.token > lease.token
            later.release()


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_tokens_rise_though_the_tables_were_dropped(server: Any, flavour: str) -> None:
    """Operators do such things; whoever held is told, and the next token is larger."""
    with desk_for(flavour, server.url) as desk:
        first = desk.acquire("job", ttl=30)
        ask(server, "DROP TABLE fencelock_queue, fencelock_buckets, fencelock_schema, fencelock_gone")
        second = desk.acquire("job", ttl=30)
        assert second.token > first.token
        ask(server, "DELETE FROM fencelock_buckets", "DELETE FROM fencelock_queue")
        third = desk.acquire("job", ttl=30)
        assert third.token > second.token
        assert not desk(first.verify)
        assert not desk(second.verify)
        ask(server, *[f"DROP PROCEDURE fencelock_{name}" for name in ("acquire_v1", "leave_v2")])
        assert desk(third.release)
        assert desk(desk.acquire("job", ttl=30).release)
