"""Idempotency among real processes: 64 at once, killed in the middle, paused in the middle."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crew import Crew, Member
from tools.servers import start
from workers.databases import connected, done

from holdfast.idempotency import Done, Store, create_table
from holdfast.testing import pause, resume

KINDS = ["sqlite", "postgres", "mariadb", "redis", "valkey"]
JOBS = 30


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The URL of every store; each is started when it is first asked for."""
    with Servers(tmp_path_factory.mktemp("once")) as servers:
        yield servers  # type: ignore[misc]


class Servers:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._groups: dict[str, Any] = {}

    def __getitem__(self, kind: str) -> str:
        if kind == "sqlite":
            return f"sqlite://{self._folder}/once.db"
        if kind not in self._groups:
            self._groups[kind] = start(kind)
        return str(self._groups[kind].url).replace("valkey:", "redis:")

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *_: object) -> None:
        for group in self._groups.values():
            group.stop()


def emptied(url: str) -> None:
    if url.startswith("redis"):
        import redis

        with redis.Redis.from_url(url) as client:
            client.flushall()
        return
    done(url, "DROP TABLE IF EXISTS effects", "DROP TABLE IF EXISTS holdfast_idempotency")
    done(url, "CREATE TABLE effects (name VARCHAR(50))")
    conn = connected(url)
    create_table(conn)
    conn.commit()
    conn.close()


CASES = [
    (kind, form, flavour)
    for kind in KINDS
    for form in ("once", "store")
    for flavour in ("blocking", "asyncio")
    if form == "store" or kind in {"postgres", "mariadb"} or (kind, flavour) == ("sqlite", "blocking")
]


@pytest.mark.parametrize(("kind", "form", "flavour"), CASES)
def test_64_at_once_do_it_once(crew: Crew, urls: Any, kind: str, form: str, flavour: str) -> None:
    url = urls[kind]
    emptied(url)
    members = [crew.start("once", url, form, flavour, "k", 8) for _ in range(8)]
    for member in members:
        assert member.hear()["ready"]
    for member in members:
        member.tell()
    results = [result for member in members for result in member.hear(120)["results"]]
    assert results == [1] * 64
    if url.startswith("redis"):
        return  # the result is the length of the list: 1, or it was done twice
    assert done(url, "SELECT count(*) FROM effects") == [(1,)]


@pytest.mark.parametrize("form", ["once", "store"])
@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mariadb"])
def test_killed_in_the_middle(crew: Crew, urls: Any, kind: str, form: str) -> None:
    """Workers that all do the same jobs are killed at any moment; nothing is lost, nothing done twice."""
    url = urls[kind]
    emptied(url)
    chance = random.Random(7)
    killed = 0
    told: dict[str, set[str]] = {}
    deadline = time.monotonic() + 60

    def heard(member: Member) -> bool:
        """Take in one line; say whether there is more to come."""
        said = member.hear()
        if said.get("job"):
            told.setdefault(said["job"], set()).add(said["result"])
        return "job" not in said or said["job"] is not None

    while killed < 12 and time.monotonic() < deadline:
        members = [crew.start("once_killed", url, form, JOBS) for _ in range(2)]
        for member in members:
            assert member.hear()["ready"]
        time.sleep(chance.random() * 0.25)
        for member in members:
            member.dismiss()
            killed += 1
    assert killed >= 12
    last = crew.start("once_killed", url, form, JOBS)
    while heard(last):
        pass
    assert last.end() == 0, last.errors
    assert sorted(told) == sorted(f"job-{n}" for n in range(JOBS))
    assert done(url, "SELECT count(*), count(DISTINCT name) FROM effects") == [(JOBS, JOBS)]
    again = crew.start("once_killed", url, form, JOBS)
    while heard(again):
        pass
    assert all(len(results) == 1 for results in told.values()), told


@pytest.mark.parametrize("kind", KINDS)
def test_paused_in_the_middle(crew: Crew, urls: Any, kind: str) -> None:
    """A caller who is stopped longer than its ttl cannot store over the result of its successor."""
    url = urls[kind]
    emptied(url)
    first = crew.start("once_paused", url, "first", 1.0)
    begun = first.hear()
    assert begun["tries"] == 1
    pause(first.pid)
    second = crew.start("once_paused", url, "second", 30.0)
    taken = second.hear()
    assert taken["tries"] == 2 and taken["token"] > begun["token"]
    resume(first.pid)
    first.tell()
    assert first.hear() == {"stale": True, "newest": taken["token"]}
    second.tell()
    assert second.hear() == {"stale": False}
    if url.startswith("redis"):
        import redis

        with redis.Redis.from_url(url) as client:
            assert Store(client).begin("k", "f") == Done("second")
    else:
        assert Store(lambda: connected(url)).begin("k", "f") == Done("second")
