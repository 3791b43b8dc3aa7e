"""Broken locks: each mutant is one mistake, made in the running core for as long as a test lasts.

Every one of them is a bug that some lock library has shipped, or could. `fault` narrows the
simulation to the faults that bring it out; `caught_by` are the checks that may catch it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar
from unittest import mock

from fencelock.backends.base import Busy, Grant, Outcome, Request
from fencelock.backends.memory import Record, Store
from fencelock.core import renew
from fencelock.core.acquire import Acquisition
from fencelock.core.cleanup import Cleanup, Cleanups
from fencelock.core.hold import HELD, LOST, Hold
from fencelock.core.holds import Holds
from fencelock.core.reentry import Reentry
from fencelock.core.session import Session
from fencelock.runtime.simulated import SimulatedRuntime
from fencelock.testing.simulation import client as sim_client
from fencelock.testing.simulation import model
from fencelock.testing.simulation.model import SimulatedBackend

Patch = Callable[[], Any]  # makes a context manager
P = TypeVar("P", bound=Patch)


@dataclass(frozen=True)
class Mutant:
    """A mistake, and what must notice it."""

    name: str
    patch: Patch
    faults: tuple[str, ...]
    caught_by: tuple[str, ...]
    flavours: tuple[str, ...] = ("blocking", "asyncio")


MUTANTS: list[Mutant] = []


def mutant(
    *caught_by: str, faults: tuple[str, ...] = (), flavours: tuple[str, ...] = ("blocking", "asyncio")
) -> Callable[[P], P]:
    """Register a patch as a mutant."""

    def register(patch: P) -> P:
        name = getattr(patch, "__name__", "?")
        MUTANTS.append(Mutant(name, patch, faults, caught_by, flavours))
        return patch

    return register


def _store(cls: type[Store]) -> Any:
    return mock.patch.object(model, "Store", cls)


# The client's side -------------------------------------------------------------------------


@mutant("loss", faults=("pause", "slow"))
@contextlib.contextmanager
def renewal_revives_a_lost_lease() -> Iterator[None]:
    """A reply that says "renewed" brings back a lease that was reported as lost."""
    real = renew.settle

    def settle(session: Session, hold: Hold, outcome: Outcome | None, sent: float, *rest: Any) -> None:
        if outcome is Outcome.RENEWED and hold.state is LOST:
            hold.state = HELD
            hold.deadline = sent + hold.ttl
            session.holds._table[hold.request.owner] = hold
        else:
            real(session, hold, outcome, sent, *rest)

    with mock.patch.object(renew, "settle", settle):
        yield


@mutant("loss", "validity", faults=("pause", "slow"))
@contextlib.contextmanager
def renewal_counts_though_the_deadline_has_passed() -> Iterator[None]:
    """`settle` believes a renewal that came after the deadline, and no timer stands beside it."""
    real = renew.settle

    def settle(session: Session, hold: Hold, outcome: Outcome | None, sent: float, *rest: Any) -> None:
        if outcome is Outcome.RENEWED and hold.state is HELD and session.runtime.now() >= hold.deadline:
            hold.deadline = sent + hold.ttl
        real(session, hold, outcome, sent, *rest)

    with mock.patch.object(renew, "settle", settle), no_timer_for_losses():
        yield


@mutant("validity", "exclusion", faults=("slow",))
@contextlib.contextmanager
def validity_of_a_grant_counts_from_the_reply() -> Iterator[None]:
    """The time that the request took is forgotten."""
    real = Acquisition.run

    async def run(self: Acquisition) -> Hold:
        hold = await real(self)
        late = hold.since - self.sent
        hold.deadline += late
        hold.due += late
        return hold

    with mock.patch.object(Acquisition, "run", run):
        yield


@mutant("validity", "exclusion", faults=("slow",))
@contextlib.contextmanager
def validity_of_a_renewal_counts_from_the_reply() -> Iterator[None]:
    """The same mistake, in renewals."""
    real = renew.settle

    def settle(session: Session, hold: Hold, outcome: Outcome | None, sent: float, *rest: Any) -> None:
        real(session, hold, outcome, session.runtime.now(), *rest)

    with mock.patch.object(renew, "settle", settle):
        yield


@mutant("validity", "exclusion", "loss", faults=("clock",))
def wall_clock_counts_validity() -> Any:
    """Deadlines are kept on a clock that an operator can set."""

    class WallRuntime(SimulatedRuntime):
        def now(self) -> float:
            return super().now() + self.process.wall

    return mock.patch.object(sim_client.Client, "make_runtime", staticmethod(WallRuntime))


@mutant("loss", faults=("partition",))
@contextlib.contextmanager
def no_timer_for_losses() -> Iterator[None]:
    """Losses are noticed by whoever renews, and nobody watches the clock meanwhile."""
    real = Holds.lose

    def lose(self: Holds, hold: Hold, reason: str, *, gone: bool = False, **rest: Any) -> bool:
        task = getattr(self._runtime, "world").current  # noqa: B009 - simulated only
        if task is not None and task.name == "fencelock-timekeeper":
            return False
        return real(self, hold, reason, gone=gone, **rest)

    with mock.patch.object(Holds, "lose", lose):
        yield


@mutant("loss", "on_lost", faults=("break",))
def loss_is_not_sticky() -> Any:
    """`is_held` asks the clock and forgets that the loss was reported."""
    return mock.patch.object(Holds, "is_held", lambda self, hold: bool(self._runtime.now() < hold.deadline))


@mutant("loss", faults=("break", "partition"))
@contextlib.contextmanager
def loss_is_reported_twice() -> Iterator[None]:
    """Whoever sees it reports it."""
    real = Holds.mark_lost

    def mark_lost(self: Holds, hold: Hold, reason: str, **rest: Any) -> None:
        real(self, hold, reason, **rest)
        real(self, hold, reason, **rest)

    with mock.patch.object(Holds, "mark_lost", mark_lost):
        yield


@mutant("unique-token")
@contextlib.contextmanager
def reentry_after_expiry_gives_the_old_token() -> Iterator[None]:
    """A lost lease is still the thread's own."""

    def enter_again(self: Session, terms: Any) -> Hold | None:
        return self.reentry.find(terms.name)

    with (
        mock.patch.object(Session, "enter_again", enter_again),
        mock.patch.object(Reentry, "forget", lambda self, hold: None),
    ):
        yield


