"""etcd and ZooKeeper, the comparison in a transaction of your own: the holder that slept, 32 writers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from etcd_desk import delete, value
from fencing_drills import Cast
from kazoo.exceptions import BadVersionError
from tools.servers import start
from workers.fencing_shelves import ZooKeeperShelf

from fencelock import StaleToken
from fencelock.backends.etcd import rpc_pb2 as pb
from fencelock.backends.etcd.address import parse
from fencelock.backends.etcd.connection import Etcd
from fencelock.backends.etcd.methods import TXN
from fencelock.fencing import etcd_fence, etcd_new_fence, zookeeper_fence
from fencelock.runtime import clock
from fencelock.runtime.blocking import BlockingRuntime, run


@pytest.fixture(scope="module")
def cast() -> Iterator[Cast]:
    with Cast() as cast:
        yield cast


@pytest.fixture(scope="module")
def etcd() -> Iterator[Any]:
    with start("etcd") as group:
        yield group


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[Any]:
    with start("zookeeper") as group:
        yield group


@pytest.fixture
def url(request: pytest.FixtureRequest, kind: str) -> str:
    """The URL of a store with nothing of an earlier test in it."""
    group = request.getfixturevalue(kind)
    if kind == "etcd":
        for key in ("fence", "plain", "guarded"):
            delete(group.members[0], key)
    else:
        shelf = ZooKeeperShelf(kind, group.url)
        for path in ("/fence", "/plain", "/guarded"):
            if shelf.client.exists(path):
                shelf.client.delete(path)
        shelf.close()
    return str(group.url)


KINDS = pytest.mark.parametrize("kind", ["etcd", "zookeeper"])


@KINDS
def test_the_holder_that_slept(cast: Cast, kind: str, url: str, tmp_path: Path) -> None:
    cast.paused_holder(kind, url, tmp_path)


@KINDS
def test_32_writers(cast: Cast, kind: str, url: str) -> None:
    cast.crowd(kind, url)


@pytest.mark.parametrize("kind", ["etcd"])
def test_a_transaction_in_protobuf(etcd: Any, url: str) -> None:
    client = Etcd(BlockingRuntime(), parse(url))

    def done(transaction: Any) -> Any:
        return run(client.call(TXN, transaction, clock.now() + 10))

    def put(token: int) -> Any:
        write = pb.RequestOp(request_put=pb.PutRequest(key=b"guarded", value=b"by %d" % token))
        return done(etcd_fence(pb.TxnRequest(success=[write]), "fence", token))

    try:
        assert not put(5).succeeded, "a fence that was never made lets nothing through"
        assert done(etcd_new_fence(pb.TxnRequest(), "fence")).succeeded
        assert [put(token).succeeded for token in (9, 9, 10, 9, 100, 99)] == [
            True,
            True,
            True,
            False,
            True,
            False,
        ]
        assert not done(etcd_new_fence(pb.TxnRequest(), "fence")).succeeded, "made twice: the mark fell"
        assert put(2**63 - 1).succeeded
        refused = put(2**63 - 2)
        assert not refused.succeeded
        assert int(refused.responses[-1].response_range.kvs[0].value) == 2**63 - 1
    finally:
        run(client.close())
    assert value(etcd.members[0], "guarded") == f"by {2**63 - 1}"


@pytest.mark.parametrize("kind", ["zookeeper"])
def test_a_race_in_zookeeper_fails_as_a_whole(url: str) -> None:
    shelf = ZooKeeperShelf("zookeeper", url)
    shelf.create()
    client = shelf.client
    shelf.write(5, "by 5")
    late = zookeeper_fence(client, client.transaction(), "/fence", 6)
    late.set_data("/guarded", b"late")
    shelf.write(7, "by 7")
    results = late.commit()
    assert isinstance(results[0], BadVersionError)
    assert shelf.read()[1] == "by 7"
    with pytest.raises(StaleToken):
        zookeeper_fence(client, client.transaction(), "/fence", 6)
    shelf.close()
