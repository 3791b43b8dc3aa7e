"""A client that is closed while it waits, on PostgreSQL and MySQL: the wait ends, and nothing is left.

Another thread or task closes it, or a signal handler that interrupts the very thread that acquires. Waits
are made to last for seconds here, so that only a close that ends them explains that they end soon.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import mysql_desk
import postgres_desk
import pytest
from crew import PATIENCE, Crew, Member, wait_until
from redis_desk import FLAVOURS, desk_for, proxied
from tools.servers import start

import fencelock
from fencelock import AcquireCancelled, Client, events

SOON = 15.0
ROUNDS = 6
WAYS = {
    "postgresql": ("postgres", "postgres"),
    "postgresql@transaction-pooler": ("pgbouncer", "transaction"),
    "postgresql+advisory": ("postgres", "postgres"),
    "mysql": ("mariadb", ""),
    "mysql+getlock": ("mariadb", ""),
}
STEPS = {
    "postgresql": [b"fencelock_acquire", b'"fencelock".acquire('],
    "postgresql+advisory": [b"fencelock_take", b"fencelock_quick"],
    "mysql": [b"acquire_v1"],
    "mysql+getlock": [b"GET_LOCK"],
}
"""What a step that takes a lock has in its first packet."""
FREE = (b"free", b"free".hex().encode())


class Store:
    """A server, and the URL of one way to lock there."""

    def __init__(self, way: str, group: Any) -> None:
        kind, name = WAYS[way]
        self.scheme = way.partition("@")[0]
        rest = (group.urls[name] if name else group.url).partition("://")[2]
        self.url = f"{self.scheme}://{rest}"
        self.is_pooled = kind == "pgbouncer"
        self.server = group.members[0]

    def takes(self, data: bytes) -> bool:
        """Whether this is a step that takes the lock "free". GET_LOCK does not say which."""
        is_it = self.scheme == "mysql+getlock" or any(name in data for name in FREE)
        return is_it and any(step in data for step in STEPS[self.scheme])

    def is_clean(self) -> bool:
        """Whether the server has no session, and no lock of its own, of a client."""
        if self.scheme.startswith("mysql"):
            return not mysql_desk.ours(self.server)
        locks = postgres_desk.ask(self.server, postgres_desk.ADVISORY_LOCKS)
        return not locks and (self.is_pooled or not postgres_desk.activity(self.server))


@pytest.fixture(scope="module", params=WAYS)
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    with start(WAYS[request.param][0]) as group:
        yield Store(request.param, group)


@pytest.fixture
def long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencelock.core.acquire.patience", lambda ttl: 60.0)
    for pause in ("mysql.pace.SHORTEST", "mysql.pace.LONGEST", "postgres.turns.POLL_FIRST"):
        monkeypatch.setattr(f"fencelock.backends.{pause}", 20.0)
    monkeypatch.setattr("fencelock.backends.postgres.turns.POLL_LAST", 20.0)
    monkeypatch.setattr("fencelock.backends.postgres.advisory.POLL", 20.0)


def nobody_waits(locks: Client) -> bool:
    try:
        return locks.inspect("job").waiters == ()
    except fencelock.Unsupported:
        return True


@pytest.mark.usefixtures("long_waits")
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_closing_ends_all_waits(store: Store, flavour: str) -> None:
    with Client(store.url) as locks:
        lease = locks.lock("job", ttl=60).acquire(timeout=30)
        for _ in range(ROUNDS):
            desk = desk_for(flavour, store.url)
            desk(desk.acquire("warm up").release)
            told: list[object] = []
            with events.subscribe(told.append, events.Waiting):
                calls = [desk.waiting("job") for _ in range(3)]
                wait_until(lambda told=told: len(told) == 3, "all three wait")  # type: ignore[misc]
            time.sleep(0.1)  # and listen
            began = time.monotonic()
            desk.close()
            for call in calls:
                with pytest.raises(AcquireCancelled, match="its client was closed"):
                    call.result(PATIENCE)
            assert time.monotonic() - began < SOON
            assert nobody_waits(locks)
        assert lease.verify()
        assert lease.release()
    wait_until(store.is_clean, "every session has ended", 15.0)


def hear(closer: Member) -> dict[str, Any]:
    said = closer.hear()
    assert said["took"] < SOON
    return said


def check_left(closer: Member) -> None:
    said = closer.hear()
    assert said["after"] == said["before"]


def test_a_handler_closes_the_client_that_its_thread_waits_with(store: Store) -> None:
    with Client(store.url) as locks, Crew() as crew:
        lease = locks.lock("job", ttl=60).acquire(timeout=30)
        closer = crew.start("closer", store.url, "job", ROUNDS, 0.3, 60)
        for _ in range(ROUNDS):
            said = hear(closer)
            assert said["order"] == ["closing", "closed", "refused"]
            assert said["error"] == "AcquireCancelled"
            assert nobody_waits(locks), "it has left the queue"
            closer.tell()
        check_left(closer)
        assert lease.verify()
        assert lease.release()
    wait_until(store.is_clean, "every session has ended", 15.0)


@pytest.mark.parametrize("timeout", [1.4, 60])
def test_a_handler_closes_the_client_in_the_middle_of_a_step(store: Store, timeout: float) -> None:
    """With a single connection. PostgreSQL has another way for a step that has little time."""
    options = "?connections=1" if store.scheme == "mysql+getlock" else "?pool_size=1"
    with proxied(store.url) as (proxy, url), Client(store.url) as locks, Crew() as crew:
        locks.lock("free").acquire().release()
        proxy.delay(0.2, "requests", match=store.takes)
        closer = crew.start("closer", url + options, "free", ROUNDS, 0.15, timeout)
        for _ in range(ROUNDS):
            said = hear(closer)
            assert said["error"] == "AcquireCancelled"
            time.sleep(0.3)  # until the step has come through
            lease = locks.lock("free").try_acquire()
            assert lease is not None, "the lock is free"
            assert lease.release()
            closer.tell()
        check_left(closer)
    wait_until(store.is_clean, "every session has ended", 15.0)


TAKING = {
    "postgresql": lambda backend: (backend._wire.source, ["take", "dial"]),
    "postgresql+advisory": lambda backend: (backend._steps.seats, ["one_without"]),
    "mysql": lambda backend: (backend._pool, ["take"]),
    "mysql+getlock": lambda backend: (backend, ["_post"]),
}
"""How a step gets its connection: an object and its methods."""


@pytest.mark.parametrize("is_new", [False, True])
def test_a_handler_closes_the_client_between_two_moments_of_a_step(store: Store, is_new: bool) -> None:
    """The step has a connection, and has not used it yet."""
    with Client(store.url) as locks:
        other = Client(store.url)
        pool, names = TAKING[store.scheme](other._session.backend)
        # A new client has another use for its first connection, where locks are rows or a keeper has them.
        last = 2 if is_new and store.scheme != "postgresql+advisory" else 1
        calls = []

        def closing(take: Any) -> Any:
            async def interrupted(*words: Any) -> Any:
                link = await take(*words)
                calls.append(link)
                if len(calls) == last:
                    other.close()
                return link

            return interrupted

        if not is_new:
            other.lock("warm up").acquire().release()
        for name in names:
            setattr(pool, name, closing(getattr(pool, name)))
        with pytest.raises(AcquireCancelled):
            other.lock("free", ttl=60).acquire(timeout=10)
        assert len(calls) >= last
        lease = locks.lock("free").try_acquire()
        assert lease is not None, "the lock is free"
        assert lease.release()
    wait_until(store.is_clean, "every session has ended", 15.0)


def test_a_handler_closes_the_client_in_the_middle_of_a_look() -> None:
    """Before it times out a request looks who holds the lock, on the connection that its clean-up needs."""
    with start("postgres") as group:
        store = Store("postgresql+advisory", group)
        with proxied(store.url) as (proxy, url), Client(store.url) as locks, Crew() as crew:
            lease = locks.lock("job", ttl=60).acquire()
            proxy.delay(0.3, "requests", match=lambda data: b"fencelock_inspect" in data)
            for size in (1, 2):
                closer = crew.start("closer", f"{url}?pool_size={size}", "job", ROUNDS, 0.2, 1.4)
                for _ in range(ROUNDS):
                    assert hear(closer)["error"] == "AcquireCancelled"
                    assert nobody_waits(locks)
                    closer.tell()
                check_left(closer)
            assert lease.release()


@pytest.mark.usefixtures("long_waits")
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_session_that_waits_in_get_lock_is_ended(flavour: str) -> None:
    """It is told so: by itself it looks once a second whether its client is there."""
    with start("mariadb") as group:
        server, url = group.members[0], mysql_desk.getlock(group.url)
        with Client(url) as locks:
            lease = locks.lock("job", ttl=60).acquire()
            desk = desk_for(flavour, url)
            call = desk.waiting("job")
            waiting = "SELECT 1 FROM information_schema.PROCESSLIST WHERE STATE = 'User lock'"
            wait_until(lambda: mysql_desk.ask(server, waiting), "it waits")
            desk.close()
            with pytest.raises(AcquireCancelled):
                call.result(PATIENCE)
            wait_until(lambda: not mysql_desk.ask(server, waiting), "the server waits no more", 10)
            assert mysql_desk.ask(server, "SHOW GLOBAL STATUS LIKE 'Com_kill'")[0][1] == "1"
            assert lease.release()
