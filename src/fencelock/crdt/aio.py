"""`Replica` for asyncio: the same, on a thread. Files have no other way, and records are few."""

from __future__ import annotations

import asyncio
import os
import time as _time
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from fencelock.crdt.base import Change, Crdt
from fencelock.crdt.clocks import HybridLogicalClock
from fencelock.crdt.exchange import Exchange
from fencelock.crdt.replica import Replica, Synced
from fencelock.durations import Duration
from fencelock.errors import ConfigurationError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["AsyncReplica"]

C = TypeVar("C", bound=Crdt)


class AsyncReplica(Generic[C]):
    """The same as `Replica`, for asyncio: whatever does I/O is a coroutine and runs on a thread.

    Example:
        >>> import asyncio, tempfile
        >>> from fencelock.crdt import ORSet
        >>> async def main(folder):
        ...     path, exchange = f"{folder}/tags", f"file://{folder}"
        ...     async with AsyncReplica("tags", ORSet, path=path, exchange=exchange) as tags:
        ...         await tags.update(lambda value: value.add(tags.id, "new"))
        ...         return await tags.sync()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     asyncio.run(main(folder))
        Synced(received=0, sent=True)
    """

    def __init__(
        self,
        name: str,
        kind: type[C],
        *,
        path: str | os.PathLike[str],
        exchange: str | os.PathLike[str] | Exchange,
        max_ahead: Duration = 60.0,
        time: Callable[[], float] = _time.time,
    ) -> None:
        """Take the arguments of `Replica`; the file is opened by `async with`."""
        self._made: Replica[C] | None = None
        self._make: Callable[[], Replica[C]] = lambda: Replica(
            name, kind, path=path, exchange=exchange, max_ahead=max_ahead, time=time
        )

    @property
    def name(self) -> str:
        """What the value is called; replicas of one name exchange."""
        return self._inner.name

    @property
    def id(self) -> str:
        """Who this replica is, for the mutators: a random id, kept in the file."""
        return self._inner.id

    @property
    def clock(self) -> HybridLogicalClock:
        """The clock for last-write-wins types; it follows what was merged."""
        return self._inner.clock

    @property
    def value(self) -> C:
        """The value as it is known here."""
        return self._inner.value

    async def update(self, change: Callable[[C], Change[C]]) -> C:
        """Change the value by one of its mutators, on a thread, and return it once it is on disk."""
        return await asyncio.to_thread(self._inner.update, change)

    async def sync(self) -> Synced:
        """Merge what others have left, and leave what was changed here; raise if something was refused."""
        return await asyncio.to_thread(self._inner.sync)

    async def forget(self, replica: str) -> None:
        """Remove what a replica that is gone for good has left, once all of it is merged and left anew."""
        await asyncio.to_thread(self._inner.forget, replica)

    async def close(self) -> None:
        """Let others open the file. What was not synced stays in it."""
        if self._made is not None:
            await asyncio.to_thread(self._made.close)

    async def __aenter__(self) -> Self:
        if self._made is None:
            opening = asyncio.ensure_future(asyncio.to_thread(self._make))
            try:
                self._made = await asyncio.shield(opening)
            except asyncio.CancelledError:
                opening.add_done_callback(_close_unwanted)
                raise
        self._made._check()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def _inner(self) -> Replica[C]:
        if self._made is None:
            raise ConfigurationError("the replica is not open: use it in `async with`")
        return self._made

    def __repr__(self) -> str:
        return "<AsyncReplica, not open>" if self._made is None else f"<Async{repr(self._made)[1:]}"


def _close_unwanted(opening: asyncio.Future[Replica[C]]) -> None:
    """Close what was opened for somebody who has left."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
