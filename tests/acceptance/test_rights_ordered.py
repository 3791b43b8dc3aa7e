"""etcd, Consul and ZooKeeper: the roles of docs/reference/permissions.md may do what it says, no more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import rights_modules as modules
from crew import wait_until
from kazoo.security import make_acl
from redis_desk import FLAVOURS
from rights_ordered import (
    PASSWORD,
    Consul,
    Etcd,
    Place,
    ZooKeeper,
    place_of,
    run_zkcli,
    zookeeper_by_sasl,
)
from rights_page import names, rows
from rights_redis import matches
from rights_site import Site

from fencelock import BackendUnavailable, Client, StaleToken
from fencelock.fencing import etcd_fence, etcd_new_fence, zookeeper_fence
from fencelock.optimistic import Register


@pytest.fixture(scope="module", params=["etcd", "consul", "zookeeper"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with place_of(request.param) as place:
        yield place


@pytest.fixture(scope="module", params=["etcd", "consul"])
def telling(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A store that tells readers from writers."""
    with place_of(request.param) as place:
        yield place


def is_clear(error: BackendUnavailable) -> None:
    told = str(error)
    assert not error.transient, told
    assert "may not" in told and "docs/reference/permissions.md" in told
    assert told.isprintable() and len(told) < 300 and PASSWORD not in told


# The roles ----------------------------------------------------------------------------------------


def use_everything(worker: Site) -> None:
    modules.locks(worker)
    modules.schedules(worker)
    modules.registers(worker)
    modules.looking(worker, worker)
    modules.breaking(worker, worker)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_worker_uses_every_module(place: Place, flavour: str, tmp_path: Path) -> None:
    worker = place.site("worker", flavour, tmp_path)
    use_everything(worker)
    modules.board(worker, worker, breaks=True)
    assert "locks" not in modules.doctor(worker)


def test_the_page_names_every_key(place: Place, tmp_path: Path) -> None:
    place.keys.clear()
    worker = place.site("worker", "blocking", tmp_path)
    use_everything(worker)
    with worker.desk() as one, worker.desk() as other:
        held, waits = one.acquire("job", ttl=place.ttl), other.waiting("job", ttl=place.ttl)
        wait_until(lambda: one.inspect("job").waiters, "one waits")
        if isinstance(place, Consul):
            wait_until(
                lambda: place.see() or any("/~/" in key for key in place.keys), "it gives a sign of life"
            )
        place.see()
        assert one(held.release) and other(waits.result(30).release)
    cells = rows("What each module uses", place.title).values()
    known = [name for cell in cells for name in names(cell) if name != "fencelock"]
    for key in place.keys:
        assert any(matches(pattern, key) for pattern in known), f"{key} is on no row of the page"
    for pattern in known:
        assert any(matches(pattern, key) for key in place.keys), f"nothing uses {pattern}"


def test_an_operator_of_consul_reads_the_settings(tmp_path: Path) -> None:
    with place_of("consul") as place:
        operator, worker = (place.site(role, "blocking", tmp_path) for role in ("operator", "worker"))
        assert "settings" in modules.doctor(worker)
        found = modules.doctor(operator)
        assert "settings" not in found and "version" in found
        modules.breaking(operator, worker)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_looker_sees_everything_and_changes_nothing(telling: Place, flavour: str, tmp_path: Path) -> None:
    looker, worker = (telling.site(role, flavour, tmp_path) for role in ("looker", "worker"))
    modules.looking(looker, worker)
    modules.runs(looker, worker)
    modules.board(looker, worker, breaks=False)
    assert modules.doctor(looker)["locks"]["severity"] == "critical"
    with worker.desk() as owner, looker.desk() as eye, Register(looker.url, "register") as register:
        lease = owner.acquire("job", ttl=telling.ttl)
        acts: list[Callable[[], Any]] = [
            lambda: eye(eye.locks.lock("other", ttl=telling.ttl).try_acquire),
            lambda: eye(eye.locks.force_release, "job"),
            lambda: register.set(b"value", 0),
        ]
        for act in acts:
            with pytest.raises(BackendUnavailable) as caught:
                act()
            is_clear(caught.value)
        assert owner(lease.verify) and owner(lease.release)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_worker_of_zookeeper_by_sasl(flavour: str, tmp_path: Path) -> None:
    with zookeeper_by_sasl(tmp_path) as place:
        worker = place.site("worker", flavour, tmp_path)
        use_everything(worker)
        assert "locks" not in modules.doctor(worker)
        other = Site(worker.url.replace("worker:", "other:"), flavour, tmp_path, ttl=place.ttl)
        for module in (modules.locks, modules.registers):
            with pytest.raises(BackendUnavailable) as caught:
                module(other)
            is_clear(caught.value)


