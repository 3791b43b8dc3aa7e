"""Ordered records without a store: places, and tenures with a keeper that is made up."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fencelock.backends.base import Origin, Request
from fencelock.backends.ordered.places import (
    Eye,
    Place,
    Queue,
    Record,
    blockers,
    check_limit,
    entry,
    state,
    told,
)
from fencelock.backends.ordered.tenures import Tenure, Tenures
from fencelock.backends.ordered.turns import mutex
from fencelock.core.queue import Mode, admitted
from fencelock.errors import BackendUnavailable, ConfigurationError
from fencelock.runtime import clock
from fencelock.runtime.blocking import run

FLAVOURS = ["blocking", "asyncio"]
LIMITS: dict[Mode, int] = {"exclusive": 1, "shared": 0, "permit": 2}


def request(
    name: str = "job",
    mode: Mode = "exclusive",
    *,
    owner: str = "me",
    limit: int | None = None,
    metadata: str | None = None,
) -> Request:
    origin = Origin("billing", "host-a", 812)
    return Request(owner, name, mode, LIMITS[mode] if limit is None else limit, 30.0, origin, metadata)


# Places ----------------------------------------------------------------------------------------


def record(
    mode: Mode = "exclusive", number: int = 1, *, limit: int | None = None, value: bytes = b""
) -> Record:
    limit = LIMITS[mode] if limit is None else limit
    return Record(f"key-{number}", f"owner-{number}", number, mode, limit, "session", value)


def queue_of(modes: str) -> list[Record]:
    """Return a queue by the letters of its modes."""
    letters: dict[str, Mode] = {"e": "exclusive", "s": "shared", "p": "permit"}
    return [record(letters[letter], number) for number, letter in enumerate(modes)]


@pytest.mark.parametrize(
    ("modes", "position", "watched", "moves"),
    [
        ("ee", 1, [0], False),
        ("eee", 2, [1], False),
        ("sse", 2, [1], False),
        ("es", 1, [0], False),
        ("ess", 2, [0], False),
        ("sesess", 5, [3], False),
        ("ses", 2, [1], False),
        ("ppp", 2, [0, 1], False),
        ("pppp", 3, [2], True),
        ("ppppp", 4, [3], True),
        ("epp", 2, [0], False),
        ("pepp", 3, [1], False),
        ("epep", 3, [2], False),
        ("pps", 2, [1], False),
    ],
)
def test_whom_to_watch(modes: str, position: int, watched: list[int], moves: bool) -> None:
    records = queue_of(modes)
    assert admitted(records) <= position
    found, changes = blockers(records, position)
    assert ([each.token for each in found], changes) == (watched, moves)


def test_nobody_comes_in_while_those_it_watches_stay() -> None:
    """For every short queue, and whoever leaves it: nobody sleeps through its turn."""
    checked = 0
    for size in range(2, 6):
        for modes in itertools.product("esp", repeat=size):
            records = queue_of("".join(modes))
            for position in range(admitted(records), size):
                watched, moves = blockers(records, position)
                assert watched
                assert all(each.token < position for each in watched)
                for left in itertools.product([True, False], repeat=position):
                    stay = [each for each, stays in zip(records, left, strict=False) if stays]
                    if not all(each in stay for each in watched):
                        continue
                    holders = admitted([*stay, records[position]])
                    has_moved = moves and stay.index(watched[0]) < holders
                    assert holders <= len(stay) or has_moved, (modes, position, left)
                    checked += 1
    assert checked > 1000


def test_a_semaphore_has_one_limit() -> None:
    others = [record("permit", 1, limit=3), record("exclusive", 2), record("shared", 3)]
    check_limit(others, request(mode="permit", limit=3))
    check_limit(others, request(mode="exclusive", limit=1))
    check_limit([], request(mode="permit", limit=5))
    own = [record("permit", 1, limit=3)._replace(owner="me")]
    check_limit(own, request(mode="permit", limit=5))
    with pytest.raises(ConfigurationError, match=r"limit=5 for semaphore 'job': it is in use with limit 3"):
        check_limit(others, request(mode="permit", limit=5))


def test_a_record_says_what_was_told() -> None:
    wanted = request("jöb", metadata='{"invoice": 42, "who": "ä"}')
    value = told(wanted, time.time())
    assert json.loads(value)["name"] == "jöb"
    before = time.time()
    found = entry(record("permit", 7, limit=2, value=value), 12.5)
    assert (found.owner, found.token, found.mode, found.limit) == ("owner-7", 7, "permit", 2)
    assert (found.client, found.host, found.pid) == ("billing", "host-a", 812)
    assert found.metadata == {"invoice": 42, "who": "ä"}
    assert found.expires_in == 12.5
    assert abs(found.since - before) < 5
    assert 0 <= found.age < 5


def test_what_the_store_does_not_tell() -> None:
    value = told(request(), time.time())
    assert entry(record(value=value), None).expires_in == 30.0
    assert entry(record(value=value), -1.0).expires_in == 0.0
    assert entry(record(value=value), None).metadata is None
    ahead = json.dumps({"since": time.time() + 1000}).encode()
    assert entry(record(value=ahead), None).age == 0.0


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"by hand",
        b"\xff\xfe\xfd",
        b"{",
        b"{}",
        b'{"client": 7}',
        b"5",
        b"[]",
        b'{"pid": "x"}',
        b'{"since": null}',
    ],
)
def test_a_value_that_somebody_wrote_by_hand(value: bytes) -> None:
    found = entry(record("exclusive", 9, value=value), 3.0)
    assert (found.owner, found.token, found.mode) == ("owner-9", 9, "exclusive")
    assert (found.host, found.pid, found.since, found.expires_in) == ("", 0, 0.0, 3.0)
    assert found.client == ("7" if b"7" in value else "")


def test_a_lock_as_people_read_it() -> None:
    records = [each._replace(session=each.token) for each in queue_of("sses")]
    found = state("job", records, {0: 5.0, 1: 6.0})
    assert found.name == "job"
    assert [each.token for each in found.holders] == [0, 1]
    assert [each.token for each in found.waiters] == [2, 3]
    assert [each.expires_in for each in found.holders] == [5.0, 6.0]


def test_where_somebody_stands() -> None:
    queue = Queue(queue_of("ees"), 17)
    assert [queue.find(each.owner) for each in queue.records] == [0, 1, 2]
    assert queue.find("nobody") is None


class Bell:
    """A signal that counts."""

    def __init__(self) -> None:
        self.rung = 0

    def notify(self) -> None:
        self.rung += 1


def test_waking_somebody() -> None:
    eye, bell = Eye(), Bell()
    eye.wake(gone=False)  # nobody listens yet, and it is not lost
    assert (eye.stirred, eye.called) == (True, False)
    eye.stirred = False
    eye.signal = bell  # type: ignore[assignment]
    eye.wake(gone=True)
    assert (eye.stirred, eye.called, bell.rung) == (True, True, 1)
    eye.wake(gone=False)
    assert (eye.called, bell.rung) == (True, 2)


# Tenures ---------------------------------------------------------------------------------------


class Keeper:
    """A store of sessions that are as long as they are asked for."""

    def __init__(self) -> None:
        self.begun: list[float] = []
        self.kept: list[Any] = []
        self.gone: set[Any] = set()
        self.pause: Callable[[], Any] = lambda: None

    def class_of(self, ttl: float) -> float:
        return math.ceil(ttl) + 1.0

    async def begin(self, class_: float, deadline: float) -> Tenure:
        waiting = self.pause()
        if waiting is not None:
            await waiting
        self.begun.append(class_)
        return Tenure(class_, len(self.begun), class_, clock.now())

    async def keep(self, tenure: Tenure, deadline: float) -> bool:
        self.kept.append(tenure.ident)
        if tenure.ident in self.gone:
            return False
        tenure.heard(clock.now())
        return True

    async def end(self, tenure: Tenure, deadline: float) -> None:
        raise AssertionError("nobody asked for this")


class Bench:
    """Tenures over a `Keeper`, and what was heard of them."""

    def __init__(self, flavour: str) -> None:
        self.flavour = flavour
        self.keeper = Keeper()
        self.lost: list[tuple[str, str]] = []
        self.cleaned: list[Any] = []
        self.tenures = Tenures(self.keeper, "etcd", flavour, self._lost, self._clean)

    def _lost(self, place: Place, reason: str) -> None:
        self.lost.append((place.request.owner, reason))

    async def _clean(self, tenure: Tenure, deadline: float) -> None:
        self.cleaned.append(tenure.ident)

    def run(self, work: Any) -> Any:
        return run(work) if self.flavour == "blocking" else asyncio.run(work)

    async def fresh(self, class_: float, need: float, patience: float = 5.0) -> Tenure:
        return await self.tenures.fresh(class_, need, clock.now() + patience)


@pytest.fixture(params=FLAVOURS)
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(request.param)


def test_a_tenure_serves_while_enough_of_it_is_left(bench: Bench) -> None:
    async def work() -> None:
        first = await bench.fresh(31.0, 30.0)
        assert await bench.fresh(31.0, 30.0) is first
        assert bench.keeper.kept == []
        until = first.good_until
        first.good_until -= 2.0
        assert await bench.fresh(31.0, 20.0) is first
        assert bench.keeper.kept == []
        assert await bench.fresh(31.0, 30.0) is first
        assert bench.keeper.kept == [first.ident]
        assert bench.cleaned == [first.ident]
        assert first.good_until >= until
        other = await bench.fresh(4.0, 3.0)
        assert other is not first
        assert bench.tenures.all() == [first, other]
        assert bench.keeper.begun == [31.0, 4.0]

    bench.run(work())


def test_a_tenure_that_the_store_has_no_more(bench: Bench) -> None:
    async def work() -> None:
        first = await bench.fresh(31.0, 30.0)
        place = Place(request())
        bell = Bell()
        place.signal = bell  # type: ignore[assignment]
        first.places["me"] = place
        first.good_until = 0.0
        bench.keeper.gone.add(first.ident)
        second = await bench.fresh(31.0, 30.0)
        assert second is not first
        assert first.ended
        assert not first.is_live(0.0)
        assert first.places == {}
        assert bench.lost == [("me", "its session in the store has ended")]
        assert bench.cleaned == []
        assert (place.stirred, place.called, bell.rung) == (True, False, 1)
        assert bench.tenures.all() == [second]

    bench.run(work())


def test_what_has_ended_is_told_once_and_not_asked_about(bench: Bench) -> None:
    async def work() -> None:
        first = await bench.fresh(31.0, 30.0)
        first.places["me"] = Place(request())
        bench.tenures.ended(first, "by an operator")
        bench.tenures.ended(first, "once more")
        assert bench.lost == [("me", "by an operator")]
        assert not await bench.tenures.keep(first, clock.now() + 1)
        assert bench.keeper.kept == []
        second = await bench.fresh(31.0, 30.0)
        bench.tenures.ended(first, "late")
        assert bench.tenures.all() == [second]
        bench.tenures.forget()
        assert bench.tenures.all() == []
        assert bench.lost == [("me", "by an operator")]

    bench.run(work())


def test_a_tenure_that_has_just_ended_serves_nobody(bench: Bench) -> None:
    async def work() -> None:
        first = await bench.fresh(31.0, 30.0)
        first.ended = True  # by a thread that is about to say so
        second = await bench.fresh(31.0, 30.0)
        assert second is not first
        assert bench.keeper.kept == []
        assert bench.tenures.all() == [second]

    bench.run(work())


def test_tasks_that_need_a_tenure_make_one() -> None:
    bench = Bench("asyncio")
    bench.keeper.pause = lambda: asyncio.sleep(0.01)

    async def work() -> None:
        found = await asyncio.gather(*(bench.fresh(31.0, 30.0) for _ in range(20)))
        assert len(set(map(id, found))) == 1

    asyncio.run(work())
    assert bench.keeper.begun == [31.0]


def test_threads_that_need_a_tenure_make_one() -> None:
    bench = Bench("blocking")
    bench.keeper.pause = lambda: time.sleep(0.05)
    start = threading.Barrier(8)

    def work() -> Tenure:
        start.wait(30)
        return run(bench.fresh(31.0, 30.0))

    with ThreadPoolExecutor(8) as pool:
        found = [future.result(10) for future in [pool.submit(work) for _ in range(8)]]
    assert len(set(map(id, found))) == 1
    assert bench.keeper.begun == [31.0]


def test_a_task_that_waits_for_another_ends_in_time() -> None:
    bench = Bench("asyncio")

    async def work() -> None:
        door = asyncio.Event()
        bench.keeper.pause = door.wait
        first = asyncio.create_task(bench.fresh(31.0, 30.0))
        await asyncio.sleep(0)
        began = clock.now()
        with pytest.raises(BackendUnavailable, match="no answer in time"):
            await bench.fresh(31.0, 30.0, patience=0.05)
        assert clock.now() - began >= 0.04 and not first.done()
        door.set()
        tenure = await first
        assert await bench.fresh(31.0, 30.0) is tenure

    asyncio.run(work())


def test_a_thread_that_waits_for_another_ends_in_time() -> None:
    bench = Bench("blocking")
    inside, door = threading.Event(), threading.Event()

    def pause() -> None:
        inside.set()
        assert door.wait(30)

    bench.keeper.pause = pause
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(lambda: run(bench.fresh(31.0, 30.0)))
        try:
            assert inside.wait(30)
            began = clock.now()
            with pytest.raises(BackendUnavailable, match="no answer in time"):
                run(bench.fresh(31.0, 30.0, patience=0.05))
            assert clock.now() - began >= 0.04 and not first.done()
        finally:
            door.set()
        assert run(bench.fresh(31.0, 30.0)) is first.result(30)


def test_a_mutex_is_free_again_after_an_error(bench: Bench) -> None:
    async def work() -> None:
        turn = mutex(bench.flavour)
        with pytest.raises(KeyError):
            async with turn.until(clock.now() + 1):
                raise KeyError
        async with turn.until(clock.now()):  # free, so no time is needed
            pass

    bench.run(work())


def test_a_tenure_counts_from_before_it_was_asked() -> None:
    tenure = Tenure(31.0, 1, 31.0, 100.0)
    assert tenure.good_until == 131.0
    tenure.heard(90.0)  # an answer that came late says nothing new
    assert tenure.good_until == 131.0
    tenure.heard(110.0)
    assert tenure.good_until == 141.0
    assert tenure.is_live(140.9)
    assert not tenure.is_live(141.0)
    tenure.ended = True
    assert not tenure.is_live(120.0)
