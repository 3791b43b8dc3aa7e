"""A gate in this process: the newest token of each resource, in a dictionary.

For tests, for resources that live in the process itself, and for the HTTP middleware of a server that is
one process. `admit` asks the rule and remembers. `turn` does so and keeps the resource until its block ends:
nobody else gets past the gate meanwhile, so a write inside the block belongs to the comparison before it.

Not promised: anything to another process, or after a restart. A mark stays until `forget` is called: one
number for each resource.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from fencelock.fencing.rule import check_resource, check_token, judge
from fencelock.runtime import locks

__all__ = ["AsyncGate", "Gate"]


class Mark:
    """What is known of one resource, and whose turn it is."""

    __slots__ = ("lock", "newest")

    def __init__(self, lock: Any) -> None:
        self.lock = lock
        self.newest = 0

    def rise(self, resource: str, token: int) -> None:
        judge(resource, token, self.newest)
        self.newest = token


class Gate:
    """Remembers the newest token of each resource, for the threads of this process.

    Example:
        >>> gate = Gate()
        >>> gate.admit("document:1", 1794966437913934)
        >>> gate.admit("document:1", 1794966437913933)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        fencelock.errors.StaleToken: token 1794966437913933 for 'document:1' is stale: ...934 was seen already
    """

    def __init__(self) -> None:
        self._marks: dict[str, Mark] = {}

    def admit(self, resource: str, token: int) -> None:
        """Let `token` pass, or raise `StaleToken`; waits while somebody else has a turn."""
        with self.turn(resource, token):
            pass

    @contextmanager
    def turn(self, resource: str, token: int) -> Iterator[None]:
        """Let `token` pass, and nobody else until the block ends: compare and write in one step.

        Turns of one resource do not nest.
        """
        check_resource(resource)
        check_token(token)
        mark = self._marks.get(resource) or self._marks.setdefault(resource, Mark(locks.lock()))
        with mark.lock:
            mark.rise(resource, token)
            yield

    def newest(self, resource: str) -> int:
        """Return the newest token that was seen; 0 if none was."""
        mark = self._marks.get(check_resource(resource))
        return mark.newest if mark is not None else 0

    def forget(self, resource: str) -> None:
        """Forget a resource that is no more: any token passes again."""
        self._marks.pop(check_resource(resource), None)


class AsyncGate:
    """Remembers the newest token of each resource, for the tasks of one event loop.

    Example:
        >>> import asyncio
        >>> async def main() -> int:
        ...     gate = AsyncGate()
        ...     async with gate.turn("document:1", 1794966437913934):
        ...         pass  # write
        ...     return gate.newest("document:1")
        >>> asyncio.run(main())
        1794966437913934
    """

    def __init__(self) -> None:
        self._marks: dict[str, Mark] = {}

    async def admit(self, resource: str, token: int) -> None:
        """Let `token` pass, or raise `StaleToken`; waits while somebody else has a turn."""
        async with self.turn(resource, token):
            pass

    @asynccontextmanager
    async def turn(self, resource: str, token: int) -> AsyncIterator[None]:
        """Let `token` pass, and nobody else until the block ends: compare and write in one step.

        Turns of one resource do not nest.
        """
        check_resource(resource)
        check_token(token)
        mark = self._marks.get(resource) or self._marks.setdefault(resource, Mark(asyncio.Lock()))
        async with mark.lock:
            mark.rise(resource, token)
            yield

    def newest(self, resource: str) -> int:
        """Return the newest token that was seen; 0 if none was."""
        mark = self._marks.get(check_resource(resource))
        return mark.newest if mark is not None else 0

    def forget(self, resource: str) -> None:
        """Forget a resource that is no more: any token passes again."""
        self._marks.pop(check_resource(resource), None)