def test_fences_of_the_users_own(tmp_path: Path) -> None:
    with place_of("etcd") as etcd:
        assert isinstance(etcd, Etcd)
        etcd.url("worker")
        etcd.grant("worker", "readwrite", "fences/")
        ask = etcd.as_user("worker")
        for fence, done in ((etcd_new_fence({}, "fences/a"), True), (etcd_fence({}, "fences/a", 34), True)):
            assert ask("kv/txn", fence).get("succeeded", False) is done
        assert not ask("kv/txn", etcd_fence({}, "fences/a", 33)).get("succeeded", False)
        assert "permission denied" in ask("kv/txn", etcd_new_fence({}, "elsewhere/a"))["error"]
    with place_of("zookeeper") as place:
        assert isinstance(place, ZooKeeper)
        with place.client() as client:
            for line in ('create /fences ""', f"addauth digest worker:{PASSWORD}", "setAcl /fences auth::c"):
                run_zkcli(client, line)
        with place.client() as client:
            client.add_auth("digest", f"worker:{PASSWORD}")
            client.default_acl = [make_acl("auth", "", read=True, write=True)]
            for token in (34, 35):
                results = zookeeper_fence(client, client.transaction(), "/fences/a", token).commit()
                assert not [result for result in results if isinstance(result, Exception)]
            with pytest.raises(StaleToken):
                zookeeper_fence(client, client.transaction(), "/fences/a", 33)


# What is not there --------------------------------------------------------------------------------


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_worker_may_do_nothing_elsewhere(place: Place, flavour: str, tmp_path: Path) -> None:
    url = place.url("worker")
    elsewhere = url.replace(ZooKeeper.chroot, "") + place.other
    worker = Site(elsewhere, flavour, tmp_path, ttl=place.ttl)
    for module in (modules.locks, modules.schedules, modules.registers):
        with pytest.raises(BackendUnavailable) as caught:
            module(worker)
        is_clear(caught.value)


MISSING = {" fencelock/": modules.locks, "fencelock-registers/": modules.registers, "session": modules.locks}


@pytest.mark.parametrize("line", MISSING)
def test_a_line_less_is_told_at_once(telling: Place, tmp_path: Path, line: str) -> None:
    if line == "session" and not isinstance(telling, Consul):
        assert not any("session" in one for one in telling.lines("worker"))
        return
    wanted = line.replace(" ", '"') if isinstance(telling, Consul) else line
    poor = telling.site("worker", "blocking", tmp_path, wanted)
    with pytest.raises(BackendUnavailable) as caught:
        MISSING[line](poor)
    is_clear(caught.value)


def test_a_token_of_consul_that_may_not_read_is_not_told_that_locks_are_free(tmp_path: Path) -> None:
    with place_of("consul") as place:
        poor = place.site("worker", "blocking", tmp_path, '"fencelock/"')
        worker = place.site("worker", "blocking", tmp_path)
        with Client(worker.url) as locks, locks.lock("job", ttl=10):
            for look in (lambda eye: eye.inspect("job"), lambda eye: eye.list()):
                with Client(poor.url) as eye, pytest.raises(BackendUnavailable) as caught:
                    look(eye)
                is_clear(caught.value)
