"""How a backend is called on the page: its URL without user, password and options."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs

from fencelock.backends import hide_password
from fencelock.core.ports import Backend

__all__ = ["label_of"]


def label_of(id_: str, target: str | Backend, namespace: str | None) -> dict[str, Any]:
    """Return what is told of a backend.

    Example:
        >>> label_of("b0", "redis://app:secret@cache/0?namespace=shop", None)["label"]
        'redis://cache/0'
    """
    if isinstance(target, Backend):
        return {"id": id_, "label": target.name, "namespace": namespace or "", "scheme": target.name}
    shown = re.sub(r"://[^/?#]*", lambda found: f"://{_hosts(found[0][3:])}", target, count=1)
    base, _, options = hide_password(shown).partition("?")
    named = parse_qs(options.partition("#")[0]).get("namespace", [""])[-1]
    scheme = target.partition("://")[0].lower()
    return {"id": id_, "label": base.partition("#")[0], "namespace": namespace or named, "scheme": scheme}


def _hosts(place: str) -> str:
    """Return the hosts of a URL, without users and passwords."""
    parts = place.split(",")
    last = max((n for n, part in enumerate(parts) if "@" in part), default=-1)
    # What stands before an @ and has none itself may be a piece of a password with a comma in it.
    return ",".join(part.rpartition("@")[2] for n, part in enumerate(parts) if "@" in part or n > last)
