"""What is put under test: a lock library behind one small face, so that each goes through the same machine.

A *subject* is made once in each client process, by a factory that is named `module:function` and called with
the server's URL and the client's name:

    def make(url: str, client: str) -> Subject: ...

`acquire(ask)` waits for the lock, at most `ask.timeout` seconds, and answers with a `Lease`, or with
`None` when the time was over. Whatever else goes wrong it raises, and the workload writes it down as
failed. In a subject of the flavour `asyncio`, `acquire`, `Lease.release` and `close` are coroutine
functions; in one of the flavour `blocking` they are plain, and many threads call them at once.

A lease tells what it *claims*, without I/O: `is_held()`, and for how many seconds that is certain without
another word from the server, `remaining()`. The checker believes these claims and holds the subject to them,
so an adapter must claim what its library's documentation lets a user believe: a library that says nothing
after the grant is believed for the `ttl`, counted from before the attempt that got the lock, and only in the
process that asked.

`traits` say what the library offers. What it does not offer is left blank in the table, and not judged:

- without `tokens`, `Lease.token` is None and the guarded resource is not used;
- without `fifo`, the order of waiters is not judged;
- without `losses`, `ask.lost` is never called and nothing is expected of it;
- `modes` are those it can do; the workload asks for no others.

`ask.lost(reason)` is to be called when the library reports the loss of this lease, each time that it does;
`ask.queued()` when the server has acknowledged the request's place in the line, `ask.requeued()` when a new
place had to be taken. Both of the latter are optional: without them the order of waiters is simply not seen.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from fencelock.testing import Mode

__all__ = ["Ask", "Lease", "Subject", "Traits", "load"]


@dataclass(frozen=True)
class Traits:
    """What a library offers."""

    modes: frozenset[Mode] = frozenset({"exclusive"})
    tokens: bool = False
    fifo: bool = False
    losses: bool = False


def _nothing(*_: object) -> None:
    """For those who do not care."""


@dataclass(frozen=True)
class Ask:
    """One request for a lock."""

    name: str
    mode: Mode
    limit: int | None
    """How many permits there are; None unless `mode` is `permit`."""
    ttl: float
    timeout: float
    lost: Callable[[str], None] = field(default=_nothing)
    queued: Callable[[], None] = field(default=_nothing)
    requeued: Callable[[], None] = field(default=_nothing)


class Lease(Protocol):
    """What `acquire` gives."""

    @property
    def token(self) -> int | None: ...
    @property
    def owner(self) -> str: ...
    def remaining(self) -> float:
        """Seconds for which it is certainly held, by the library's own word. No I/O."""
        ...

    def is_held(self) -> bool:
        """Whether the library says that it is held. No I/O."""
        ...

    def release(self) -> Any:
        """Give it back. May raise: that is written down, and the work goes on."""
        ...


class Subject(Protocol):
    """A client of a lock library."""

    flavour: Literal["blocking", "asyncio"]
    traits: Traits

    def acquire(self, ask: Ask) -> Any:
        """Return a `Lease`, or None when the time was over."""
        ...

    def close(self) -> Any:
        """Give back every socket, file and thread."""
        ...


def load(factory: str) -> Callable[[str, str], Subject]:
    """Find a factory by its `module:function`."""
    module, _, name = factory.partition(":")
    found: Callable[[str, str], Subject] = getattr(importlib.import_module(module), name)
    return found
