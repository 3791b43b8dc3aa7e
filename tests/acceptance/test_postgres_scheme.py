"""`postgres://` is `postgresql://`: the same locks, wherever a URL is taken."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import fencelock_command
from postgres_desk import FLAVOURS, desk_for
from sqlalchemy import create_engine
from tools.servers import start

from fencelock import jobs
from fencelock.backends import hide_password
from fencelock.crdt import GCounter, Replica
from fencelock.dashboard.labels import label_of


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with start("postgres") as group:
        yield group.members[0]


def short(url: str, form: str = "") -> str:
    return url.replace("postgresql://", f"postgres{form}://")


@pytest.mark.parametrize("form", ["", "+advisory"])
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_both_spellings_are_one_lock(server: Any, flavour: str, form: str) -> None:
    url = server.url.replace("postgresql://", f"postgresql{form}://")
    with desk_for(flavour, short(server.url, form)) as one, desk_for(flavour, url) as other:
        first = one.acquire("job")
        assert other(other.locks.lock("job").try_acquire) is None
        assert [state.name for state in other(other.locks.list)] == ["job"]
        one(first.release)
        second = other.acquire("job")
        assert second.token > first.token
        other(second.release)


def test_commands_take_it(server: Any, tmp_path: Path) -> None:
    url = short(server.url)
    assert fencelock_command(url, "schema").returncode == 0
    assert fencelock_command(url, "run", "job", "--", "true").returncode == 0
    assert json.loads(fencelock_command(url, "ls", "--json").stdout) == []
    examined = json.loads(fencelock_command("memory://", "doctor", "--json", url).stdout)
    assert examined["guarantees"]["fencing"] == "durable"
    locks = f"sqlite://{tmp_path}/locks.db"
    words = ("once", "report", "--per", "24h", "--record", url, "--", "touch", "ran")
    assert fencelock_command(locks, *words, cwd=tmp_path).returncode == 0 and (tmp_path / "ran").exists()
    (run,) = json.loads(fencelock_command(url, "cron", "--ls", "--json").stdout)
    assert (run["name"], run["state"]) == ("report", "done")


def test_jobs_take_it(server: Any) -> None:
    engine = create_engine(server.url.replace("postgresql:", "postgresql+psycopg:"))
    table = jobs.Table(engine)
    table.create()
    table.enqueue("mail")
    engine.dispose()
    listed = fencelock_command("memory://", "jobs", "ls", "--json", "--db", short(server.url))
    assert listed.returncode == 0, listed.stderr
    assert json.loads(listed.stdout)["counts"]["pending"] == 1


def test_replicas_take_it(server: Any, tmp_path: Path) -> None:
    with (
        Replica("hits", GCounter, path=tmp_path / "one", exchange=short(server.url)) as one,
        Replica("hits", GCounter, path=tmp_path / "other", exchange=server.url) as other,
    ):
        one.update(lambda hits: hits.increment(one.id, 3))
        one.sync()
        other.sync()
        assert other.value.value == 3


def test_passwords_stay_hidden() -> None:
    url = "postgres://app:s3cret@db/prod?sslpassword=s3cret"
    assert hide_password(url) == "postgres://app:***@db/prod?sslpassword=***"
    assert label_of("b0", url, None)["label"] == "postgres://db/prod"
