"""Transactions: a few operations on keys at one index of Consul's log, all of them or none. And reads."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from fencelock.backends.consul.failures import no_consul, refused
from fencelock.backends.consul.wire import Wire

__all__ = ["MOST_OPERATIONS", "Refused", "kv", "read", "transact"]

MOST_OPERATIONS = 64
OURS = ("invalid session", "failed to", "doesn't exist", "failed session check")
"""What Consul says when something in a transaction did not hold."""


class Refused(Exception):
    """A transaction was not done: something in it did not hold."""

    def __init__(self, what: str, again: bool) -> None:
        super().__init__(what)
        self.what = what
        self.again = again
        """It may have been done before by its own sending."""


def kv(
    verb: str, key: str, *, session: str = "", value: bytes | None = None, index: int = 0
) -> dict[str, Any]:
    """Return one operation on a key."""
    operation: dict[str, Any] = {"Verb": verb, "Key": key}
    if session:
        operation["Session"] = session
    if value is not None:
        operation["Value"] = base64.b64encode(value).decode("ascii")
    if index:
        operation["Index"] = index
    return {"KV": operation}


async def read(wire: Wire, path: str, deadline: float) -> tuple[list[Any], int]:
    """Return what a read found, which may be nothing, and the index that it is of."""
    answer = await wire.ask("GET", path, deadline)
    try:
        found = json.loads(answer.body) if answer.status == 200 else []
    except ValueError as error:
        raise no_consul(wire.address.label) from error
    if not isinstance(found, list) or b"x-consul-index" not in answer.headers:
        raise no_consul(wire.address.label)
    return found, answer.moment


async def transact(
    wire: Wire, operations: Sequence[dict[str, Any]], deadline: float, tag: str = ""
) -> list[dict[str, Any]]:
    """Do a transaction and return what it read. Raises `Refused`. See `Wire.settled` for `tag`."""
    body = json.dumps(operations).encode()
    answer, again = await wire.ask_counted("PUT", "/v1/txn?consistent", deadline, body, tag)
    try:
        told = json.loads(answer.body)
        if answer.status == 200:
            return [one["KV"] for one in told["Results"] or ()]
        what = "; ".join(error["What"] for error in told["Errors"])
    except (ValueError, TypeError, KeyError) as error:
        raise no_consul(wire.address.label) from error
    if any(words in what for words in OURS):
        raise Refused(what, again)
    raise refused(wire.address.label, what)
