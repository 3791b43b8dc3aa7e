"""Idempotency keys: work that is asked for twice is done once, and both get the same result.

A *key* says which piece of work it is, a *fingerprint* what it consists of. The first caller does it, those
who come meanwhile wait or are told, those who come later get the result that was kept. The same key with
another fingerprint is refused.

    once(conn, key, fingerprint, effect)         key, effect and result in one transaction of yours
    Store(connect).run(key, fingerprint, effect) effects elsewhere: a claim with a ttl and a token
    IdempotencyMiddleware(app, store)            the header `Idempotency-Key`, for ASGI

`transaction.py`, `store.py` and `asgi.py` say what each of them does not promise.
"""

from fencelock.idempotency.asgi import IdempotencyMiddleware
from fencelock.idempotency.records import (
    Attempt,
    Crashed,
    Done,
    FingerprintChanged,
    InProgress,
    fingerprint,
)
from fencelock.idempotency.store import AsyncStore, Store
from fencelock.idempotency.table import create_table, create_table_async, purge, purge_async
from fencelock.idempotency.transaction import once, once_async

__all__ = [
    "AsyncStore",
    "Attempt",
    "Crashed",
    "Done",
    "FingerprintChanged",
    "IdempotencyMiddleware",
    "InProgress",
    "Store",
    "create_table",
    "create_table_async",
    "fingerprint",
    "once",
    "once_async",
    "purge",
    "purge_async",
]
