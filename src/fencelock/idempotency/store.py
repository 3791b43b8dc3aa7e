"""Once, for effects outside of the database: a key is claimed, the effect done, the result kept.

    begin    nobody has the key: it is claimed for `ttl` seconds, with a token
             somebody has it: wait, or `InProgress`
             it was done: the result
    finish   the result is kept for `retention`, if the token is still the newest

A process that dies in the middle leaves its claim behind. It is seen in `crashed()`, and when its ttl is over
the next caller gets the key, with a higher token and `is_recovery` set. It may have been done or not: only
whoever does it can find out, so there is `recover` to be called instead of `effect` then. A caller who
was paused and comes back cannot store anything over the result of its successor: `StaleToken`.

NOT promised: that an effect which takes longer than its ttl is not begun twice (`extend` it), nor that a
resource which knows nothing of keys and tokens is not asked twice after a crash. Where the effect is in the
same database, `once` promises both.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

from fencelock.durations import Duration, duration, optional_duration
from fencelock.errors import ConfigurationError
from fencelock.idempotency.places import Place, place_for
from fencelock.idempotency.records import Attempt, Crashed, Done, InProgress, Key, encoded, make_key
from fencelock.names import check_namespace
from fencelock.runtime import blocking, clock

__all__ = ["AsyncStore", "Store"]

T = TypeVar("T")
DAY = 86400.0
MINUTE = 60.0
FIRST_LOOK = 0.01
LAST_LOOK = 0.25
"""Seconds between two looks at a key that somebody has: from the one, doubling, to the other; jittered."""


class _Base:
    """What both flavours share."""

    def __init__(self, place: Place, namespace: str, ttl: Duration, retention: Duration) -> None:
        self._place = place
        self._namespace = check_namespace(namespace)
        self._ttl = duration(ttl, "ttl")
        self._retention = duration(retention, "retention")
        if self._ttl == 0:
            raise ConfigurationError("ttl=0 is no time at all: give more than 0 seconds")

    def _key(self, attempt: Attempt) -> Key:
        if not isinstance(attempt, Attempt):
            raise ConfigurationError(f"{attempt!r} is no attempt: give what begin returned")
        return make_key(attempt.key, "-", self._namespace)

    async def _begin(
        self, key: Key, timeout: float, pause: Callable[[float], Awaitable[None]]
    ) -> Attempt | Done:
        deadline = clock.now() + timeout
        look = FIRST_LOOK
        while True:
            found = await self._place.claim(key, self._ttl)
            if not isinstance(found, float | int):
                return found
            left = deadline - clock.now()
            if left <= 0:
                raise InProgress(key=key.name, expires_in=found)
            await pause(max(0.001, min(left, found, look * (0.5 + random.random()))))
            look = min(LAST_LOOK, look * 2)

    async def _finish(self, attempt: Attempt, result: Any) -> None:
        key, text = self._key(attempt), encoded(result)
        await self._place.finish(key, attempt, text, self._retention)

    async def _extend(self, attempt: Attempt, seconds: float) -> None:
        await self._place.extend(self._key(attempt), attempt, seconds)


class Store(_Base):
    """Keys and results in SQL or Redis, for effects outside of them. Any number of threads may share one.

    `target` is a function that makes a connection (of sqlite3, psycopg, PyMySQL or SQLAlchemy), or a
    `redis.Redis`. An attempt has `ttl` seconds, a result is kept for `retention`.
    """

    def __init__(
        self, target: Any, *, namespace: str = "", ttl: Duration = MINUTE, retention: Duration = DAY
    ) -> None:
        super().__init__(place_for(target, is_async=False), namespace, ttl, retention)

    def run(
        self,
        key: str,
        fingerprint: str | bytes,
        effect: Callable[[Attempt], T],
        *,
        timeout: Duration | None = None,
        recover: Callable[[Attempt], T] | None = None,
    ) -> T:
        """Do it, or return what it returned the last time.

        Somebody who does it just now is waited for, up to `timeout`; then `InProgress`. After an attempt that
        did not end, `recover` is called instead of `effect`, if it is given. An error of either passes, and
        counts as an attempt that did not end.
        """
        found = self.begin(key, fingerprint, timeout=timeout)
        if isinstance(found, Done):
            return cast("T", found.result)
        try:
            result = (recover if recover is not None and found.is_recovery else effect)(found)
        except BaseException:
            with suppress(Exception):  # its ttl ends it anyway
                self.abandon(found)
            raise
        self.finish(found, result)
        return result

    def begin(self, key: str, fingerprint: str | bytes, *, timeout: Duration | None = None) -> Attempt | Done:
        """Claim a key, or say that it was done; `run` in single steps. Raises `InProgress`."""
        wanted = make_key(key, fingerprint, self._namespace)
        return blocking.run(self._begin(wanted, optional_duration(timeout, "timeout"), _sleep))

    def finish(self, attempt: Attempt, result: Any) -> None:
        """Keep the result. Raises `StaleToken` if another attempt has begun since."""
        blocking.run(self._finish(attempt, result))

    def extend(self, attempt: Attempt, ttl: Duration) -> None:
        """Let an attempt have so much time from now on. Raises `StaleToken`."""
        blocking.run(self._extend(attempt, duration(ttl, "ttl")))

    def abandon(self, attempt: Attempt) -> None:
        """Break an attempt off: the next caller may begin at once, as a recovery. Raises `StaleToken`."""
        blocking.run(self._extend(attempt, 0.0))

    def crashed(self) -> list[Crashed]:
        """Return the keys whose last attempt did not end, oldest first."""
        return blocking.run(self._place.crashed())


class AsyncStore(_Base):
    """The same as `Store`, for asyncio.

    `target` makes an asynchronous connection (of psycopg, asyncmy or SQLAlchemy), or is a
    `redis.asyncio.Redis`. With `threads=True` it makes a blocking one, which is used on a thread.
    """

    def __init__(
        self,
        target: Any,
        *,
        namespace: str = "",
        ttl: Duration = MINUTE,
        retention: Duration = DAY,
        threads: bool = False,
    ) -> None:
        super().__init__(place_for(target, is_async=True, threads=threads), namespace, ttl, retention)

    async def run(
        self,
        key: str,
        fingerprint: str | bytes,
        effect: Callable[[Attempt], Awaitable[T]],
        *,
        timeout: Duration | None = None,
        recover: Callable[[Attempt], Awaitable[T]] | None = None,
    ) -> T:
        """Do it, or return what it returned the last time. See `Store.run`."""
        found = await self.begin(key, fingerprint, timeout=timeout)
        if isinstance(found, Done):
            return cast("T", found.result)
        try:
            result = await (recover if recover is not None and found.is_recovery else effect)(found)
        except BaseException:
            with suppress(Exception):  # its ttl ends it anyway
                await asyncio.shield(self.abandon(found))
            raise
        await self.finish(found, result)
        return result

    async def begin(
        self, key: str, fingerprint: str | bytes, *, timeout: Duration | None = None
    ) -> Attempt | Done:
        """Claim a key, or say that it was done; `run` in single steps. Raises `InProgress`."""
        wanted = make_key(key, fingerprint, self._namespace)
        return await self._begin(wanted, optional_duration(timeout, "timeout"), asyncio.sleep)

    async def finish(self, attempt: Attempt, result: Any) -> None:
        """Keep the result. Raises `StaleToken` if another attempt has begun since."""
        await self._finish(attempt, result)

    async def extend(self, attempt: Attempt, ttl: Duration) -> None:
        """Let an attempt have so much time from now on. Raises `StaleToken`."""
        await self._extend(attempt, duration(ttl, "ttl"))

    async def abandon(self, attempt: Attempt) -> None:
        """Break an attempt off: the next caller may begin at once, as a recovery. Raises `StaleToken`."""
        await self._extend(attempt, 0.0)

    async def crashed(self) -> list[Crashed]:
        """Return the keys whose last attempt did not end, oldest first."""
        return await self._place.crashed()


async def _sleep(seconds: float) -> None:
    time.sleep(seconds)  # noqa: ASYNC251 (nothing suspends here)
