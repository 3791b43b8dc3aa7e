"""Idempotency among real processes: 64 at once, killed in the middle, paused in the middle.

`FENCELOCK_ROUNDS=5` does each of them so many times, and lets processes be killed in every form and store.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from crew import Crew, Member
from tools.servers import start
from workers.databases import connected, done

from fencelock.idempotency import create_table

ROUNDS = int(os.environ.get("FENCELOCK_ROUNDS", "1"))
IS_FULL = ROUNDS > 1
KINDS = ["sqlite", "postgres", "mariadb", "redis", *(["valkey"] if IS_FULL else [])]
"""Valkey runs the scripts of Redis."""
PROCESSES = 8
FEW = PROCESSES if IS_FULL else 4
"""Processes, and how many ask in each: so many where a store's own form has had its 64."""
JOBS, KILLS = 12, 3
"""Jobs that are done while processes are killed, and kills that must strike in the middle of one."""


def forms(*wanted: str) -> list[tuple[str, str, str]]:
    """Return every store, form and flavour that there is: no transaction on Redis, no async one on SQLite."""
    return [
        (kind, form, flavour)
        for kind in KINDS
        for form in wanted
        for flavour in ("blocking", "asyncio")
        if (form != "once" or kind in {"postgres", "mariadb"} or (kind, flavour) == ("sqlite", "blocking"))
        and (form != "asgi" or flavour == "asyncio")
    ]


class Floor:
    """Stores and workers, each started when it is first asked for."""

    def __init__(self, folder: Any, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._crew = stack.enter_context(Crew())
        self._urls: dict[str, str] = {}
        self._members: dict[tuple[str, str], Member] = {}

    def url(self, kind: str) -> str:
        if kind not in self._urls:
            if kind == "sqlite":
                self._urls[kind] = f"sqlite://{self._folder}/once.db"
            else:
                group = self._stack.enter_context(start(kind))
                self._urls[kind] = str(group.url).replace("valkey:", "redis:")
        return self._urls[kind]

    def ask(self, kind: str, worker: str, *question: Any) -> dict[str, Any]:
        """Let a worker do something, on an empty store."""
        url = self.url(kind)
        emptied(url)
        if (kind, worker) not in self._members:
            member = self._members[kind, worker] = self._crew.start(worker, url)
            assert member.hear()["ready"]
        self._members[kind, worker].tell(json.dumps(question))
        return self._members[kind, worker].hear(180)

    def traces(self, kind: str, key: str) -> int:
        url = self.url(kind)
        if url.startswith("redis"):
            import redis

            with redis.Redis.from_url(url) as client:
                return int(client.llen(f"effects-{key}"))  # type: ignore[arg-type]
        return int(done(url, f"SELECT count(*) FROM effects WHERE name = '{key}'")[0][0])


@pytest.fixture(scope="module")
def floor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Floor]:
    with ExitStack() as stack:
        yield Floor(tmp_path_factory.mktemp("once"), stack)


def emptied(url: str) -> None:
    if url.startswith("redis"):
        import redis

        with redis.Redis.from_url(url) as client:
            client.flushall()
        return
    done(url, "DROP TABLE IF EXISTS effects", "DROP TABLE IF EXISTS fencelock_idempotency")
    done(url, "CREATE TABLE effects (name VARCHAR(50))")
    conn = connected(url)
    create_table(conn)
    conn.commit()
    conn.close()


def crowd_does_it_once(floor: Floor, kind: str, form: str, flavour: str, *, after_a_crash: bool) -> None:
    for number in range(ROUNDS):
        many = PROCESSES if form == "store" else FEW
        asked = form, flavour, f"k{number}", 60, many, many, after_a_crash
        assert floor.ask(kind, "once_crowd", *asked)["results"] == [1] * many**2
        assert floor.traces(kind, f"k{number}") == 1


