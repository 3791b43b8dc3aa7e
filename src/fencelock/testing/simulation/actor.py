"""An actor: a thread or task that visits locks as its plan says, and watches what it is told.

What an actor checks itself, because no history shows it:

- a task is cancelled from inside fencelock only within its `async with` block, the block
  turns that into `LeaseLost`, and `cancelling()` is what it was before;
- the body of such a block does not go on after a loss was signalled;
- entering a reentrant lock again gives the same token, while the lease is held;
- `acquire` returns or raises within its timeout and the step that is needed to clean up;
- nothing is raised that is not in the contract.
"""

from __future__ import annotations

import math
from asyncio.exceptions import CancelledError
from typing import Any

from fencelock.core.acquire import TRY_LIMIT
from fencelock.core.cleanup import UNDO_LIMIT
from fencelock.errors import (
    AcquireCancelled,
    AcquireTimeout,
    BackendError,
    BackendUnavailable,
    ConfigurationError,
    FencelockError,
    LeaseLost,
    NotHeld,
)
from fencelock.runtime.simulated import Task
from fencelock.testing.recorder import Attempt
from fencelock.testing.simulation.client import Client
from fencelock.testing.simulation.hands import Hands
from fencelock.testing.simulation.network import Link
from fencelock.testing.simulation.plan import Action, Visit
from fencelock.testing.simulation.resources import Resource

__all__ = ["Actor"]

LATE = UNDO_LIMIT + 0.5
EXPECTED = (LeaseLost, NotHeld, AcquireTimeout, BackendError)
STRUCK = (CancelledError, KeyboardInterrupt)


class Stay:
    """One visit as it goes: how far it has come decides what an error means."""

    __slots__ = ("attempts", "began", "granted", "leaving", "over", "visit")

    def __init__(self, visit: Visit, attempts: dict[str, Attempt], began: float) -> None:
        self.visit = visit
        self.attempts = attempts
        self.began = began
        self.granted = False
        self.leaving = False
        self.over = False  # it was no acquisition after all

    @property
    def attempt(self) -> Attempt:
        return self.attempts[self.visit.name]

    def leave(self, at: float | None = None) -> None:
        """Record that the lock is being given back, now or at that time."""
        if self.granted and not self.leaving:
            self.leaving = True
            for attempt in self.attempts.values():
                attempt.release(at=at)


