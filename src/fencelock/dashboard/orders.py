"""An order to break a lock: what it must say, and what is said of it afterwards."""

from __future__ import annotations

from typing import Any

from fencelock.dashboard.replies import Refused
from fencelock.state import Entry

__all__ = ["order_of", "told_of"]

REASON = 500
OWNERS = 1000


def order_of(told: dict[str, Any]) -> tuple[str, list[str], str]:
    """Return what is to be broken and why, if the order makes sense."""
    name, owners, reason = told.get("name"), told.get("owners"), told.get("reason")
    if not isinstance(name, str) or not name:
        raise Refused(422, "name is missing: say which lock")
    if not isinstance(owners, list) or not all(isinstance(each, str) and each for each in owners):
        raise Refused(422, "owners is missing: say whom, by their owner ids")
    if not 0 < len(owners) <= OWNERS:
        raise Refused(422, f"name from 1 to {OWNERS} owners")
    if not isinstance(reason, str) or not reason.strip():
        raise Refused(422, "reason is missing: say why, for those who read the audit log")
    if len(reason) > REASON:
        raise Refused(422, f"the reason has {len(reason)} characters: {REASON} are possible")
    return name, owners, reason.strip()


def told_of(entry: Entry) -> dict[str, Any]:
    """Return what is told, and written down, of somebody who was broken."""
    fields = ("owner", "token", "mode", "client", "host", "pid")  # metadata may say what is not for a log
    return {key: getattr(entry, key) for key in fields}
