"""Subclasses and wrappers of fencelock's own backends keep values, schedules and registers as those do."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
import redis.asyncio
from register_desk import Held
from tools.servers import start

from fencelock import AsyncClient, Client, ConfigurationError, fencing
from fencelock.backends import OWN, backend_from_url
from fencelock.backends.base import CAPABILITIES, Backend
from fencelock.crdt import RedisExchange
from fencelock.flight import AsyncFlight, Flight
from fencelock.idempotency import AsyncStore, Store
from fencelock.schedule import AsyncSchedule, Schedule

VALUES = ["memory", "sqlite", "redis"]
RECORDS = [*VALUES, "postgres", "mariadb", "etcd"]
REGISTERS = ["redis", "etcd"]
FLAVOURS = ["blocking", "asyncio"]
STEPS = ("acquire", "wait", "renew", "release", "abandon", "inspect", "list", "force_release", "close")


class Wrapper(Backend):
    """A backend that passes everything on."""

    name = "audited"
    capabilities = CAPABILITIES

    def __init__(self, inner: Backend) -> None:
        self.inner = inner

    @classmethod
    def from_url(cls, url: str) -> Wrapper:
        return cls(backend_from_url(url))

    @property
    def guarantees(self) -> Any:
        return self.inner.guarantees

    def open(self, *args: Any) -> None:
        super().open(*args)
        self.inner.open(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def _passed_on(step: str) -> Any:
    return lambda self, *args, **options: getattr(self.inner, step)(*args, **options)


for _step in STEPS:
    setattr(Wrapper, _step, _passed_on(_step))
Wrapper.__abstractmethods__ = frozenset()


def subclassed(url: str) -> Backend:
    """Return a backend whose class is a user's own, with a name of its own."""
    kind = type(backend_from_url(url))
    made: Any = type("Audited", (kind,), {"name": "audited", "__module__": __name__})
    backend: Backend = made.from_url(url)
    return backend


MAKERS = {"subclass": subclassed, "wrapper": Wrapper.from_url}


class Urls:
    """Stores, each started when it is first asked for."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._stack = stack
        self._known = {"memory": "memory://", "sqlite": f"sqlite://{folder}/locks.db"}

    def __getitem__(self, kind: str) -> str:
        if kind not in self._known:
            self._known[kind] = str(self._stack.enter_context(start(kind)).url)
        return self._known[kind]


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Urls]:
    with ExitStack() as stack:
        yield Urls(tmp_path_factory.mktemp("stores"), stack)


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("made", MAKERS)
@pytest.mark.parametrize("kind", VALUES)
def test_values(urls: Urls, kind: str, made: str, flavour: str) -> None:
    """The original class finds the value: both use the same place."""
    url, namespace = urls[kind], f"{made}-{flavour}"
    backend = MAKERS[made](url)
    if flavour == "blocking":
        with Client(backend, namespace=namespace) as locks, Flight(locks) as flight:
            assert flight.get("answer", lambda: 42, ttl=60) == 42
            with Client(url, namespace=namespace) as others, Flight(others) as plain:
                assert plain.get("answer", lambda: 0, ttl=60) == 42
        return

    async def compute() -> int:
        return 42

    async def main() -> None:
        async with AsyncClient(backend, namespace=namespace) as locks, AsyncFlight(locks) as flight:
            assert await flight.get("answer", compute, ttl=60) == 42

    asyncio.run(main())


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("made", MAKERS)
@pytest.mark.parametrize("kind", RECORDS)
def test_schedules(urls: Urls, kind: str, made: str, flavour: str) -> None:
    url, namespace = urls[kind], f"{made}-{flavour}"
    backend = MAKERS[made](url)
    if flavour == "blocking":
        with Client(backend, namespace=namespace) as locks, Schedule(locks) as schedule:
            run = schedule.once("nightly", lambda: None, per=86400)
            with Client(url, namespace=namespace) as others, Schedule(others) as plain:
                assert plain.history("nightly") == [run]
        return

    async def work() -> None: ...

    async def main() -> None:
        async with AsyncClient(backend, namespace=namespace) as locks, AsyncSchedule(locks) as schedule:
            run = await schedule.once("nightly", work, per=86400)
            assert await schedule.history("nightly") == [run]

    asyncio.run(main())


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("made", MAKERS)
@pytest.mark.parametrize("kind", REGISTERS)
def test_registers(urls: Urls, kind: str, made: str, flavour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A register is found by URL: here one whose scheme belongs to the subclass or the wrapper."""
    url = urls[kind]
    rest = url.partition("://")[2]

    class Found:
        @staticmethod
        def from_url(_: str) -> Backend:
            return MAKERS[made](url)

    monkeypatch.setattr(sys.modules[__name__], "Found", Found, raising=False)
    monkeypatch.setitem(OWN, "audited", f"{__name__}:Found")
    held = Held(flavour, f"audited://{rest}", f"{made}-{flavour}")
    plain = Held(flavour, url, f"{made}-{flavour}")
    try:
        held.set(b"one", 0).expect()
        assert plain.read().value == b"one"
    finally:
        held.close()
        plain.close()


class OwnRedis(redis.Redis):
    """As an application writes one, to add its defaults."""


class OwnAsyncRedis(redis.asyncio.Redis):
    """The same, for asyncio."""


def test_the_flavour_of_a_redis_client_is_that_of_its_class() -> None:
    blocking, asynchronous = OwnRedis(), OwnAsyncRedis()
    with Client("memory://") as locks:
        for wrong in (
            lambda: AsyncStore(blocking),
            lambda: Store(asynchronous),
            lambda: Schedule(locks, record=asynchronous),
            lambda: Flight(locks, asynchronous),
        ):
            with pytest.raises(ConfigurationError, match="is of the other flavour"):
                wrong()
    with pytest.raises(ConfigurationError, match="client is asynchronous"):
        RedisExchange(asynchronous)


def test_the_flavour_of_a_connection_is_that_of_its_class() -> None:
    class Own(psycopg.AsyncConnection[Any]):
        def __init__(self) -> None: ...

        def __del__(self) -> None: ...

    with pytest.raises(ConfigurationError, match="is asynchronous: use the function that ends in _async"):
        fencing.admit(Own(), "r", 1)  # type: ignore[arg-type]
