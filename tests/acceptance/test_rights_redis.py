"""Redis and Valkey: the users of docs/reference/permissions.md may do what it says, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import rights_modules as modules
from redis_desk import FLAVOURS
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
from tools.servers import start

from fencelock import BackendUnavailable


@pytest.fixture(scope="module", params=["redis", "valkey"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    with start(request.param) as group:
        yield Store(group, set(), set())


# The roles ----------------------------------------------------------------------------------------


def test_a_worker_needs_every_command_of_the_page_and_no_other(store: Store, tmp_path: Path) -> None:
    counting(store)
    for flavour in FLAVOURS:
        worker = site(store, "worker", flavour, tmp_path, *OWN)
        use_everything(worker)
        modules.locks(Site(f"{worker.url}/1", flavour, tmp_path))
    assert used(store) == granted("worker", *OWN)
    assert refused(store) == set()


def test_the_page_names_every_key_and_channel(store: Store, tmp_path: Path) -> None:
    store.ask("FLUSHALL")
    store.keys.clear()
    use_everything(site(store, "worker", "blocking", tmp_path, *OWN))
    store.see()
    known = [pattern for pattern in patterns() if "redlock" not in pattern]
    ours = {key for key in store.keys if not key.startswith("documents:")}
    for key in {*ours, *store.channels}:
        assert any(matches(pattern, key) for pattern in known), f"{key} is on no row of the page"
    for pattern in known:
        assert any(matches(pattern, key) for key in {*ours, *store.channels}), f"nothing uses {pattern}"


def test_an_operator_looks_breaks_and_examines(store: Store, tmp_path: Path) -> None:
    counting(store)
    for flavour in FLAVOURS:
        operator, worker = (site(store, role, flavour, tmp_path, *OWN) for role in ("operator", "worker"))
        use_everything(operator)
        modules.looking(operator, worker)
        modules.breaking(operator, worker)
        modules.idempotency_keys(operator)
        modules.runs(operator, worker)
        modules.locks(Site(f"{operator.url}/1", flavour, tmp_path))
    found = modules.doctor(operator)
    assert found["rights"]["severity"] == "ok" and "settings" not in found
    modules.board(operator, worker, breaks=True)
    assert used(store) | {"info"} == granted("operator", *OWN)
    assert refused(store) == set()


def test_a_looker_sees_everything_and_changes_nothing(store: Store, tmp_path: Path) -> None:
    for flavour in FLAVOURS:
        looker, worker = (site(store, role, flavour, tmp_path) for role in ("looker", "worker"))
        counting(store)
        modules.looking(looker, worker)
        modules.runs(looker, worker)
        modules.board(looker, worker, breaks=False)
        with worker.desk() as owner, looker.desk() as eye:
            lease = owner.acquire("job", ttl=60)
            for act in (eye.locks.lock("other").try_acquire, lambda: eye.locks.force_release("job")):
                with pytest.raises(BackendUnavailable) as caught:
                    eye(act)
                is_clear(caught.value, "+evalsha")
            assert owner(lease.verify) and owner(lease.release)
    found = modules.doctor(looker)
    assert found["rights"]["severity"] == "critical" and "settings" not in found


# What is not there ----------------------------------------------------------------------------------


def is_clear(error: BackendUnavailable, right: str) -> None:
    told = str(error)
    assert not error.transient, told
    assert f"it lacks {right}" in told and "docs/reference/permissions.md" in told
    assert told.isprintable() and len(told) < 250 and PASSWORD not in told


ELSEWHERE = {
    "another key": ("GET", "other"),
    "a key beside ours": ("GET", "fencelock2:x"),
    "another channel": ("PUBLISH", "other", "x"),
    **{command: (command, *args) for command, *args in (("KEYS", "*"), ("FLUSHALL",), ("SCAN", "0"))},
    **{command: (command, *args) for command, *args in (("INFO",), ("CONFIG GET", "save"), ("ACL WHOAMI",))},
}


@pytest.mark.parametrize("words", ELSEWHERE.values(), ids=ELSEWHERE)
def test_a_worker_may_do_nothing_else(store: Store, words: tuple[str, ...]) -> None:
    with redis.Redis.from_url(store.user("worker").replace("valkey://", "redis://")) as client:
        assert client.get("fencelock:nothing") is None
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.execute_command(*words[0].split(), *words[1:])


SILENT = {"eval", "publish", "subscribe"}
"""Without these locks work: the server knows the scripts already, and waiters poll."""


@pytest.mark.parametrize("command", sorted(granted("worker")))
def test_a_command_less_is_told_at_once(store: Store, tmp_path: Path, command: str) -> None:
    use_everything(site(store, "worker", "blocking", tmp_path, *OWN))  # the scripts are known
    poor = site(store, "worker", "blocking", tmp_path, *OWN, f"-{command}")
    if command in SILENT - {"eval"}:
        modules.locks(poor)
        return
    if command == "eval":
        store.ask("SCRIPT", "FLUSH")
    with pytest.raises((BackendUnavailable, redis.exceptions.NoPermissionError)) as caught:
        use_everything(poor)
    if isinstance(caught.value, BackendUnavailable):
        named = f"+{command}" in str(caught.value)
        is_clear(caught.value, f"+{command}" if named else "a command of the script")


def test_keys_that_a_user_may_not_use_are_told_at_once(store: Store, tmp_path: Path) -> None:
    poor = site(store, "worker", "blocking", tmp_path, "resetkeys", "~other:*")
    steps = (
        modules.locks,
        modules.schedules,
        modules.registers,
        modules.records_of_a_client,
        modules.exchanges,
    )
    for step in (*steps, modules.idempotency_keys, lambda site: modules.flights(site, "client")):
        with pytest.raises(BackendUnavailable) as caught:
            step(poor)
        is_clear(caught.value, "~fencelock:*")
