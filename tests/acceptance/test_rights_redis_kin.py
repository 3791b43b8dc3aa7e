"""Sentinel, Cluster and Redlock: the users of docs/reference/permissions.md, where they differ."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import rights_modules as modules
from crew import wait_until
from redis_desk import FLAVOURS
from rights_page import block, names, rows, section
from rights_redis import (
    OWN,
    PASSWORD,
    Store,
    counting,
    granted,
    matches,
    patterns,
    refused,
    site,
    use_everything,
    used,
)
from rights_site import Site
from test_redis_cluster import Move, slot_of
from tools.servers import start

from fencelock import BackendUnavailable, Client

AMONG = {"cluster|info", "cluster|nodes", "info", "ping", "psync", "replconf", "select"}
"""What servers and the tests' own look at them say."""
MOVING = {"cluster|getkeysinslot", "cluster|myid", "cluster|setslot", "migrate", "restore-asking"}


def additions(subject: str) -> list[str]:
    """Return the commands that the page adds for a subject."""
    found = names(rows("Redis additions", "add")[subject])
    return [word for word in found if word.startswith("+")]


# Sentinel -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sentinel() -> Iterator[Any]:
    with start("sentinel") as group:
        yield group


def on_sentinels(group: Any) -> str:
    """Make the user of the Sentinels as the page says; return the options of the URL."""
    name, *rights = block("Sentinels worker").replace("PASSWORD", PASSWORD).split()[2:]
    for member in group.sentinels:
        member.ask("ACL", "SETUSER", name, "reset", *rights)
    return f"sentinel_username={name}&sentinel_password={PASSWORD}"


class Servers:
    """Those of a group that have the data."""

    def __init__(self, group: Any) -> None:
        self.members, self.url = [group.primary, *group.replicas], group.url


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_sentinel(sentinel: Any, tmp_path: Path, flavour: str) -> None:
    servers = Store(Servers(sentinel), set(), set())
    more = [*additions("`redis+sentinel://`"), *additions("`min_replicas_acked=N`")]
    url = f"{servers.user('operator', *more)}?{on_sentinels(sentinel)}"
    operator = Site(f"{url}&min_replicas_acked=1", flavour, tmp_path)
    counting(servers)
    for module in (modules.locks, modules.schedules, modules.flights, modules.registers):
        module(operator)
    modules.looking(operator, operator)
    modules.breaking(operator, operator)
    assert modules.doctor(operator)["rights"]["severity"] == "ok"
    assert used(servers) - AMONG == granted("operator", *more) - AMONG
    assert refused(servers) == set()
    servers.user("operator")  # and nothing added
    with Client(url) as locks, pytest.raises(BackendUnavailable, match=r"it lacks \+role") as caught:
        locks.lock("job").acquire(timeout=30)
    assert not caught.value.transient


def test_the_user_of_the_sentinels_may_ask_nothing_else(sentinel: Any) -> None:
    on_sentinels(sentinel)
    with redis.Redis.from_url(f"redis://worker:{PASSWORD}@{sentinel.sentinels[0].address}") as client:
        assert client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster")
        for words in (("SENTINEL", "MASTERS"), ("SENTINEL", "FAILOVER", "mymaster"), ("ACL", "LIST")):
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(*words)


# Cluster ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[Store]:
    with start("cluster") as group:
        yield Store(group, set(), set())


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_cluster(cluster: Store, tmp_path: Path, flavour: str) -> None:
    more = additions("`redis+cluster://`")
    counting(cluster)
    operator = site(cluster, "operator", flavour, tmp_path, *OWN, *more)
    use_everything(operator)
    modules.looking(operator, operator)
    modules.breaking(operator, operator)
    modules.idempotency_keys(operator)
    assert modules.doctor(operator)["rights"]["severity"] == "ok"
    with operator.desk() as desk:
        lease = desk.acquire("moved", ttl=60)
        move = Move(cluster.group, slot_of("moved"))
        move.open()
        move.carry(move.left_behind())
        desk(lease.extend, 60)  # it is where ASK points to
        move.close()
        assert desk(lease.release)
    assert used(cluster) - AMONG - MOVING == granted("operator", *OWN, *more) - AMONG
    assert refused(cluster) == set()


# Redlock ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def redlock() -> Iterator[Store]:
    with start("redlock") as group:
        yield Store(group, set(), set())


def redlock_site(store: Store, flavour: str, folder: Path, *more: str) -> Site:
    """Make the user as the page says; return how it reaches the nodes."""
    name, *rights = block("Redlock worker").replace("PASSWORD", PASSWORD).split()[2:]
    store.ask("ACL", "SETUSER", name, "reset", *rights, *more)
    url = str(store.group.url).replace("://", f"://{name}:{PASSWORD}@")
    return Site(f"{url}?max_ttl=60", flavour, folder, ttl=3.0, see=store.see)


def test_redlock_also_when_a_node_is_taught_again(redlock: Store, tmp_path: Path) -> None:
    rights = {word[1:] for word in block("Redlock worker").split() if word[0] == "+"}
    counting(redlock)
    for flavour in FLAVOURS:
        worker = redlock_site(redlock, flavour, tmp_path)
        modules.locks(worker)
    redlock.group.members[0].restart(keep=False)
    worker = redlock_site(redlock, "blocking", tmp_path)  # the node has forgotten its users
    with Client(worker.url.replace("max_ttl=60", "max_ttl=4")) as locks:

        def taught() -> bool:
            locks.lock("job", ttl=3, timeout=10).acquire().release()
            return used(redlock) - AMONG == rights - AMONG

        wait_until(taught, "the node votes again")
    assert refused(redlock) == set()
    known = [pattern for pattern in patterns() if "redlock" in pattern]
    for key in redlock.keys | redlock.channels:
        assert any(matches(pattern, key) for pattern in known), key
    for pattern in known:
        assert any(matches(pattern, key) for key in redlock.keys), pattern


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_redlock_operator(redlock: Store, tmp_path: Path, flavour: str) -> None:
    more = [word for word in names(section("Redlock worker").rpartition("```")[2]) if word[0] == "+"]
    operator = redlock_site(redlock, flavour, tmp_path, *more)
    modules.looking(operator, operator)
    modules.breaking(operator, operator)
    found = modules.doctor(operator)
    assert found["nodes"]["severity"] == "ok" and "locks" not in found


OTHERS = [
    ("GET", "fencelock:{1}:x"),
    ("KEYS", "*"),
    ("SCAN", "0"),
    ("PUBLISH", "fencelock:x", "x"),
    ("FLUSHALL",),
]


@pytest.mark.parametrize("words", OTHERS, ids=" ".join)
def test_redlock_may_do_nothing_else(redlock: Store, tmp_path: Path, words: tuple[str, ...]) -> None:
    redlock_site(redlock, "blocking", tmp_path)
    url = f"redis://worker:{PASSWORD}@{redlock.group.members[0].address}"
    with redis.Redis.from_url(url) as client, pytest.raises(redis.exceptions.NoPermissionError):
        client.execute_command(*words)


def test_redlock_without_a_right_says_so_at_once(redlock: Store, tmp_path: Path) -> None:
    poor = redlock_site(redlock, "blocking", tmp_path, "-set")
    with Client(poor.url) as locks, pytest.raises(BackendUnavailable) as caught:
        locks.lock("job", ttl=3).acquire(timeout=30)
    assert not caught.value.transient
    assert "may not do that" in str(caught.value) and "docs/reference/permissions.md" in str(caught.value)