@pytest.mark.parametrize(("kind", "form", "flavour"), forms("once", "store", "asgi"))
def test_many_at_once_do_it_once(floor: Floor, kind: str, form: str, flavour: str) -> None:
    crowd_does_it_once(floor, kind, form, flavour, after_a_crash=False)


@pytest.mark.parametrize("kind", KINDS)
def test_64_take_over_at_once(floor: Floor, kind: str) -> None:
    """Somebody began and did not end: of those who find that, one does it."""
    crowd_does_it_once(floor, kind, "store", "blocking", after_a_crash=True)


@pytest.mark.parametrize("kind", KINDS)
def test_requests_that_do_not_wait(floor: Floor, kind: str) -> None:
    """Whoever comes while it is done is told so, at once."""
    for number in range(ROUNDS):
        said = floor.ask(kind, "once_crowd", "asgi", "asyncio", f"k{number}", 0, FEW, FEW, False)
        assert len(said["results"]) == FEW**2
        assert set(said["results"]) == {1, 409}
        assert floor.traces(kind, f"k{number}") == 1


@pytest.mark.parametrize("point", ["begun", "done", "kept", "committed"])
@pytest.mark.parametrize(("kind", "form", "flavour"), forms("once"))
def test_killed_in_a_transaction(floor: Floor, kind: str, form: str, flavour: str, point: str) -> None:
    """Before it is committed a kill undoes all of it, after that nothing."""
    said = floor.ask(kind, "once_faults", "killed", form, flavour, "k", point)
    assert said["status"] == -9
    was_committed = point == "committed"
    assert said["left"] == int(was_committed)
    assert said["second"] == [["end", 1]] if was_committed else [[1, 0], ["end", 1]]
    assert said["traces"] == 1


@pytest.mark.parametrize("point", ["begun", "done", "kept"])
@pytest.mark.parametrize(("kind", "form", "flavour"), forms("store", "asgi"))
def test_killed_with_a_claim(floor: Floor, kind: str, form: str, flavour: str, point: str) -> None:
    """It is seen, and whoever takes over has a higher token, is told to look, and does it if it was not."""
    said = floor.ask(kind, "once_faults", "killed", form, flavour, "k", point)
    assert said["status"] == -9
    assert said["left"] == int(point != "begun")
    assert said["traces"] == 1
    if point == "kept":
        assert said["crashed"] == [] and said["second"] == [["end", 1]]
        return
    assert said["crashed"] == [1]
    (tries, token), end = said["second"]
    assert tries == 2 and token > said["token"] > 0
    assert end == ["end", 1]


@pytest.mark.parametrize(
    ("kind", "form", "flavour"),
    [case for case in forms("once", "store", "asgi") if IS_FULL or case[2] == "blocking"],
)
def test_killed_at_any_moment(floor: Floor, kind: str, form: str, flavour: str) -> None:
    """Nothing is lost and nothing done twice, and the result is the same ever after."""
    said = floor.ask(kind, "once_faults", "chaos", form, flavour, "job", JOBS, KILLS * ROUNDS)
    assert said["struck"] >= KILLS * ROUNDS
    expected = {f"job-{number}": 1 for number in range(said["jobs"])}
    assert said["told"] == [["end", expected]] * 2
    assert said["counts"] == [1] * len(expected)


@pytest.mark.parametrize(("kind", "form", "flavour"), forms("store", "asgi"))
def test_paused_in_the_middle(floor: Floor, kind: str, form: str, flavour: str) -> None:
    """A caller who is stopped longer than its ttl cannot store over the result of its successor."""
    for number in range(ROUNDS):
        said = floor.ask(kind, "once_faults", "paused", form, flavour, f"k{number}")
        assert said["begun"][0] == 1
        tries, newest = said["taken"]
        assert tries == 2 and newest > said["begun"][1]
        assert said["late"] == (["stale", newest] if form == "store" else ["end", 409])
        assert said["kept"] == ["end", 1] and said["after"] == 1
        assert floor.traces(kind, f"k{number}") == 1
