"""`lease.guard`: a user's own transaction that is done only while the lease is held."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from etcd_desk import coded, delete, keys, value
from redis_desk import FLAVOURS, Desk, desk_for
from tools.servers import start

from fencelock import ConfigurationError, LeaseLost, NotHeld, Unsupported
from fencelock.backends.etcd import rpc_pb2 as pb
from fencelock.backends.etcd.address import parse
from fencelock.backends.etcd.connection import Etcd
from fencelock.backends.etcd.methods import TXN
from fencelock.runtime import clock
from fencelock.runtime.blocking import BlockingRuntime, run


@pytest.fixture(scope="module")
def group() -> Iterator[Any]:
    with start("etcd") as group:
        yield group


@pytest.fixture(params=FLAVOURS)
def desk(group: Any, request: pytest.FixtureRequest) -> Iterator[Desk]:
    with desk_for(request.param, group.url) as desk:
        yield desk


def put(server: Any, lease: Any, text: str) -> bool:
    """Write by the JSON gateway, guarded by a lease; say whether it was done."""
    change = {"request_put": {"key": coded("resource"), "value": coded(text)}}
    transaction = lease.guard({"success": [change]})
    return bool(server.ask("kv/txn", transaction).get("succeeded", False))


def test_a_transaction_of_the_gateway(group: Any, desk: Desk) -> None:
    server = group.members[0]
    first = desk.acquire("job", ttl=20)
    assert put(server, first, "first")
    late = first.guard({"success": [{"request_put": {"key": coded("resource"), "value": coded("late")}}]})
    assert desk(first.release)
    assert not server.ask("kv/txn", late).get("succeeded", False)
    second = desk.acquire("job", ttl=20)
    assert put(server, second, "second")
    assert not server.ask("kv/txn", late).get("succeeded", False)
    assert value(server, "resource") == "second"
    assert desk(second.release)


def test_a_transaction_in_protobuf(group: Any, desk: Desk) -> None:
    lease = desk.acquire("job", ttl=20)
    write = pb.RequestOp(request_put=pb.PutRequest(key=b"resource", value=b"by hand"))
    transaction = lease.guard(pb.TxnRequest(success=[write]))
    etcd = Etcd(BlockingRuntime(), parse(group.url))
    try:
        assert run(etcd.call(TXN, transaction, clock.now() + 5)).succeeded
        assert desk(lease.release)
        assert not run(etcd.call(TXN, transaction, clock.now() + 5)).succeeded
    finally:
        run(etcd.close())


def test_a_key_that_an_operator_deleted_lets_nothing_through(group: Any, desk: Desk) -> None:
    server = group.members[0]
    lease = desk.acquire("job", ttl=20)
    (key,) = keys(server)
    delete(server, key)
    assert lease.is_held()  # it does not know yet
    assert not put(server, lease, "stale")
    assert not desk(lease.release)


def test_a_lease_that_is_over_guards_nothing(desk: Desk) -> None:
    lease = desk.acquire("job", ttl=20)
    assert desk(lease.release)
    with pytest.raises(NotHeld):
        lease.guard({})
    lost = desk.acquire("job", ttl=1, renew=False)
    desk(desk.locks.force_release, "job")
    with pytest.raises(LeaseLost):
        lost.guard({})


def test_what_is_no_transaction_is_refused(desk: Desk) -> None:
    lease = desk.acquire("job", ttl=20)
    with pytest.raises(ConfigurationError, match="a str is no transaction of etcd's"):
        lease.guard("transaction")
    assert desk(lease.release)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_other_stores_say_that_they_have_none(flavour: str) -> None:
    with desk_for(flavour, "memory://") as desk:
        lease = desk.acquire("job")
        with pytest.raises(Unsupported, match="guard"):
            lease.guard({})
        assert desk(lease.release)
