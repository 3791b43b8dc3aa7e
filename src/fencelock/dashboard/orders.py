"""An order to break a lock: what it must say."""

from __future__ import annotations

from typing import Any

from fencelock.dashboard.audit import checked_reason
from fencelock.dashboard.replies import Refused
from fencelock.errors import ConfigurationError

__all__ = ["order_of"]

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
    try:
        return name, owners, checked_reason(reason)
    except ConfigurationError as error:
        raise Refused(422, str(error)) from None
