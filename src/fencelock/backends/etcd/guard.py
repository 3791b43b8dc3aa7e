"""The comparison that ties a user's own transaction to a lease: the lease's key is still the one it was.

etcd does a transaction at one revision, so there is no moment between the comparison and the writes in which
the lease could end. This is stronger than a token that the resource compares: once the lease has ended
nothing gets through, whether or not somebody newer has written.
"""

from __future__ import annotations

import base64
from typing import Any

from fencelock.errors import ConfigurationError

__all__ = ["guard"]

EQUAL, CREATE = 0, 1
"""Numbers of etcd's Compare.CompareResult and Compare.CompareTarget."""


def guard(transaction: Any, key: bytes, revision: int) -> None:
    """Add the comparison to a transaction: a message of etcd's proto, or the dict of its JSON gateway."""
    if isinstance(transaction, dict):
        transaction.setdefault("compare", []).append(
            {
                "key": base64.b64encode(key).decode(),
                "result": "EQUAL",
                "target": "CREATE",
                "create_revision": str(revision),
            }
        )
        return
    comparisons = getattr(transaction, "compare", None)
    if comparisons is None or not hasattr(comparisons, "add"):
        raise ConfigurationError(
            f"a {type(transaction).__name__} is no transaction of etcd's: give a TxnRequest, "
            "or the dict of its JSON gateway"
        )
    comparisons.add(key=key, result=EQUAL, target=CREATE, create_revision=revision)
