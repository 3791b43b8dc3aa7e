"""The course of a flight, for both flavours: look, wait, look again, compute, keep.

    1. Look: one round trip. What was found is judged here, by what came with it (`records.judge`).
       It can be used: done. It is stale, or to be refreshed early: done, and refreshed in the background.
    2. Join the flight that this process has for the key, or begin one:
    3. Take the key's lock, first come first served, with a lease that is renewed.
    4. Claim the key, if its record is still the one that was seen; another one can be used, as a rule: done.
    5. Compute.
    6. Keep it, if the claim still stands. Release the lock: the next in the queue finds the value in step 4.

Safety: what is kept is of the computation that began last, since a claim is made after the lock was granted
and before the computation begins, and a later claim replaces it. A process that was paused in step 5, whose
lease ended, and whose successor has claimed, keeps nothing; its callers still get what it computed. `put` and
`forget` take claims away, so what was being computed when they were called is not kept either. Tokens of the
lock have no part in it: values may outlive the store that gave the tokens.

NOT promised: that nothing is computed twice. A lease that is lost lets another begin.
"""

from __future__ import annotations

import logging
import math
import os
import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

from fencelock.connect import ClientBase
from fencelock.connections import settled
from fencelock.durations import Duration
from fencelock.errors import AcquireTimeout, BackendError, ConfigurationError, FencelockError
from fencelock.flight.codecs import Codec, codec_for
from fencelock.flight.places import Place, place_for
from fencelock.flight.records import (
    NOBODY,
    ComputeFailed,
    Kept,
    Terms,
    Verdict,
    compute_failed,
    failure,
    judge,
    lock_name,
    packed,
    positive,
)
from fencelock.flight.sharing import Flights, Raised, Shared
from fencelock.lock import of_kind
from fencelock.names import check_name
from fencelock.runtime import clock, ids

__all__ = ["Base", "Call"]

Call = Callable[[], Awaitable[Any]]
"""A computation, as a coroutine function. In the blocking flavour it never suspends."""
LOCK_TTL = 10.0
ERROR_TTL = 1.0
REMEMBERED = 1000
"""Keys of which it is known who refreshes them; from then on those are left out that nobody does."""
BUSY_ELSEWHERE = 1.0
"""Seconds until it is tried again to refresh what somebody else refreshes."""

log = logging.getLogger("fencelock")


