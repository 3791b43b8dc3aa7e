"""A mistake in the code, or a driver of a version that does not fit, is told as that: no outage, and at once.

The server is there and well. A step of the driver is replaced by one that does not fit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pymysql  # type: ignore[import-untyped]
import pytest
import redis.asyncio.connection
import redis.connection
from asyncmy.connection import Connection as AsyncmyConnection
from kazoo.protocol.serialization import Create2  # type: ignore[import-untyped]
from psycopg import pq
from redis_desk import FLAVOURS, desk_for
from tools.servers import start

from fencelock import BackendError, BackendUnavailable
from fencelock.backends.consul.protocol import Reader
from fencelock.backends.etcd.protocol import Conversation
from fencelock.backends.postgres import link as postgres
from fencelock.backends.redis.blocking import Link
from fencelock.backends.redis.multiplexed import Connection
from fencelock.backends.zookeeper.handlers import Handler

AT_ONCE = 15.0
"""An outage would be ridden out for as long as the timeout of 20 s."""


def wrong(*_: Any, **__: Any) -> Any:
    raise TypeError("call() missing 1 required positional argument: 'hostname'")


def missing(*_: Any, **__: Any) -> Any:
    raise AttributeError("'Connection' object has no attribute 'reply'")


DOES_NOT_FIT = SimpleNamespace(connect_start=wrong)
CONNECTING: dict[str, Any] = {
    "zookeeper": dict.fromkeys(FLAVOURS, (Handler, "create_connection")),
    "mariadb": {"blocking": (pymysql.Connection, "connect"), "asyncio": (AsyncmyConnection, "connect")},
    "redis": {
        "blocking": (redis.connection.Connection, "connect"),
        "asyncio": (redis.asyncio.connection.Connection, "connect"),
    },
    "postgres": dict.fromkeys(FLAVOURS, (pq, "PGconn", DOES_NOT_FIT)),
    "etcd": dict.fromkeys(FLAVOURS, (Conversation, "begin")),
    "consul": dict.fromkeys(FLAVOURS, (Reader, "feed")),
}
ASKING: dict[str, Any] = {
    "zookeeper": dict.fromkeys(FLAVOURS, (Create2, "deserialize")),
    "mariadb": {"blocking": (pymysql.Connection, "cursor"), "asyncio": (AsyncmyConnection, "cursor")},
    "redis": {"blocking": (Link, "exchange"), "asyncio": (Connection, "data_received")},
    "postgres": {"blocking": (postgres.Link, "_plainly"), "asyncio": (postgres.TaskLink, "_read")},
    "etcd": dict.fromkeys(FLAVOURS, (Conversation, "feed")),
    "consul": dict.fromkeys(FLAVOURS, (Reader, "feed")),
}


@pytest.fixture(scope="module", params=CONNECTING)
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    with start(request.param) as group:
        yield request.param, group.url


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_driver_that_does_not_fit_is_no_outage(
    server: tuple[str, str], flavour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, url = server
    with desk_for(flavour, url) as desk:
        with monkeypatch.context() as patch:
            place, step, *other = CONNECTING[kind][flavour]
            patch.setattr(place, step, other[0] if other else wrong)
            told(desk, "missing 1 required positional argument", TypeError)
        desk(desk.acquire("x", timeout=10).release)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_mistake_on_a_connection_that_stands_is_no_outage(
    server: tuple[str, str], flavour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, url = server
    with desk_for(flavour, url) as desk:
        desk(desk.acquire("x", timeout=10).release)
        with monkeypatch.context() as patch:
            patch.setattr(*ASKING[kind][flavour], missing)
            told(desk, "has no attribute 'reply'", AttributeError)
        desk(desk.acquire("y", timeout=10).release)


def told(desk: Any, words: str, kind: type[Exception]) -> None:
    began = time.monotonic()
    with pytest.raises((BackendError, kind), match=words) as raised:
        desk.acquire("x", timeout=20)
    assert not isinstance(raised.value, BackendUnavailable)
    assert time.monotonic() - began < AT_ONCE
    if isinstance(raised.value, BackendError):
        assert isinstance(raised.value.__cause__, kind)
        assert "no outage" in str(raised.value) and "\n" not in str(raised.value)
