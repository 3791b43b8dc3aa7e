"""The comparisons for etcd and ZooKeeper: what is refused. tests/acceptance has the servers."""

from __future__ import annotations

import asyncio
import base64
from types import SimpleNamespace
from typing import Any

import pytest

from fencelock import BackendError, ConfigurationError, StaleToken
from fencelock.backends.etcd import rpc_pb2 as pb
from fencelock.fencing import etcd_fence, etcd_new_fence, zookeeper_fence, zookeeper_fence_async


def decoded(thing: Any) -> Any:
    return base64.b64decode(thing).decode()


def test_both_forms_say_the_same() -> None:
    gateway = etcd_fence({"success": [{"mine": 1}]}, "fence", 34)
    message = etcd_fence(pb.TxnRequest(), b"fence", 34)
    (compare,) = gateway["compare"]
    assert decoded(compare["value"]) == message.compare[0].value.decode() == "0000000000000000035"
    assert (message.compare[0].result, message.compare[0].target) == (2, 3)
    assert gateway["success"][0] == {"mine": 1}
    put = gateway["success"][1]["request_put"]
    assert decoded(put["value"]) == message.success[0].request_put.value.decode() == "0000000000000000034"
    assert decoded(gateway["failure"][0]["request_range"]["key"]) == "fence"
    assert message.failure[0].request_range.key == b"fence"


def test_a_new_fence_in_both_forms() -> None:
    gateway, message = etcd_new_fence({}, "fence"), etcd_new_fence(pb.TxnRequest(), "fence")
    assert decoded(gateway["success"][0]["request_put"]["value"]) == "0" * 19
    assert message.success[0].request_put.value == b"0" * 19
    (compared,) = gateway["compare"]
    assert decoded(compared.pop("key")) == "fence"
    assert compared == {"result": "EQUAL", "target": "CREATE", "create_revision": "0"}
    (told,) = message.compare
    assert (told.key, told.create_revision) == (b"fence", 0)
    assert (told.result, told.target) == (pb.Compare.EQUAL, pb.Compare.CREATE)


@pytest.mark.parametrize("bad", [None, "transaction", [], object()])
def test_what_is_no_transaction(bad: Any) -> None:
    with pytest.raises(ConfigurationError, match="is no transaction of etcd's"):
        etcd_fence(bad, "fence", 1)
    with pytest.raises(ConfigurationError, match="is no transaction of kazoo's"):
        zookeeper_fence(None, bad, "/fence", 1)


def test_bad_input_changes_nothing() -> None:
    transaction: dict[str, Any] = {}
    for key, token in [("", 1), (None, 1), ("k", 0), ("k", True), ("k", 2**63)]:
        with pytest.raises(ConfigurationError):
            etcd_fence(transaction, key, token)  # type: ignore[arg-type]
    assert transaction == {}


class Kazoo:
    """Stands for a client and its transaction."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.done: list[Any] = []

    def get(self, path: str) -> Any:
        return self.data, SimpleNamespace(version=7)

    def create(self, *args: Any) -> None:
        self.done.append(("create", *args))

    def set_data(self, *args: Any, version: int) -> None:
        self.done.append(("set", *args, version))


def test_zookeeper_sets_what_it_has_read() -> None:
    kazoo = Kazoo(b"0000000000000000034")
    assert zookeeper_fence(kazoo, kazoo, "/fence", 34) is kazoo
    assert asyncio.run(zookeeper_fence_async(kazoo, kazoo, "/fence", 35)) is kazoo
    assert kazoo.done == [
        ("set", "/fence", b"0000000000000000034", 7),
        ("set", "/fence", b"0000000000000000035", 7),
    ]
    kazoo.done.clear()
    with pytest.raises(StaleToken):
        zookeeper_fence(kazoo, kazoo, "/fence", 33)
    for path, token in [("fence", 35), ("/", 35), (None, 35), ("/fence", 0)]:
        with pytest.raises(ConfigurationError):
            zookeeper_fence(kazoo, kazoo, path, token)  # type: ignore[arg-type]
    kazoo.data = b"garbage"
    with pytest.raises(BackendError, match="is damaged"):
        zookeeper_fence(kazoo, kazoo, "/fence", 35)
    assert kazoo.done == []
