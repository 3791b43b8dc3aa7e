"""The memory backend: the reference, step by step, on a clock that the test turns."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from fencelock import AsyncClient, Client, ConfigurationError
from fencelock.backends.base import Busy, Grant, Origin, Outcome, Renewal, Request, patience
from fencelock.backends.memory import MemoryBackend, Store
from fencelock.core.queue import Mode

KEY = ("", "x")


class Tap:
    def __init__(self) -> None:
        self.taps = 0

    def notify(self) -> None:
        self.taps += 1

    async def wait(self, seconds: float) -> None:
        raise AssertionError


class Turned:
    """A store on a clock of the test's own."""

    def __init__(self) -> None:
        self.time = 100.0
        self.store = Store(now=lambda: self.time, wall=lambda: self.time + 1_000_000)
        self.lost: list[tuple[str, str]] = []

    def ask(
        self, owner: str, *, wait: bool = True, signal: Tap | None = None, **changes: Any
    ) -> Grant | Busy:
        return self.store.acquire(
            KEY, request(owner, **changes), wait, signal, lambda *told: self.lost.append(told)
        )


def request(owner: str, mode: Mode = "exclusive", limit: int = 1, ttl: float = 10.0) -> Request:
    return Request(owner, "x", mode, limit, ttl, Origin("c", "h", 1), None)


@pytest.fixture
def turned() -> Turned:
    return Turned()


def test_a_step_taken_twice_is_as_if_taken_once(turned: Turned) -> None:
    first, again = turned.ask("a"), turned.ask("a")
    assert isinstance(first, Grant)
    assert isinstance(again, Grant)
    assert first.token == again.token
    assert len(turned.store.queues[KEY]) == 1
    assert isinstance(turned.ask("b"), Busy)
    assert isinstance(turned.ask("b"), Busy)
    assert len(turned.store.queues[KEY]) == 2


def test_a_try_that_fails_leaves_nothing(turned: Turned) -> None:
    turned.ask("a")
    assert isinstance(turned.ask("b", wait=False), Busy)
    assert [record.request.owner for record in turned.store.queues[KEY]] == ["a"]


def test_a_try_by_one_who_waits_already_takes_nobody_else_out(turned: Turned) -> None:
    turned.ask("a")
    turned.ask("b")
    turned.ask("c")
    turned.ask("b", wait=False)
    assert [record.request.owner for record in turned.store.queues[KEY]] == ["a", "c"]


def test_a_holder_leaves_by_its_ttl_and_a_waiter_by_its_patience(turned: Turned) -> None:
    turned.ask("a", ttl=10.0)
    turned.ask("b", ttl=10.0)
    turned.time += patience(10.0) + 0.1
    state = turned.store.inspect(KEY)
    assert [entry.owner for entry in state.holders] == ["a"]
    assert state.waiters == ()
    turned.time += 10
    assert turned.store.inspect(KEY).is_free


def test_busy_says_when_to_look_again_and_who_holds(turned: Turned) -> None:
    turned.ask("a", ttl=10.0)
    turned.time += 4
    answer = turned.ask("b", ttl=60.0)
    assert isinstance(answer, Busy)
    assert answer.recheck == pytest.approx(6)
    assert answer.holder is not None
    assert (answer.holder.owner, answer.holder.age) == ("a", pytest.approx(4))


def test_whoever_leaves_wakes_those_whose_turn_it_is_and_only_them(turned: Turned) -> None:
    taps = {owner: Tap() for owner in "bcd"}
    turned.ask("a")
    turned.ask("b", signal=taps["b"], mode="shared", limit=0)
    turned.ask("c", signal=taps["c"], mode="shared", limit=0)
    turned.ask("d", signal=taps["d"])
    assert turned.store.remove(KEY, "a")
    assert {owner: tap.taps for owner, tap in taps.items()} == {"b": 1, "c": 1, "d": 0}


def test_one_who_was_woken_and_died_delays_the_next_by_its_patience_only(turned: Turned) -> None:
    turned.ask("a", ttl=1000.0)
    turned.ask("b", ttl=1000.0)
    turned.ask("c", ttl=1000.0)
    turned.store.remove(KEY, "a")  # b is woken, and never heard of again
    turned.time += patience(1000.0) - 0.1
    assert isinstance(turned.ask("c", ttl=1000.0), Busy)
    turned.time += 0.2
    assert isinstance(turned.ask("c", ttl=1000.0), Grant)


def test_tokens_rise_and_begin_at_the_time_of_day(turned: Turned) -> None:
    tokens = []
    for owner in "abc":
        answer = turned.ask(owner)
        assert isinstance(answer, Grant)
        tokens.append(answer.token)
        turned.store.remove(KEY, owner)
    assert tokens == sorted(set(tokens))
    assert tokens[0] > 1_000_000 * 1_000_000


