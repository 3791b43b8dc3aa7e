"""Extensions of leases in ordered records, and what they overlap with. The store is made up."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from tests.unit.backends.test_ordered_steps import LONG, MadeUp, Ordered

from fencelock.backends.base import Busy, Grant, Origin, Outcome, Renewal, Request
from fencelock.backends.ordered.places import Place, Queue
from fencelock.backends.ordered.renewals import SPARE
from fencelock.backends.ordered.store import SessionGone
from fencelock.backends.ordered.tenures import Tenure
from fencelock.errors import BackendUnavailable
from fencelock.runtime import asyncio as runtime
from fencelock.runtime import clock
from fencelock.runtime.asyncio import AsyncioRuntime

TTL = 60.0
SOON = 30.0


def reader(owner: str) -> Request:
    return Request(owner, "job", "shared", 0, TTL, Origin("billing", "host-a", 812), None)


class Readers:
    """A backend in which `one`, `two` and `three` hold a lock together, for a minute."""

    async def __aenter__(self) -> Readers:
        self.backend = Ordered()
        self.lost: list[str] = []
        self.backend.open(AsyncioRuntime(), "", lambda owner, reason: self.lost.append(owner))
        self.store: MadeUp = self.backend._store
        for owner in ("one", "two", "three"):
            step = self.backend.acquire(reader(owner), wait=True, deadline=clock.now() + LONG)
            assert isinstance(await step, Grant)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.backend.close()

    def renewal(self, owner: str, ttl: float, *, exact: bool = False, extend: bool = True) -> Renewal:
        return Renewal(reader(owner), self.place(owner).token, ttl, extend, exact)

    async def renew(self, *renewals: Renewal) -> list[Outcome]:
        return list(await self.backend.renew(renewals, deadline=clock.now() + LONG))

    async def extend(self, owner: str, ttl: float) -> Outcome:
        (outcome,) = await self.renew(self.renewal(owner, ttl, exact=True))
        return outcome

    def place(self, owner: str) -> Place:
        return self.backend._places[owner]

    def left(self, owner: str) -> float:
        return self.place(owner).deadline - clock.now()

    def class_of(self, owner: str) -> float:
        """The length of the session that the record is in, in the store itself."""
        (record,) = (one for one in self.store.records if one.owner == owner)
        tenure = self.place(owner).tenure
        assert tenure is not None and record.session == tenure.ident, "the client believes in another"
        return tenure.class_

    def said(self, owner: str) -> dict[str, Any]:
        (record,) = (one for one in self.store.records if one.owner == owner)
        told: dict[str, Any] = json.loads(record.value)
        return told


def test_an_extension_sets_the_deadline_earlier_or_later() -> None:
    async def main() -> None:
        async with Readers() as readers:
            assert await readers.extend("one", 5.0) is Outcome.RENEWED
            assert readers.class_of("one") == 6.0
            assert 0.0 < readers.left("one") <= 5.0
            assert readers.class_of("two") == TTL + 1.0
            assert await readers.extend("one", 90.0) is Outcome.RENEWED
            assert readers.class_of("one") == 91.0
            assert 60.0 < readers.left("one") <= 90.0

    asyncio.run(main())


def test_an_extension_within_a_tenure_sets_the_deadline_too() -> None:
    async def main() -> None:
        async with Readers() as readers:
            assert await readers.extend("one", TTL - 0.9) is Outcome.RENEWED
            assert readers.class_of("one") == TTL + 1.0
            assert readers.left("one") <= TTL - 0.9

    asyncio.run(main())


def test_a_renewal_only_moves_a_deadline_forward() -> None:
    async def main() -> None:
        async with Readers() as readers:
            assert await readers.renew(readers.renewal("one", 5.0)) == [Outcome.RENEWED]
            assert readers.class_of("one") == TTL + 1.0
            assert readers.left("one") > TTL - 5.0

    asyncio.run(main())


def test_a_batch_may_mix_them() -> None:
    async def main() -> None:
        async with Readers() as readers:
            mixed = [
                readers.renewal("one", 5.0, exact=True),
                readers.renewal("two", TTL),
                readers.renewal("three", TTL, extend=False),
            ]
            assert await readers.renew(*mixed) == [Outcome.RENEWED, Outcome.RENEWED, Outcome.HELD]
            assert [readers.class_of(owner) for owner in ("one", "two", "three")] == [
                6.0,
                TTL + 1.0,
                TTL + 1.0,
            ]

    asyncio.run(main())


def test_people_read_the_new_ttl_and_since_when_it_was_held() -> None:
    async def main() -> None:
        async with Readers() as readers:
            since = readers.said("one")["since"]
            await asyncio.sleep(0.01)
            assert await readers.extend("one", 5.0) is Outcome.RENEWED
            assert readers.said("one")["ttl"] == 5.0
            assert readers.said("one")["since"] == since <= time.time()

    asyncio.run(main())


def test_a_record_that_is_gone_is_not_extended() -> None:
    async def main() -> None:
        async with Readers() as readers:
            readers.store.records = [one for one in readers.store.records if one.owner != "one"]
            renewal = readers.renewal("one", 5.0, exact=True)
            assert await readers.renew(renewal) == [Outcome.LOST]
            assert await readers.renew(renewal) == [Outcome.LOST]
            assert readers.backend._extending == {}

    asyncio.run(main())


# Overlapping ------------------------------------------------------------------------------------


def test_a_renewal_that_an_extension_overtakes_does_not_believe_in_its_tenure() -> None:
    """It has kept the long tenure alive, which the record has left: it must not count on a minute."""

    async def main() -> None:
        async with Readers() as readers:
            keep, kept = readers.store.keep, asyncio.Event()

            async def slow(tenure: Tenure, deadline: float) -> bool:
                answer = await keep(tenure, deadline)
                await kept.wait()
                return answer

            readers.store.keep = slow  # type: ignore[method-assign]
            renewing = asyncio.create_task(readers.renew(readers.renewal("one", TTL)))
            await asyncio.sleep(0)
            assert await readers.extend("one", 5.0) is Outcome.RENEWED
            kept.set()
            assert await renewing == [Outcome.HELD]
            assert readers.class_of("one") == 6.0
            assert readers.left("one") <= 5.0

    asyncio.run(main())


def test_a_look_in_the_middle_of_an_extension_finds_the_record() -> None:
    """A store may look for it where it was."""

    async def main() -> None:
        async with Readers() as readers:

            async def nowhere(places: Any, deadline: float) -> set[str]:
                return set()

            readers.store.present = nowhere  # type: ignore[method-assign]
            readers.store.gate.clear()
            readers.store.moving.clear()
            extending = asyncio.create_task(readers.extend("one", 5.0))
            await readers.store.moving.wait()
            assert await readers.renew(readers.renewal("one", TTL, extend=False)) == [Outcome.HELD]
            readers.store.gate.set()
            assert await extending is Outcome.RENEWED
            assert readers.class_of("one") == 6.0

    asyncio.run(main())


def test_extensions_of_one_lease_take_turns() -> None:
    """Else the answer that comes last would count, not the move."""

    async def main() -> None:
        async with Readers() as readers:
            readers.store.gate.clear()
            readers.store.moving.clear()
            first = asyncio.create_task(readers.extend("one", 90.0))
            await readers.store.moving.wait()
            second = asyncio.create_task(readers.extend("one", 5.0))
            await asyncio.sleep(0)
            assert readers.store.moves[-1] == 91.0
            readers.store.gate.set()
            assert [await first, await second] == [Outcome.RENEWED, Outcome.RENEWED]
            assert readers.class_of("one") == 6.0
            assert readers.left("one") <= 5.0

    asyncio.run(main())


def test_an_extension_without_an_answer_is_settled_by_the_next_renewal() -> None:
    """The record may be in the short tenure by then: a heartbeat in the long one says nothing."""

    async def main() -> None:
        async with Readers() as readers:
            move = readers.store.move

            async def unanswered(place: Place, tenure: Tenure, value: bytes, deadline: float) -> Queue:
                await move(place, tenure, value, deadline)
                raise BackendUnavailable(backend="made up", detail="no answer in time")

            readers.store.move = unanswered  # type: ignore[method-assign]
            assert await readers.extend("one", 5.0) is Outcome.UNKNOWN
            assert await readers.renew(readers.renewal("one", TTL, extend=False)) == [Outcome.HELD]
            readers.store.move = move  # type: ignore[method-assign]
            assert await readers.renew(readers.renewal("one", TTL)) == [Outcome.RENEWED]
            assert readers.class_of("one") == TTL + 1.0
            moves = len(readers.store.moves)
            assert await readers.renew(readers.renewal("one", TTL)) == [Outcome.RENEWED]
            assert len(readers.store.moves) == moves, "it is settled"

    asyncio.run(main())


def test_a_move_that_was_not_made_is_made_again() -> None:
    """The store found the record where it was and something that belongs to it gone."""

    async def main() -> None:
        async with Readers() as readers:
            move, refused = readers.store.move, [True]

            async def refuses(place: Place, tenure: Tenure, value: bytes, deadline: float) -> Queue:
                if refused.pop() if refused else False:
                    return Queue([*readers.store.records])
                return await move(place, tenure, value, deadline)

            readers.store.move = refuses  # type: ignore[method-assign]
            assert await readers.extend("one", 5.0) is Outcome.RENEWED
            assert readers.class_of("one") == 6.0

    asyncio.run(main())


def test_a_tenure_that_has_ended_is_begun_anew() -> None:
    async def main() -> None:
        async with Readers() as readers:
            assert await readers.extend("two", 5.0) is Outcome.RENEWED
            ended = readers.place("two").tenure
            move = readers.store.move

            async def gone(place: Place, tenure: Tenure, value: bytes, deadline: float) -> Queue:
                if tenure is ended:
                    raise SessionGone(tenure)
                return await move(place, tenure, value, deadline)

            readers.store.move = gone  # type: ignore[method-assign]
            assert await readers.extend("one", 5.0) is Outcome.RENEWED
            assert readers.class_of("one") == 6.0
            assert readers.lost == ["two"]

    asyncio.run(main())


# Sessions ---------------------------------------------------------------------------------------


def test_every_ttl_leaves_a_session_but_no_more_than_a_few() -> None:
    async def main() -> None:
        async with Readers() as readers:
            for ttl in range(5, 45):
                assert await readers.extend("one", float(ttl)) is Outcome.RENEWED
            live = readers.backend._tenures.all()
            assert len(live) <= SPARE + 2  # those of "one", and of the others
            assert {readers.class_of(owner) for owner in ("one", "two", "three")} == {45.0, TTL + 1.0}

    asyncio.run(main())


def test_a_session_is_not_ended_while_a_lease_is_on_its_way_to_it() -> None:
    async def main() -> None:
        async with Readers() as readers:
            readers.store.gate.clear()
            readers.store.moving.clear()
            moving = asyncio.create_task(readers.extend("two", 5.0))
            await readers.store.moving.wait()
            readers.store.gate.set()
            for ttl in range(10, 10 + 2 * SPARE):
                assert await readers.extend("one", float(ttl)) is Outcome.RENEWED
            assert await moving is Outcome.RENEWED
            assert readers.class_of("two") == 6.0
            assert not readers.lost

    asyncio.run(main())


# Closing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("asks_who", [0.0, LONG])
def test_a_wait_ends_when_the_client_is_closed(asks_who: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether closing comes in the middle of it or before it."""
    monkeypatch.setattr(runtime, "LONGEST_SLEEP", 10 * LONG)  # nothing else ends a wait

    async def main() -> None:
        async with Readers() as readers:
            readers.store.asks_who_after = asks_who
            waiter = Request("four", "job", "exclusive", 1, TTL, Origin("billing", "host-a", 812), None)
            deadline = clock.now() + 10 * LONG
            step = await readers.backend.acquire(waiter, wait=True, deadline=deadline)
            assert isinstance(step, Busy)
            waiting = asyncio.create_task(readers.backend.wait(waiter, deadline))
            await asyncio.sleep(0.01)
            assert not waiting.done()
            readers.backend.closing = True
            await asyncio.to_thread(readers.backend.wake)
            assert await asyncio.wait_for(waiting, SOON) is None
            readers.place("four").stirred = False  # a step was under way when everybody was woken
            assert await asyncio.wait_for(readers.backend.wait(waiter, deadline), SOON) is None

    asyncio.run(main())