@mutant("available")
@contextlib.contextmanager
def abandon_does_nothing() -> Iterator[None]:
    """Whoever gives up waiting leaves its place in the queue behind."""

    async def abandon(self: SimulatedBackend, request: Request, *, deadline: float) -> None:
        self.signals.pop(request.owner, None)

    with mock.patch.object(SimulatedBackend, "abandon", abandon):
        yield


@mutant("available", "is not done", faults=("silence",))
@contextlib.contextmanager
def no_poll_behind_the_push() -> Iterator[None]:
    """A waiter sleeps until it is told, and a lost message is for ever."""

    async def wait(self: SimulatedBackend, request: Request, deadline: float) -> None:
        await self.signals[request.owner].wait(math.inf)

    with (
        mock.patch.object(SimulatedBackend, "wait", wait),
        mock.patch("fencelock.runtime.simulated.runtime.LONGEST_SLEEP", 1e6),
    ):
        yield


@mutant("still has", "available", "is not done", flavours=("asyncio",), faults=("cancel",))
@contextlib.contextmanager
def cancelled_acquire_leaves_its_lease() -> Iterator[None]:
    """The clean-up of an acquire is skipped when it is cancelled, and the renewer is told to go on."""

    async def undo(self: Cleanups, *requests: Request, **rest: Any) -> None:
        """None of them runs, ever."""
        self._pending.update({one.owner: Cleanup(one, math.inf, math.inf) for one in requests})

    with mock.patch.object(Cleanups, "undo", undo):
        yield


# The server's side -------------------------------------------------------------------------


@mutant("break", "exclusion", "validity", faults=("break", "delete"))
def renewal_creates_the_record_again() -> Any:
    """Renewing sets the key, whether or not it is there."""

    class Reviving(Store):
        def renew(self, key: Any, renewal: Any) -> Outcome:
            outcome = super().renew(key, renewal)
            if outcome is Outcome.LOST and renewal.extend:
                record = Record(renewal.request, renewal.token, self.now() + renewal.ttl, self.wall())
                queue = self.queues.setdefault(key, [])
                queue[:] = [record, *(r for r in queue if r.request.owner != renewal.request.owner)]
                return Outcome.RENEWED
            return outcome

    return _store(Reviving)


