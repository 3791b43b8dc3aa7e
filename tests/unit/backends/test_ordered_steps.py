"""Steps in ordered records that take long: what becomes of a place meanwhile. The store is made up."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from fencelock.backends.base import Busy, Grant, Origin, Outcome, Renewal, Request
from fencelock.backends.ordered import OrderedBackend
from fencelock.backends.ordered.places import Eye, Place, Queue, Record
from fencelock.backends.ordered.store import Store
from fencelock.backends.ordered.tenures import Tenure
from fencelock.errors import BackendUnavailable
from fencelock.guarantees import Guarantees
from fencelock.runtime import clock
from fencelock.runtime.asyncio import AsyncioRuntime

LONG = 60.0
WAITING = 4.0


class MadeUp(Store):
    """One queue in a list. A move takes until `gate` is open."""

    waiting = WAITING
    trust = 0.0

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.sessions = 0
        self.tokens = 0
        self.moves: list[float] = []
        """The classes that were moved to."""
        self.gate = asyncio.Event()
        self.gate.set()
        self.moving = asyncio.Event()

    def class_of(self, ttl: float) -> float:
        return math.ceil(ttl) + 1.0

    async def begin(self, class_: float, deadline: float) -> Tenure:
        self.sessions += 1
        return Tenure(class_, self.sessions, class_, clock.now())

    async def keep(self, tenure: Tenure, deadline: float) -> bool:
        tenure.heard(clock.now())
        return True

    async def end(self, tenure: Tenure, deadline: float) -> None:
        self.records = [one for one in self.records if one.session != tenure.ident]

    async def enter(self, place: Place, tenure: Tenure, value: bytes, deadline: float) -> Queue:
        if not any(one.owner == place.request.owner for one in self.records):
            self.tokens += 1
            owner, mode, limit = place.request.owner, place.request.mode, place.request.limit
            self.records.append(Record(owner, owner, self.tokens, mode, limit, tenure.ident, value))
        return Queue([*self.records])

    async def move(self, place: Place, tenure: Tenure, value: bytes, deadline: float) -> Queue:
        owner = place.request.owner
        self.moves.append(tenure.class_)
        self.records = [
            one._replace(session=tenure.ident, value=value) if one.owner == owner else one
            for one in self.records
        ]
        queue = Queue([*self.records])
        self.moving.set()
        await self.gate.wait()
        return queue

    async def look(self, name: str, deadline: float) -> Queue:
        return Queue([*self.records])

    async def leave(self, request: Request, place: Place | None, deadline: float) -> bool:
        before = len(self.records)
        await asyncio.sleep(0)
        self.records = [one for one in self.records if one.owner != request.owner]
        return len(self.records) < before

    async def sweep(self, tenure: Tenure, is_wanted: Callable[[str], bool], deadline: float) -> None:
        self.records = [one for one in self.records if one.session != tenure.ident or is_wanted(one.owner)]

    async def watch(
        self, place: Place, records: Sequence[Record], moves: bool, moment: Any, deadline: float
    ) -> None:
        pass

    def unwatch(self, eye: Eye) -> None:
        pass

    async def present(self, places: Sequence[Place], deadline: float) -> set[str]:
        return {one.owner for one in self.records}

    async def close(self, deadline: float) -> None:
        pass

    async def remove(self, records: Sequence[Record], deadline: float) -> Sequence[Record]:
        raise NotImplementedError

    async def scan(self, prefix: str, deadline: float) -> dict[str, Sequence[Record]]:
        raise NotImplementedError

    async def left(self, sessions: Sequence[Any], deadline: float) -> dict[Any, float]:
        raise NotImplementedError

    async def follow(self, eye: Eye, name: str, deadline: float) -> Queue:
        raise NotImplementedError

    def guard(self, place: Place, transaction: Any) -> None:
        raise NotImplementedError

    def drop(self) -> None:
        raise NotImplementedError


class Ordered(OrderedBackend):
    """That store as a backend."""

    name = "made up"
    _store: MadeUp

    @classmethod
    def from_url(cls, url: str) -> Ordered:
        raise NotImplementedError

    @property
    def guarantees(self) -> Guarantees:
        raise NotImplementedError

    def _make_store(self) -> MadeUp:
        return MadeUp()


def asked(owner: str) -> Request:
    return Request(owner, "job", "exclusive", 1, 30.0, Origin("billing", "host-a", 812), None)


class Line:
    """A backend in which `first` holds the lock and `second` waits for it."""

    async def __aenter__(self) -> Line:
        self.lost: list[str] = []
        self.backend = Ordered()
        self.backend.open(AsyncioRuntime(), "", lambda owner, reason: self.lost.append(owner))
        self.store = self.backend._store
        assert isinstance(await self.step("first"), Grant)
        assert isinstance(await self.step("second"), Busy)
        self.place = self.backend._places["second"]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.backend.close()

    def step(self, owner: str) -> Any:
        return self.backend.acquire(asked(owner), wait=True, deadline=clock.now() + LONG)

    async def called(self) -> asyncio.Task[Any]:
        """The lock is free, and the waiter's step to take it is under way: the store has done its part."""
        assert await self.backend.release(asked("first"), 1, deadline=clock.now() + LONG)
        self.place.wake(gone=True)
        self.store.gate.clear()
        self.store.moving.clear()
        task = asyncio.create_task(self.step("second"))
        await self.store.moving.wait()
        return task

    async def turn(self) -> Grant | None:
        """The lock is free, and the waiter hears of it."""
        assert await self.backend.release(asked("first"), 1, deadline=clock.now() + LONG)
        self.place.wake(gone=True)
        self.store.moves.clear()
        return await self.backend.wait(asked("second"), clock.now() + LONG)

    async def renew(self, owner: str) -> Outcome:
        renewal = Renewal(asked(owner), self.place.token, 30.0, True)
        (outcome,) = await self.backend.renew([renewal], deadline=clock.now() + LONG)
        return outcome

    def owners(self) -> list[str]:
        return [one.owner for one in self.store.records]


