"""Adapters: every library in the same shape, so that one drill fits all. One small file each.

An adapter offers what its library can do of these two, with the library's best documented settings,
which its first lines tell:

    blocking(url, **options)              a context manager that gives `make`
    asynchronous(url, tasks, **options)   the same under asyncio, for that many tasks at a time
    make(name)                            a section: a context manager that can be entered again

A section that could not be entered raises: a peer that lets its caller in without the lock is not
measured as if it had been fast. An adapter may also bring a drill of its own (see `drills`).

Adapters run in child processes, each under the Python of its environment (see `bench.children`), so
nothing here may need more than the standard library and the peer itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

__all__ = ["TTL", "AsyncMake", "Entry", "Make"]

TTL = 30
"""Seconds for which everybody asks: fencelock's default."""

Make = Callable[[str], AbstractContextManager[Any]]
AsyncMake = Callable[[str], AbstractAsyncContextManager[Any]]


@dataclass(frozen=True, eq=False)
class Entry:
    """One row of a table: a library, by its adapter, in its environment."""

    label: str
    adapter: str
    role: str = "peer"
    environment: str | None = None
    """None is the environment that the benchmark itself runs in."""
    options: Mapping[str, Any] = field(default_factory=dict)
    drill: str | None = None
    """Another drill than the others', with options of its own: the limit of many tasks is a pipeline."""
