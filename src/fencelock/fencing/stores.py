"""etcd and ZooKeeper: the comparison with a resource's token, in a transaction of your own.

If the lock is kept in the same store, `lease.guard(transaction)` is stronger and needs no more: once the
lease has ended nothing gets through. These are for a lock that is kept elsewhere, or for a resource that is
to remember the newest token itself.

*etcd.* The fence is a key with the newest token, in 19 digits, so that texts sort as numbers do. etcd
compares a value in the transaction itself: the fence must be less than the token after ours. A key that is
not there fails every comparison of values, so it is made once, by `etcd_new_fence`. If the transaction did
not succeed, the last answer of its failure branch has the fence as it stands.

*ZooKeeper* compares versions, not data. So the fence is read first, which refuses an old token at once, and
the transaction sets it on the condition that its version is still the one that was read. A transaction that
lost this race fails as a whole, with BadVersionError or NodeExistsError: begin again.

Not promised: anything about writes without the comparison.
"""

from __future__ import annotations

import asyncio
import base64
from typing import Any, TypeVar

from fencelock.errors import BackendError, ConfigurationError
from fencelock.fencing.rule import check_token, judge, padded
from fencelock.names import shown

__all__ = ["etcd_fence", "etcd_new_fence", "zookeeper_fence", "zookeeper_fence_async"]

Transaction = TypeVar("Transaction")

EQUAL, LESS = 0, 2
CREATE, VALUE = 1, 3
"""Numbers of etcd's Compare.CompareResult and Compare.CompareTarget."""


def etcd_new_fence(transaction: Transaction, key: str | bytes) -> Transaction:
    """Fill an empty transaction that makes the fence `key`, if it is not there; return it.

    `transaction` is etcd's `TxnRequest`, or the dict for its JSON gateway.

    Example:
        >>> transaction = etcd_new_fence({}, "fences/document:1")
        >>> transaction["compare"][0]["target"]
        'CREATE'
    """
    raw, zero = _raw(key), padded(0).encode()
    if isinstance(transaction, dict):
        _list(transaction, "compare").append(
            {"key": _coded(raw), "result": "EQUAL", "target": "CREATE", "create_revision": "0"}
        )
        _list(transaction, "success").append({"request_put": {"key": _coded(raw), "value": _coded(zero)}})
        return transaction
    parts = _message(transaction)
    parts.compare.add(key=raw, result=EQUAL, target=CREATE, create_revision=0)
    put = parts.success.add().request_put
    put.key, put.value = raw, zero
    return transaction


def etcd_fence(transaction: Transaction, key: str | bytes, token: int) -> Transaction:
    """Add to a transaction that the fence `key` has seen no newer token, and sees this one; return it.

    Example:
        >>> transaction = etcd_fence({"success": []}, "fences/document:1", 1794966437913934)
        >>> transaction["compare"][0]["result"], len(transaction["success"])
        ('LESS', 1)
    """
    check_token(token)
    raw, next_one, ours = _raw(key), padded(token + 1).encode(), padded(token).encode()
    if isinstance(transaction, dict):
        _list(transaction, "compare").append(
            {"key": _coded(raw), "result": "LESS", "target": "VALUE", "value": _coded(next_one)}
        )
        _list(transaction, "success").append({"request_put": {"key": _coded(raw), "value": _coded(ours)}})
        _list(transaction, "failure").append({"request_range": {"key": _coded(raw)}})
        return transaction
    parts = _message(transaction)
    parts.compare.add(key=raw, result=LESS, target=VALUE, value=next_one)
    put = parts.success.add().request_put
    put.key, put.value = raw, ours
    parts.failure.add().request_range.key = raw
    return transaction


def zookeeper_fence(client: Any, transaction: Transaction, path: str, token: int) -> Transaction:
    """Add to a transaction of kazoo's that the fence at `path` sees this token; return it.

    `client` is the `KazooClient` that made the transaction; one read is done over it. Raises `StaleToken`.
    The transaction makes the fence if it is not there; its parent must be.
    """
    check_token(token)
    if not isinstance(path, str) or not path.startswith("/") or path == "/":
        raise ConfigurationError(f"path={shown(path)} is not the path of a znode: give '/fences/document'")
    for method in ("create", "set_data"):
        if not callable(getattr(transaction, method, None)):
            raise ConfigurationError(
                f"a {type(transaction).__name__} is no transaction of kazoo's: give client.transaction()"
            )
    from kazoo.exceptions import NoNodeError  # type: ignore[import-untyped]

    parts: Any = transaction
    try:
        data, found = client.get(path)
    except NoNodeError:
        parts.create(path, padded(token).encode())
        return transaction
    if not data.isdigit():
        raise BackendError(backend="zookeeper", detail=f"the fence {path} is damaged: it holds no token")
    judge(path, token, int(data))
    parts.set_data(path, padded(token).encode(), version=found.version)
    return transaction


async def zookeeper_fence_async(client: Any, transaction: Transaction, path: str, token: int) -> Transaction:
    """Do the same as `zookeeper_fence`, on a thread: kazoo has no asyncio."""
    return await asyncio.to_thread(zookeeper_fence, client, transaction, path, token)


def _raw(key: str | bytes) -> bytes:
    if not isinstance(key, str | bytes) or not key:
        raise ConfigurationError(f"key={shown(key)} is not a key: give a string or bytes that are not empty")
    return key.encode() if isinstance(key, str) else key


def _coded(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _list(transaction: dict[str, Any], branch: str) -> list[Any]:
    found: list[Any] = transaction.setdefault(branch, [])
    return found


def _message(transaction: Any) -> Any:
    if not hasattr(getattr(transaction, "compare", None), "add"):
        raise ConfigurationError(
            f"a {type(transaction).__name__} is no transaction of etcd's: give a TxnRequest, "
            "or the dict of its JSON gateway"
        )
    return transaction