def test_a_place_is_not_given_up_while_its_step_is_under_way() -> None:
    """The answer takes longer than a waiter may be silent: it comes back with the lock, and has it."""

    async def main() -> None:
        async with Line() as line:
            step = await line.called()
            line.place.deadline = clock.now() - 1.0
            for tenure in line.backend._tenures.all():
                await line.backend._clean(tenure, clock.now() + LONG)
            line.store.gate.set()
            grant = await step
            assert isinstance(grant, Grant) and grant.token == 2
            assert line.owners() == ["second"]
            assert await line.backend.release(asked("second"), 2, deadline=clock.now() + LONG) is True

    asyncio.run(main())


def test_a_grant_is_for_a_place_that_the_client_knows() -> None:
    """The session that it waited in ends while it moves to the other: what it gets is kept and released."""

    async def main() -> None:
        async with Line() as line:
            step = await line.called()
            (waiting,) = [one for one in line.backend._tenures.all() if one.class_ == WAITING]
            line.backend._tenures.ended(waiting, "gone")
            assert line.lost == ["second"]
            line.store.gate.set()
            grant = await step
            assert isinstance(grant, Grant) and grant.token == 2
            for tenure in line.backend._tenures.all():
                tenure.swept = -math.inf
                await line.backend._clean(tenure, clock.now() + LONG)
            assert line.owners() == ["second"]
            assert await line.backend.release(asked("second"), 2, deadline=clock.now() + LONG) is True

    asyncio.run(main())


def test_who_asks_for_a_place_that_is_just_given_up_asks_again() -> None:
    async def main() -> None:
        async with Line() as line:
            line.place.deadline = clock.now() - 1.0
            tenure = line.place.tenure
            assert tenure is not None
            clean = asyncio.create_task(line.backend._clean(tenure, clock.now() + LONG))
            await asyncio.sleep(0)
            with pytest.raises(BackendUnavailable, match="just being given up") as caught:
                await line.step("second")
            assert caught.value.transient
            await clean
            assert line.owners() == ["first"]
            assert isinstance(await line.step("second"), Busy)
            assert line.owners() == ["first", "second"]

    asyncio.run(main())


def test_a_place_that_nobody_asks_for_is_given_up() -> None:
    async def main() -> None:
        async with Line() as line:
            line.place.deadline = clock.now() - 1.0
            tenure = line.place.tenure
            assert tenure is not None
            await line.backend._clean(tenure, clock.now() + LONG)
            assert line.owners() == ["first"]

    asyncio.run(main())


def test_one_whose_turn_has_come_holds_where_it_waits_and_moves_with_its_first_renewal() -> None:
    async def main() -> None:
        async with Line() as line:
            waiting = line.place.tenure
            assert waiting is not None and waiting.class_ == WAITING
            grant = await line.turn()
            assert grant is not None and grant.token == 2
            assert grant.validity > WAITING / 2
            assert line.place.asked + grant.validity <= waiting.good_until
            assert line.store.moves == []
            assert await line.renew("second") is Outcome.RENEWED
            assert line.store.moves == [31.0]
            assert await line.renew("second") is Outcome.RENEWED
            assert line.store.moves == [31.0]
            assert await line.backend.release(asked("second"), 2, deadline=clock.now() + LONG) is True

    asyncio.run(main())


def test_a_grant_of_those_who_wait_is_not_renewed_once_it_is_over() -> None:
    """It counts for as long as the tenure was certain to last when it was given, whoever keeps that alive."""

    async def main() -> None:
        async with Line() as line:
            assert await line.turn() is not None
            assert line.place.tenure is not None and line.place.deadline == line.place.tenure.good_until
            line.place.deadline = clock.now() - 1.0
            assert await line.renew("second") is Outcome.LOST

    asyncio.run(main())