class Actor:
    """Visits locks, one after the other."""

    def __init__(
        self, client: Client, hands: Hands, resources: dict[str, Resource], link: Link, name: str
    ) -> None:
        self.client = client
        self.hands = hands
        self.resources = resources
        self.link = link
        self.name = f"{client.name}.{name}"
        self.task: Task | None = None
        self.stalled = client.process.stalls.every > 0
        self.strikes = 0  # cancellations, or Ctrl-C, that were sent and not seen yet

    def start(self, visits: list[Visit]) -> None:
        """Begin."""
        self.task = self.client.process.spawn(self._main(visits), self.name)

    def strike(self) -> None:
        """Cancel the task, or hit Ctrl-C."""
        task = self.task
        if task is None or task.done or task.pending is not None:
            return
        if self.client.world.flavour == "asyncio":
            self.strikes += 1
            task.cancel()
        elif self.strikes == 0:
            self.strikes += 1
            self.client.may_leave_cleanups = self.client.may_leave_cleanups or self.stalled
            task.throw_soon(KeyboardInterrupt())

    def fail(self, what: str) -> None:
        """Something is wrong."""
        self.client.fail(f"{self.name}: {what}")

    async def _main(self, visits: list[Visit]) -> None:
        for visit in visits:
            try:
                await self._visit(visit)
                await self.client.runtime.sleep(visit.rest)
            except STRUCK as error:
                self._struck(error)
            self._settle()
            if self.client.closing:
                return

    def _struck(self, error: BaseException) -> None:
        if self.strikes == 0:
            self.fail(f"{type(error).__name__} that nobody sent reached the task outside of any block")

    def _settle(self) -> None:
        """After a visit the task is as it was before, but for strikes from outside."""
        task = self.task
        if task is None or self.client.world.flavour == "blocking":
            self.strikes = 0 if task is None or task.pending is None else self.strikes
            return
        while self.strikes and task.pending is None:
            self.strikes -= 1
            task.uncancel()
        if task.cancelling() != self.strikes:
            self.fail(f"cancelling() is {task.cancelling()} after the block, not {self.strikes}")
            task.cancels = self.strikes

    # A visit ------------------------------------------------------------------------------

    async def _visit(self, visit: Visit) -> None:
        client = self.client
        names = list(self.resources) if visit.style == "all" else [visit.name]
        attempts = {name: client.attempt(visit, name) for name in names}
        if self.task is not None:
            self.task.note = attempts
        stay = Stay(visit, attempts, client.world.now)
        try:
            if visit.style == "all":
                await self._visit_all(stay)
            else:
                await self._visit_one(stay)
        except EXPECTED as error:
            self._end(stay, error)
        except STRUCK as error:
            self._end(stay, error)
            raise
        except (ConfigurationError, AcquireCancelled) as error:
            if not client.closing:
                self.fail(f"unexpected {error!r}")
            self._end(stay, error)

    def _end(self, stay: Stay, error: BaseException) -> None:
        if stay.granted:
            stay.leave()
            return
        if stay.over:
            return
        self._check_time(stay)
        for attempt in stay.attempts.values():
            if isinstance(error, AcquireTimeout):
                attempt.timeout()
            elif isinstance(error, STRUCK):
                attempt.cancelled()
            else:
                attempt.failed(str(error))

    def _check_time(self, stay: Stay) -> None:
        timeout = stay.visit.timeout
        took = self.client.world.now - stay.began
        disturbed = self.stalled or self.client.process.frozen_until > stay.began
        # A try that gets no answer takes its time; then the clean-up may take a little.
        if timeout != math.inf and not disturbed and took > (timeout or TRY_LIMIT) + LATE:
            self.fail(f"acquire with a timeout of {timeout:.3f}s took {took:.3f}s")

    async def _visit_one(self, stay: Stay) -> None:
        visit, hands = stay.visit, self.hands
        lock = hands.lock(self.client.session, self.client.terms(visit))
        inside = visit.style == "with"
        lease = await (hands.enter(lock) if inside else hands.acquire(lock))
        stay.granted = True
        error: BaseException | None = None
        try:
            try:
                self._arrive(stay, {visit.name: lease})
                for action in visit.actions:
                    await self._act(action, stay, lock, lease)
                    if inside:
                        self._check_reached(lease)
            except (*EXPECTED, *STRUCK) as failure:
                error = failure
            if visit.style == "drop" and lease.is_held():
                self.client.dropped(lease._hold, stay.leave)
            else:
                stay.leave()
            if inside:
                await self._leave(lease, error)
            elif visit.style == "manual":
                await hands.release(lease)
                stay.attempt.released()
            if isinstance(error, STRUCK) and self.strikes:
                raise error
        finally:
            error = None  # no cycle: a lease that is dropped must be garbage at once

    async def _leave(self, lease: Any, error: BaseException | None) -> None:
        by_loss = isinstance(error, CancelledError) and self.strikes == 0
        try:
            await self.hands.leave(lease, error)
        except LeaseLost:
            by_loss = False
        finally:
            del error  # no cycle
            if not self.client.process.dead:
                self.client.attempts[lease.owner].released()
        if by_loss:
            self.fail("the block was cancelled by a loss and did not raise LeaseLost")

    async def _visit_all(self, stay: Stay) -> None:
        visit, client = stay.visit, self.client
        locks = [self.hands.lock(client.session, client.terms(visit, name)) for name in sorted(stay.attempts)]
        leases = await self.hands.acquire_all(client.session, locks, visit.timeout)
        stay.granted = True
        self._arrive(stay, {lease.name: lease for lease in leases})
        await client.runtime.sleep(0.1 * visit.ttl)
        stay.leave()
        while leases:
            await self.hands.release(leases.pop())

    def _arrive(self, stay: Stay, leases: dict[str, Any]) -> None:
        self._check_time(stay)
        for name, lease in leases.items():
            self.client.granted(stay.attempts[name], lease)

    def _check_reached(self, lease: Any) -> None:
        client = self.client
        lost_at = client.lost_at.get(lease.owner)
        if lost_at is None or client.world.flavour == "blocking":
            return
        if client.world.now > lost_at + 0.001 and client.process.frozen_until < lost_at:
            self.fail(f"the body went on after its lease was lost at {lost_at:.6f}: {lease!r}")

    # Inside -------------------------------------------------------------------------------

    async def _act(self, action: Action, stay: Stay, lock: Any, lease: Any) -> None:
        runtime = self.client.runtime
        self._observe(stay, lease)
        kind, seconds = action
        if kind == "check":
            lease.check()
        elif kind == "verify":
            if await self.hands.verify(lease):
                self._observe(stay, lease)
        elif kind == "extend":
            await self._extend(stay, lease, seconds)
        elif kind == "lost":
            if await lease.lost.wait(seconds) and lease.is_held():
                self.fail(f"lost is set and the lease says it is held: {lease!r}")
        elif kind == "enter":
            await self._enter_again(stay, lock, lease, seconds)
        elif kind == "write" and stay.visit.mode == "exclusive":
            await self._write(stay, lease, seconds)
        elif kind == "plain" and stay.visit.mode == "exclusive":
            await self._write_plain(stay, seconds)
        else:
            await runtime.sleep(seconds)
        self._observe(stay, lease)

    def _observe(self, stay: Stay, lease: Any) -> None:
        if stay.over:
            return
        # Just before asking: a loss that other threads report while we ask comes after it.
        at = max(stay.began, self.client.world.now - 1e-9)
        left = lease.remaining()
        if left and lease.is_held():
            self.client.look_at(lease)
            stay.attempt.held(at + left, at=at)

    async def _extend(self, stay: Stay, lease: Any, ttl: float) -> None:
        stay.attempt.extend(ttl)
        await self.hands.extend(lease, ttl)
        if self.task is not None:
            self.client.extended(stay.attempt, lease, self.task.since)

    async def _enter_again(self, stay: Stay, lock: Any, lease: Any, seconds: float) -> None:
        attempt = self.client.attempt(stay.visit)
        if self.task is not None:
            self.task.note = {stay.visit.name: attempt}
        inner = Stay(stay.visit, {stay.visit.name: attempt}, self.client.world.now)
        held = lease.is_held()
        try:
            again = await self.hands.acquire(lock)
            if held and again.token == lease.token:
                attempt.failed("entered again")  # no acquisition of its own
                inner.over = True
            else:
                inner.granted = True
                self._arrive(inner, {stay.visit.name: again})
            await self.client.runtime.sleep(seconds)
            inner.leave()
            await self.hands.release(again)
        except (FencelockError, *STRUCK) as error:
            self._end(inner, error)
            raise

    async def _write(self, stay: Stay, lease: Any, seconds: float) -> None:
        resource = self.resources[stay.visit.name]
        base = resource.read(lease.token)
        await self.client.runtime.sleep(seconds)
        if base is not None:
            name, token = self.client.name, lease.token
            await self._send(lambda: resource.write(name, token, base))

    async def _write_plain(self, stay: Stay, seconds: float) -> None:
        resource = self.resources[stay.visit.name]
        base = resource.plain
        await self.client.runtime.sleep(seconds)
        name = self.client.name
        await self._send(lambda: resource.write_plain(name, base))

    async def _send(self, write: Any) -> None:
        try:
            await self.link.request("write", write, self.client.world.now + 10.0)
        except BackendUnavailable:
            raise NotHeld(name="resource") from None  # leave: a write may be on its way still
