"""The check that ties a user's own transaction to a lease: the lease's key is still held by its session.

Consul does a transaction as a whole at one index of its log, or not at all, so there is no moment between
the check and the writes in which the lease could end. This is stronger than a token that the resource
compares: once the lease has ended nothing gets through, whether or not somebody newer has written.
"""

from __future__ import annotations

from typing import Any

from fencelock.errors import ConfigurationError

__all__ = ["guard"]


def guard(transaction: Any, key: str, session: str) -> None:
    """Add the check to a transaction: the list that /v1/txn takes."""
    if not isinstance(transaction, list):
        raise ConfigurationError(
            f"a {type(transaction).__name__} is no transaction of Consul's: give the list that /v1/txn takes"
        )
    transaction.append({"KV": {"Verb": "check-session", "Key": key, "Session": session}})