def test_a_false_alarm_moves_nothing() -> None:
    async def main() -> None:
        async with Line() as line:
            line.store.moves.clear()
            line.place.wake(gone=True)
            assert await line.backend.wait(asked("second"), clock.now() + LONG) is None
            assert isinstance(await line.step("second"), Busy)
            assert line.store.moves == []

    asyncio.run(main())


def test_a_record_that_is_gone_grants_nothing() -> None:
    async def main() -> None:
        async with Line() as line:
            line.store.records = [one for one in line.store.records if one.owner != "second"]
            assert await line.turn() is None
            assert isinstance(await line.step("second"), Grant)  # it stood in line again
            assert line.place.token == 2 < line.backend._places["second"].token

    asyncio.run(main())


def test_a_tenure_that_ends_meanwhile_grants_nothing() -> None:
    async def main() -> None:
        async with Line() as line:
            look = line.store.look

            async def ending(name: str, deadline: float) -> Queue:
                queue = await look(name, deadline)
                assert line.place.tenure is not None
                line.backend._tenures.ended(line.place.tenure, "gone")
                return queue

            line.store.look = ending  # type: ignore[method-assign]
            assert await line.turn() is None
            assert line.lost == ["second"]

    asyncio.run(main())


def test_who_had_to_wait_last_time_begins_among_those_who_wait() -> None:
    async def main() -> None:
        async with Line() as line:
            line.store.moves.clear()
            assert isinstance(await line.step("third"), Busy)
            place = line.backend._places["third"]
            assert place.tenure is not None and place.tenure.class_ == WAITING
            assert line.store.moves == []

    asyncio.run(main())


def test_a_wrong_guess_costs_a_move_once() -> None:
    async def main() -> None:
        async with Line() as line:
            for owner, token in (("first", 1), ("second", 2)):
                assert await line.backend.release(asked(owner), token, deadline=clock.now() + LONG)
            line.store.moves.clear()
            assert isinstance(await line.step("third"), Grant)
            assert line.store.moves == [31.0]
            assert await line.backend.release(asked("third"), 3, deadline=clock.now() + LONG)
            assert isinstance(await line.step("fourth"), Grant)
            assert line.store.moves == [31.0]

    asyncio.run(main())


def test_a_try_does_not_begin_among_those_who_wait() -> None:
    async def main() -> None:
        async with Line() as line:
            tried = line.backend.acquire(asked("third"), wait=False, deadline=clock.now() + LONG)
            assert isinstance(await tried, Busy)
            assert line.owners() == ["first", "second"]
            assert await line.backend.release(asked("first"), 1, deadline=clock.now() + LONG)
            assert await line.backend.release(asked("second"), 2, deadline=clock.now() + LONG)
            line.store.moves.clear()
            tried = line.backend.acquire(asked("fourth"), wait=False, deadline=clock.now() + LONG)
            assert isinstance(await tried, Grant)
            assert line.store.moves == []

    asyncio.run(main())


def test_who_holds_is_asked_of_a_store_only_for_those_who_wait_for_a_while() -> None:
    """Most are called before anybody could want to know."""

    async def main() -> None:
        async with Line() as line:
            line.store.asks_who_after = 0.02
            busy = await line.step("second")
            assert isinstance(busy, Busy) and busy.holder is None
            line.place.stirred = False
            assert await line.backend.wait(asked("second"), clock.now() + 0.01) is None
            assert busy.holder is not None, "its time is over: now somebody may want to know"
            assert busy.holder.owner == "first"

            short = await line.backend.acquire(asked("third"), wait=True, deadline=clock.now() + 0.03)
            assert isinstance(short, Busy) and short.holder is not None, "there is no time to ask again"
            tried = await line.backend.acquire(asked("fourth"), wait=False, deadline=clock.now() + LONG)
            assert isinstance(tried, Busy) and tried.holder is not None

    asyncio.run(main())


def test_a_waiter_waits_on_if_nobody_can_say_who_holds() -> None:
    async def main() -> None:
        async with Line() as line:
            line.store.asks_who_after = 0.02
            busy = await line.step("second")

            async def silent(name: str, deadline: float) -> Queue:
                raise BackendUnavailable(backend="made up", detail="no answer in time")

            line.store.look = silent  # type: ignore[method-assign]
            line.place.stirred = False
            asyncio.get_running_loop().call_later(0.06, lambda: line.place.wake(gone=False))
            assert await line.backend.wait(asked("second"), clock.now() + LONG) is None
            assert line.place.stirred
            assert isinstance(busy, Busy) and busy.holder is None

    asyncio.run(main())