@mutant("available", "is not done", "still has", faults=("crash",))
def waiter_without_expiry() -> Any:
    """A waiter that died stands in the queue for ever."""

    class Patient(Store):
        def acquire(self, key: Any, request: Request, wait: bool, *rest: Any) -> Any:
            answer = super().acquire(key, request, wait, *rest)
            if wait and isinstance(answer, Busy):
                for record in self.queues[key]:
                    if record.request.owner == request.owner:
                        record.deadline = math.inf
            return answer

    return _store(Patient)


@mutant("unique-token", "token-order")
def counter_is_deleted_with_the_lock() -> Any:
    """A name that is free starts to count anew."""

    class Forgetful(Store):
        def acquire(self, key: Any, *rest: Any) -> Any:
            if not self.queues:
                self.counter = 1_000_000_000
            return super().acquire(key, *rest)

    return _store(Forgetful)


@mutant("unique-token", "token-order", faults=("delete",))
def operator_deletes_the_counter_too() -> Any:
    """The counter is one of the records that an operator wipes."""
    real = model.Server.delete_everything

    def delete(self: model.Server) -> None:
        real(self)
        self.store.counter = 1_000_000_000

    return mock.patch.object(model.Server, "delete_everything", delete)


@mutant("validity", "exclusion", "loss", "without any fault")
def release_by_name() -> Any:
    """A release removes whoever holds the lock."""

    class Careless(Store):
        def remove(self, key: Any, owner: str) -> bool:
            queue = self.queues.get(key)
            return super().remove(key, queue[0].request.owner) if queue else False

    return _store(Careless)


@mutant("fifo")
def last_come_first_served() -> Any:
    """The queue is a stack: whoever comes last stands behind the holders."""

    class Stack(Store):
        def acquire(self, key: Any, request: Request, *rest: Any) -> Any:
            known = any(record.request.owner == request.owner for record in self.queues.get(key, ()))
            answer = super().acquire(key, request, *rest)
            queue = self.queues.get(key, [])
            if not known and isinstance(answer, Busy) and queue and queue[-1].request.owner == request.owner:
                queue.insert(1, queue.pop())
            return answer

    return _store(Stack)


@mutant("exclusion")
def readers_do_not_look_at_writers() -> Any:
    """Everything behind a reader is admitted with it."""

    def admitted(queue: Any) -> int:
        if queue and queue[0].mode == "shared":
            return len(queue)
        return 1 if queue else 0

    return mock.patch("fencelock.backends.memory.admitted", admitted)


@mutant("exclusion")
def limit_is_off_by_one() -> Any:
    """A semaphore admits one more than it says."""

    def admitted(queue: Any) -> int:
        count = 0
        for record in queue:
            if record.mode != queue[0].mode or (record.mode == "exclusive" and count == 1):
                break
            if record.mode == "permit" and count == queue[0].limit + 1:
                break
            count += 1
        return count

    return mock.patch("fencelock.backends.memory.admitted", admitted)


@mutant("validity", "exclusion", "token", "unique")
def believes_in_pushes_from_before_an_expiry() -> Any:
    """A push that was on its way while its waiter lost its place counts for the place it has now."""

    async def wait(self: SimulatedBackend, request: Request, deadline: float) -> Grant | None:
        owner = request.owner
        await self.signals[owner].wait(deadline - self.runtime.now())
        token = self.tokens.get(owner, 0)
        if not self.server.carries_grants or not token:
            return None
        return Grant(token, request.ttl)

    return mock.patch.object(SimulatedBackend, "wait", wait)


@mutant("validity", "exclusion")
def counts_a_pushed_grant_as_a_whole_ttl() -> Any:
    """A pushed grant is taken for a whole ttl, though the server keeps a waiter's deadline for it."""

    async def wait(self: SimulatedBackend, request: Request, deadline: float) -> Grant | None:
        grant = await honest(self, request, deadline)
        return None if grant is None else Grant(grant.token, request.ttl)

    honest = SimulatedBackend.wait
    return mock.patch.object(SimulatedBackend, "wait", wait)
