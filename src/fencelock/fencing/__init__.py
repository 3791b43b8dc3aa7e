"""The resource's side of a lock: remember the highest token, refuse a lower one, let an equal one pass.

    fencing.admit(conn, "document:1", lease.token)       # SQL, in your own transaction
    fencing.update(conn, "documents", {…}, where={"id": 1}, token=lease.token)
    RedisFence(client).set("document:1", text, token=lease.token)
    fenced_write("report.csv", data, token=lease.token)
    ASGIFence(app, AsyncGate())                          # HTTP, by the header Fencing-Token

Each compares and writes in one step and raises `fencelock.StaleToken`. `rule.py` has the rule; `table.py`,
`columns.py`, `orm.py`, `redis.py`, `files.py`, `http.py`, `stores.py`, `gate.py` and `sqlgate.py` are its
places, and each says at its top what it does not promise. Names that end in `_async` are coroutines.

Tokens of different locks have nothing to do with each other: one resource, one lock name.
"""

from typing import TYPE_CHECKING, Any

from fencelock.fencing.columns import update, update_async
from fencelock.fencing.files import fenced_read, fenced_read_async, fenced_write, fenced_write_async
from fencelock.fencing.gate import AsyncGate, Gate
from fencelock.fencing.http import HEADER, Admits, ASGIFence, AsyncAdmits, WSGIFence
from fencelock.fencing.redis import AsyncFencedScript, AsyncRedisFence, FencedScript, RedisFence
from fencelock.fencing.sending import send_token, send_token_async
from fencelock.fencing.sqlgate import AsyncSQLGate, SQLGate
from fencelock.fencing.stores import etcd_fence, etcd_new_fence, zookeeper_fence, zookeeper_fence_async
from fencelock.fencing.table import (
    TABLE,
    admit,
    admit_async,
    create_table,
    create_table_async,
    forget,
    forget_async,
    newest,
    newest_async,
)

if TYPE_CHECKING:
    from fencelock.fencing.orm import Fenced

__all__ = [
    "HEADER",
    "TABLE",
    "ASGIFence",
    "Admits",
    "AsyncAdmits",
    "AsyncFencedScript",
    "AsyncGate",
    "AsyncRedisFence",
    "AsyncSQLGate",
    "Fenced",
    "FencedScript",
    "Gate",
    "RedisFence",
    "SQLGate",
    "WSGIFence",
    "admit",
    "admit_async",
    "create_table",
    "create_table_async",
    "etcd_fence",
    "etcd_new_fence",
    "fenced_read",
    "fenced_read_async",
    "fenced_write",
    "fenced_write_async",
    "forget",
    "forget_async",
    "newest",
    "newest_async",
    "send_token",
    "send_token_async",
    "update",
    "update_async",
    "zookeeper_fence",
    "zookeeper_fence_async",
]


def __getattr__(name: str) -> Any:
    # The one name that cannot be without its library.
    if name == "Fenced":
        try:
            from fencelock.fencing.orm import Fenced
        except ModuleNotFoundError as error:
            from fencelock.errors import ConfigurationError

            raise ConfigurationError(
                f"fencelock.fencing.Fenced needs the package {error.name!r}: pip install sqlalchemy"
            ) from error
        return Fenced
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