def test_a_renewal_never_revives(turned: Turned) -> None:
    grant = turned.ask("a", ttl=10.0)
    assert isinstance(grant, Grant)
    renewal = Renewal(request("a"), grant.token, 10.0, True)
    turned.time += 9
    assert turned.store.renew(KEY, renewal) is Outcome.RENEWED
    assert turned.store.renew(KEY, renewal._replace(extend=False)) is Outcome.HELD
    assert turned.store.renew(KEY, renewal._replace(token=1)) is Outcome.LOST
    turned.time += 10
    assert turned.store.renew(KEY, renewal) is Outcome.LOST
    assert turned.store.renew(("", "unknown"), renewal) is Outcome.LOST


def test_removing_says_whether_it_was_live(turned: Turned) -> None:
    assert turned.store.remove(KEY, "a") is False
    turned.ask("a", ttl=10.0)
    assert turned.store.remove(KEY, "stranger") is False
    turned.time += 11
    assert turned.store.remove(KEY, "a") is False
    assert turned.store.queues == {}


def test_a_forced_release_tells_the_holders(turned: Turned) -> None:
    turned.ask("a")
    turned.ask("b")
    assert [entry.owner for entry in turned.store.force_release(KEY, None)] == ["a"]
    assert turned.lost == [("a", "it was force-released")]
    assert turned.store.force_release(KEY, "stranger") == []
    assert turned.store.force_release(("", "unknown"), None) == []


def test_limits_of_one_semaphore_agree(turned: Turned) -> None:
    turned.ask("a", mode="permit", limit=2)
    with pytest.raises(ConfigurationError, match=r"limit=3 .* limit 2"):
        turned.ask("b", mode="permit", limit=3)
    assert isinstance(turned.ask("c", mode="permit", limit=2), Grant)
    assert isinstance(turned.ask("d"), Busy)


def test_nothing_is_left_of_names_that_are_not_in_use(turned: Turned) -> None:
    with Client(MemoryBackend(turned.store)) as client:
        for number in range(1000):
            client.lock(f"job-{number}").acquire().release()
    assert turned.store.queues == {}


def test_what_expired_and_nobody_asks_for_is_swept(turned: Turned) -> None:
    turned.ask("a", ttl=1.0)
    turned.time += 2
    turned.store.sweep()
    assert turned.store.queues == {}


def test_names_do_not_meet() -> None:
    names = ["a/b", "a:b", "{a}b", "A", "a", "a ", " a", "\u00e9", "e\u0301", "%2F", "/", "a\nb", "x" * 512]
    with Client(MemoryBackend(Store())) as client:
        leases = [client.lock(name).try_acquire() for name in names]
        assert None not in leases
        assert {state.name for state in client.list()} == set(names)


def test_stores_have_names() -> None:
    one, same, two = Client("memory://one"), Client("memory://one"), Client("memory://two")
    with one, same, two, one.lock("x"):
        assert same.lock("x").try_acquire() is None
        with two.lock("x", timeout=0):
            pass


def test_what_it_promises() -> None:
    promised = MemoryBackend().guarantees
    assert (promised.scope, promised.fencing, promised.fairness, promised.wakeup) == (
        "process",
        "until-restart",
        "fifo",
        "push",
    )
    assert promised.as_dict()["caveats"] == list(promised.caveats)


def test_threads_and_tasks_exclude_each_other() -> None:
    store = Store()
    inside = 0
    worst = 0

    def enter() -> None:
        nonlocal inside, worst
        inside += 1
        worst = max(worst, inside)

    def leave() -> None:
        nonlocal inside
        inside -= 1

    def thread() -> None:
        with Client(MemoryBackend(store)) as client:
            for _ in range(50):
                with client.lock("x"):
                    enter()
                    leave()

    async def tasks() -> None:
        async with AsyncClient(MemoryBackend(store)) as client:

            async def task() -> None:
                for _ in range(25):
                    async with client.lock("x"):
                        enter()
                        await asyncio.sleep(0)
                        leave()

            await asyncio.gather(task(), task())

    workers = [threading.Thread(target=thread) for _ in range(2)]
    for worker in workers:
        worker.start()
    asyncio.run(tasks())
    for worker in workers:
        worker.join(30)
    assert worst == 1
    assert store.queues == {}


def test_no_signal_is_left_of_those_who_waited() -> None:
    async def main() -> None:
        backend = MemoryBackend(Store())
        async with AsyncClient(backend) as client:

            async def work() -> None:
                async with client.lock("x"):
                    await asyncio.sleep(0)

            await asyncio.gather(*[work() for _ in range(10)])
            async with client.multi(["a", "b"]):
                pass
            assert backend._signals == {}

    asyncio.run(main())
