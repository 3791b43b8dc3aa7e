"""What a check is, what it covers, and the table of all of them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fencelock.core.ports import CAPABILITIES

if TYPE_CHECKING:
    from fencelock.testing.conformance.world import World

__all__ = ["NUMBERED", "PROMISES", "Check", "check", "checks"]

NUMBERED = {
    "words": 1,
    "tokens": 2,
    "residue": 3,
    "fifo": 4,
    "wakeup": 5,
    "validity": 6,
    "renewal": 7,
    "loss": 8,
    "ambiguity": 9,
    "interruption": 10,
    "fork": 11,
    "abandoned": 12,
    "identity": 13,
}
"""The promises that always hold, by the word for each and its number in the contract."""

PROMISES = frozenset(
    {
        *NUMBERED,
        "exclusion",  # a lock has one holder
        "names",  # no two names meet
        "values",  # a wrong value is refused by name
        "timeouts",  # one deadline covers the whole call
        "leases",  # what a lease says and does
        "clients",  # sharing, closing, namespaces
        "shared",  # read-write locks
        "permits",  # semaphores
        "multi",
        "election",
        "looking",  # inspect, list, force_release
        "errors",  # held by someone else and backend down are never confused
        "guarantees",
    }
)

Processes = Literal["", "one", "many"]
Body = Callable[["World"], Awaitable[None]]

LIMIT = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that a backend must do, in either flavour."""

    name: str
    promise: str
    """A word of `PROMISES`: what it covers."""
    doc: str
    """One sentence: what it shows."""
    body: Body
    needs: frozenset[str] = frozenset()
    """Capabilities it uses. Where one is not declared, `Unsupported` is what is checked instead."""
    processes: Processes = ""
    """`one`: runs in a process of its own. `many`: processes share the backend."""
    relayed: bool = False
    """It puts relays between a client and its servers."""
    alone: bool = False
    """Nothing else may run beside it."""
    timing: bool = False
    """It is about time. If it fails because something was late, it runs once more, alone."""
    limit: float = LIMIT
    """Seconds after which it has failed, on a backend without a minimum ttl."""
    bug: str = ""
    """The bug of a well-known library that it would find."""


_registered: dict[str, Check] = {}


def check(
    promise: str,
    *,
    needs: Iterable[str] = (),
    processes: Processes = "",
    relayed: bool = False,
    alone: bool = False,
    timing: bool = False,
    limit: float = LIMIT,
    bug: str = "",
) -> Callable[[Body], Body]:
    """Register `async def check_xyz(world)` under the name `xyz`."""

    def register(body: Body) -> Body:
        name = body.__name__.removeprefix("check_")
        unknown = {promise} - PROMISES | set(needs) - CAPABILITIES
        doc = (inspect.getdoc(body) or "").partition("\n")[0]
        if unknown or not doc or name in _registered:
            raise ValueError(f"check {name!r} has no docstring, is there twice, or needs {unknown}")
        _registered[name] = Check(
            name=name,
            promise=promise,
            doc=doc,
            body=body,
            needs=frozenset(needs),
            processes=processes,
            relayed=relayed,
            alone=alone,
            timing=timing,
            limit=limit,
            bug=bug,
        )
        return body

    return register


def checks() -> list[Check]:
    """Return every check, theme by theme."""
    themes = importlib.import_module("fencelock.testing.conformance.themes")
    for module in sorted(module.name for module in pkgutil.iter_modules(themes.__path__)):
        importlib.import_module(f"{themes.__name__}.{module}")
    return list(_registered.values())
