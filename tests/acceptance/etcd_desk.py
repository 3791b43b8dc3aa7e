"""What the tests on etcd share: questions to the server itself, by its JSON gateway."""

from __future__ import annotations

import base64
from typing import Any

ROOT = "fencelock/"


def keys(server: Any) -> list[str]:
    """Return every key of fencelock's."""
    found = server.ask("kv/range", {"key": coded(ROOT), "range_end": coded("fencelock0"), "keys_only": True})
    return sorted(base64.b64decode(pair["key"]).decode() for pair in found.get("kvs", ()))


def leases(server: Any) -> list[str]:
    """Return the id of every lease."""
    return [lease["ID"] for lease in server.ask("lease/leases", {}).get("leases", ())]


def lease_of(server: Any, key: str) -> str:
    """Return the id of the lease that a key lives in."""
    return str(server.ask("kv/range", {"key": coded(key)})["kvs"][0]["lease"])


def revoke(server: Any, lease: str) -> None:
    """End a lease, and delete its keys with it."""
    server.ask("lease/revoke", {"ID": lease})


def delete(server: Any, key: str) -> None:
    """Delete a key, as an operator might."""
    server.ask("kv/deleterange", {"key": coded(key)})


def value(server: Any, key: str) -> str | None:
    """Return the value of any key."""
    found = server.ask("kv/range", {"key": coded(key)}).get("kvs", ())
    return base64.b64decode(found[0].get("value", "")).decode() if found else None


def coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