class Base:
    """What both flavours share."""

    _kind: type[Shared]

    def __init__(
        self, locks: ClientBase, store: Any, codec: str | Codec, lock_ttl: Duration, error_ttl: Duration
    ) -> None:
        self._locks: Any = locks
        self._session = locks._session
        self._store = store
        self._codec = codec_for(codec)
        self._lock_ttl = positive(lock_ttl, "lock_ttl")
        self._error_ttl = positive(error_ttl, "error_ttl")
        locks.lock("flight", ttl=self._lock_ttl)  # type: ignore[attr-defined] # refused here, if it is
        self._is_closed = False
        self._is_shut = False
        self._random = random.random
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._place: Place = place_for(self._store, self._session.backend, self._session.runtime)
        self._flights = Flights(self._kind)
        self._quiet: dict[str, float] = {}

    def _check(self) -> None:
        if self._is_closed:
            raise ConfigurationError("this flight is closed: make a new one")
        self._session.check_open()
        if self._process != os.getpid():  # what is open and under way is the parent's
            self._place.leave()
            self._start()

    # Asking -------------------------------------------------------------------------------

    async def _get(self, key: str, terms: Terms, call: Call, seconds: float) -> Any:
        deadline = clock.now() + seconds
        while True:
            self._check()
            flight, seen = self._flights.find(key), NOBODY
            if flight is None or terms.stale:  # who may have an old value does not wait for a new one
                kept = await self._place.look(key)
                found = self._use(key, terms, call, kept)
                if found is not None:
                    return found[0]
                seen = kept.owner if kept is not None else NOBODY
            left = deadline - clock.now()
            if flight is not None:
                landed = await self._follow(flight, terms, left)
            else:
                work = self._fly(key, terms, call, seen, max(0.0, left))
                landed = await self._lead(self._flights.make(key), terms, work)
            if landed is not None:
                return self._value(key, landed)

    def _use(self, key: str, terms: Terms, call: Call, kept: Kept | None) -> tuple[Any] | None:
        """Return the value that is kept, if it can be used, and have it refreshed, if it should be."""
        verdict = judge(kept, terms, self._codec.name, self._random())
        if kept is None or verdict is Verdict.MISS:
            return None
        try:
            value = self._value(key, kept)
        except ComputeFailed:
            raise
        except Exception as error:  # noqa: BLE001 - a codec may raise anything
            log.warning("what is kept for %r cannot be read, and is computed anew: %s", key, error)
            return None
        if verdict is Verdict.REFRESH:
            self._refresh(key, terms, call, kept.owner)
        return (value,)

    def _value(self, key: str, kept: Kept) -> Any:
        if kept.is_error:
            raise compute_failed(key, kept.data)
        return self._codec.loads(kept.data)  # everybody has a value of its own

    async def _lead(self, flight: Shared, terms: Terms, work: Coroutine[Any, Any, Kept]) -> Kept | None:
        try:
            return await flight.lead(work)
        except Raised as raised:
            error = raised.error
        try:
            raise _told(flight.key, terms, error)
        finally:
            del error  # its traceback has this frame in it

    async def _follow(self, flight: Shared, terms: Terms, seconds: float) -> Kept | None:
        try:
            return await flight.follow(seconds)
        except Raised as raised:
            if terms.errors == "retry":
                return None
            error = raised.error
        try:
            raise _told(flight.key, terms, error)
        finally:
            del error  # its traceback has this frame in it

    # Flying -------------------------------------------------------------------------------

    async def _fly(self, key: str, terms: Terms, call: Call, seen: bytes, seconds: float) -> Kept:
        """Take the key's lock and look again; compute, if that must be. Raises `Raised`, `AcquireTimeout`."""
        lock = of_kind(self._locks.lock(lock_name(key), ttl=self._lock_ttl), "flight")
        lease = await settled(lock.acquire(timeout=seconds))
        owner = lease.owner.encode()
        finish = self._session.runtime.finish
        try:
            found = await self._claim(key, terms, seen, owner)
            return found if found is not None else await self._compute(key, terms, call, owner)
        except Exception:
            raise
        except BaseException:  # cancelled or interrupted, perhaps with a claim
            await finish(self._quietly(key, self._place.drop(key, owner)))
            raise
        finally:
            await finish(self._release(key, lease))

    async def _claim(self, key: str, terms: Terms, seen: bytes, owner: bytes) -> Kept | None:
        """Claim the key, or return what somebody else has kept since, if it can be used."""
        while True:
            found = await self._place.claim(key, seen, owner)
            if found is None or judge(found, terms, self._codec.name, 0.0) is not Verdict.MISS:
                return found
            seen = found.owner

    async def _compute(self, key: str, terms: Terms, call: Call, owner: bytes) -> Kept:
        finish = self._session.runtime.finish
        began = clock.now()
        try:
            data = self._codec.dumps(await call())
        except Exception as error:
            await finish(self._failed(key, terms, owner, error))
            raise Raised(error) from error
        cost = clock.now() - began
        record = packed(owner, terms, self._codec.name, data, cost=cost)
        await finish(self._quietly(key, self._place.write(key, owner, record, terms.ttl + terms.stale)))
        return Kept(owner, terms.ttl, cost, self._codec.name, False, data)

    async def _failed(self, key: str, terms: Terms, owner: bytes, error: Exception) -> None:
        if terms.errors == "share":
            record = packed(owner, terms, self._codec.name, failure(error), cost=0.0, is_error=True)
            await self._quietly(key, self._place.write(key, owner, record, self._error_ttl))
        else:
            await self._quietly(key, self._place.drop(key, owner))

    async def _quietly(self, key: str, step: Coroutine[Any, Any, Any]) -> None:
        """Do what is good for others: if it fails, they compute for themselves."""
        if self._is_shut:  # meanwhile, by another thread
            step.close()
            return
        try:
            await step
        except BackendError as error:
            log.warning("what was computed for %r could not be kept: %s", key, error)

    async def _release(self, key: str, lease: Any) -> None:
        try:
            await settled(lease.release())
        except BackendError as error:  # the client goes on trying, and the lease has an end
            log.debug("the lock of %r could not be released yet: %s", key, error)

    # Refreshing -----------------------------------------------------------------------------

    def _refresh(self, key: str, terms: Terms, call: Call, seen: bytes) -> None:
        """Compute anew in the background, unless somebody does or has just tried."""
        now = clock.now()
        if self._quiet.get(key, 0.0) > now:
            return
        if len(self._quiet) >= REMEMBERED:
            self._quiet = {key: until for key, until in self._quiet.items() if until > now}
        self._quiet[key] = math.inf
        self._spawn(lambda: self._refreshing(key, replace(terms, errors="raise"), call, seen))

    async def _refreshing(self, key: str, terms: Terms, call: Call, seen: bytes) -> None:
        quiet = 0.0
        try:
            await self._fly(key, terms, call, seen, 0.0)
        except AcquireTimeout:  # somebody else does it
            quiet = min(self._lock_ttl, BUSY_ELSEWHERE)
        except (Raised, FencelockError) as error:
            quiet = self._error_ttl
            cause = error.error if isinstance(error, Raised) else error
            log.warning("refreshing %r failed: %s: %s", key, type(cause).__name__, cause)
        finally:
            if quiet:
                self._quiet[key] = clock.now() + quiet
            else:
                self._quiet.pop(key, None)

    def _spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        raise NotImplementedError

    # The rest -------------------------------------------------------------------------------

    async def _put(self, key: str, value: Any, terms: Terms) -> None:
        self._check()
        data = self._codec.dumps(value)
        record = packed(ids.new_id().encode(), terms, self._codec.name, data, cost=0.0)
        await self._place.put(key, record, terms.ttl + terms.stale)
        self._flights.detach(key)

    async def _forget(self, key: str) -> bool:
        check_name(key, "key")
        self._check()
        there = await self._place.forget(key)
        self._flights.detach(key)
        return there

    async def _shut(self) -> None:
        self._is_shut = True
        await self._place.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._locks!r}>"


def _told(key: str, terms: Terms, error: Exception) -> Exception:
    if terms.errors != "share":
        return error
    shared = compute_failed(key, failure(error))
    shared.__cause__ = error
    return shared
