"""Events as users see them: every kind of lock, both flavours, and the log."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator

import pytest

from fencelock import AsyncClient, Client, ConfigurationError, events
from fencelock.core import events as core
from fencelock.events import Acquired, Broken, Event, Lost, Released, Renewed, TimedOut, Waiting, Withdrawn
from unit.support import until, until_async


@pytest.fixture(autouse=True)
def nobody_is_left() -> Iterator[None]:
    yield
    assert not any(core.subscribers.values()), "a test has left a subscriber"


def kinds(told: list[Event]) -> list[tuple[str, str, str]]:
    return [(type(event).__name__, event.name, event.mode) for event in told]  # type: ignore[union-attr]


EVERY_KIND = [
    ("Acquired", "lock", "exclusive"),
    ("Released", "lock", "exclusive"),
    ("Acquired", "rw", "shared"),
    ("Released", "rw", "shared"),
    ("Acquired", "rw", "exclusive"),
    ("Released", "rw", "exclusive"),
    ("Acquired", "slots", "permit"),
    ("Released", "slots", "permit"),
    ("Acquired", "a", "exclusive"),
    ("Acquired", "b", "exclusive"),
    ("Released", "b", "exclusive"),
    ("Released", "a", "exclusive"),
    ("Acquired", "leader", "exclusive"),
    ("Released", "leader", "exclusive"),
]


def test_every_kind_of_lock_tells_in_blocking_code() -> None:
    told: list[Event] = []
    with Client("memory://", client_name="me") as locks, events.subscribe(told.append):
        rw = locks.rwlock("rw")
        for lock in (locks.lock("lock"), rw.read(), rw.write(), locks.semaphore("slots", 2)):
            with lock:
                pass
        with locks.multi(["b", "a"]):
            pass
        locks.election("leader").run(lambda lease: None)
    assert sorted(kinds(told)) == sorted(EVERY_KIND)
    assert {event.backend for event in told} == {"memory"}
    assert {event.client for event in told} == {"me"}


def test_every_kind_of_lock_tells_the_same_under_asyncio() -> None:
    told: list[Event] = []

    async def main() -> None:
        async with AsyncClient("memory://", client_name="me") as locks:
            rw = locks.rwlock("rw")
            for lock in (locks.lock("lock"), rw.read(), rw.write(), locks.semaphore("slots", 2)):
                async with lock:
                    pass
            async with locks.multi(["b", "a"]):
                pass

            async def work(lease: object) -> None:
                pass

            await locks.election("leader").run(work)

    with events.subscribe(told.append):
        asyncio.run(main())
    assert sorted(kinds(told)) == sorted(EVERY_KIND)


def test_a_waiter_a_timeout_and_a_break_are_told_on_the_thread_where_they_happen() -> None:
    told: list[tuple[str, Event]] = []

    def tell(event: Event) -> None:
        told.append((threading.current_thread().name, event))

    with Client("memory://") as locks, events.subscribe(tell):
        lease = locks.lock("x", ttl=60).acquire()
        waiter = threading.Thread(target=lambda: locks.lock("x").acquire(timeout=30).release(), name="waiter")
        waiter.start()
        assert until(lambda: any(type(event) is Waiting for _, event in told), 30)
        assert locks.lock("x").try_acquire() is None
        (out,) = locks.force_release("x")
        assert not lease.verify()
        waiter.join(30)
    here = threading.current_thread().name
    assert [(where, type(event)) for where, event in told if where == "waiter"] == [
        ("waiter", Waiting),
        ("waiter", Acquired),
        ("waiter", Released),
    ]
    assert {type(event) for where, event in told if where == here} >= {Acquired, TimedOut, Broken, Lost}
    assert [event.owners for _, event in told if type(event) is Broken] == [(out.owner,)]


def test_a_task_that_is_cancelled_withdraws() -> None:
    told: list[Event] = []

    async def main() -> None:
        async with AsyncClient("memory://") as locks, locks.lock("x"):
            task = asyncio.create_task(locks.lock("x").acquire())
            assert await until_async(lambda: any(type(event) is Waiting for event in told), 30)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    with events.subscribe(told.append):
        asyncio.run(main())
    assert [event.error for event in told if type(event) is Withdrawn] == ["CancelledError"]


def test_for_each_hold_there_is_one_begin_and_one_end_whatever_many_threads_do() -> None:
    told: list[Event] = []

    def work(locks: Client) -> None:
        for number in range(60):
            lease = locks.lock(f"n{number % 3}").acquire()
            if number % 7 == 0:
                locks.force_release(lease.name)
                lease.verify()
            elif number % 5 == 0:
                lease.__enter__()
                del lease  # garbage, in a block that is over: released at once
            else:
                lease.release()

    with events.subscribe(told.append), Client("memory://") as locks:
        threads = [threading.Thread(target=work, args=(locks,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    begun = [event.owner for event in told if type(event) is Acquired]
    ended = [event.owner for event in told if type(event) in {Released, Lost}]
    assert len(begun) == 240 and sorted(begun) == sorted(ended)
    seen: set[str] = set()
    for event in told:
        if type(event) is Acquired:
            seen.add(event.owner)
        elif type(event) in {Released, Lost}:
            assert event.owner in seen, "an end before its begin"  # type: ignore[union-attr]


# Subscriptions ----------------------------------------------------------------------------


def test_a_subscription_ends_and_may_end_twice() -> None:
    told: list[Event] = []
    with Client("memory://") as locks:
        one, two = events.subscribe(told.append), events.subscribe(told.append)
        one.close()
        one.close()
        with locks.lock("x"):
            pass
        assert len(told) == 2
        two.close()
        with locks.lock("x"):
            pass
        assert len(told) == 2
    assert repr(two).endswith(", closed>") and "Acquired" in repr(two)


def test_only_the_kinds_that_were_asked_for_are_told() -> None:
    told: list[Event] = []
    with Client("memory://") as locks, events.subscribe(told.append, Released, TimedOut), locks.lock("x"):
        assert locks.lock("x").try_acquire() is None
    assert [type(event) for event in told] == [TimedOut, Released]


def test_a_subscriber_may_use_locks_and_subscribe_itself() -> None:
    told: list[str] = []

    with Client("memory://") as locks:

        def tell(event: Acquired) -> None:
            told.append(event.name)
            if event.name == "outer":
                seen = events.subscribe(lambda inner: told.append(f"seen {inner.name}"), Acquired)
                with seen, locks.lock("inner"):
                    pass

        with events.subscribe(tell, Acquired), locks.lock("outer"):
            pass
    assert told == ["outer", "inner", "seen inner"]


@pytest.mark.parametrize("wrong", [None, "print", 3])
def test_what_cannot_be_called_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigurationError, match="is not callable"):
        events.subscribe(wrong)  # type: ignore[arg-type]


def test_what_is_no_event_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="is no kind of event"):
        events.subscribe(print, str)  # type: ignore[arg-type]


# The log ----------------------------------------------------------------------------------


def test_nothing_above_debug_is_logged_on_the_happy_path(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    renewed: list[Event] = []

    async def main() -> None:
        async with AsyncClient("memory://") as locks, locks.lock("x", ttl=0.5) as lease:
            assert await until_async(lambda: len(renewed) >= 2, 30) and lease.is_held()

    with Client("memory://") as locks, events.log(), events.subscribe(renewed.append, Renewed):
        with locks.lock("x", ttl=0.5) as lease:
            assert until(lambda: renewed, 30) and lease.is_held()
            assert locks.lock("x").try_acquire() is None
        with locks.rwlock("rw").read(), locks.semaphore("s", 1), locks.multi(["a", "b"]):
            pass
        with locks.election("leader").lead():
            pass
        asyncio.run(main())
    ours = [record for record in caplog.records if record.name.startswith("fencelock")]
    assert ours and {record.levelno for record in ours} == {logging.DEBUG}


def test_events_go_to_the_log_with_their_fields(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with Client("memory://", client_name="me") as locks:
        with events.log(logging.INFO, "app.locks"), locks.lock("x") as lease:
            pass
        with events.log(logging.DEBUG), locks.lock("x"):
            pass  # nobody wants DEBUG
    acquired, released = [record for record in caplog.records if record.name == "app.locks"]
    assert acquired.getMessage().startswith("Acquired(name='x', mode='exclusive', token=")
    about = released.fencelock  # type: ignore[attr-defined]
    assert (about["event"], about["owner"], about["client"]) == ("Released", lease.owner, "me")
    assert len(caplog.records) == 2
