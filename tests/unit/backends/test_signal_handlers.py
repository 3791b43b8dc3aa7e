"""A signal handler closes the client in the middle of a step of its own thread, which waits for that."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from fencelock.backends.consul.address import Address
from fencelock.backends.consul.connection import Call, Consul
from fencelock.backends.consul.protocol import Answer
from fencelock.backends.consul.waiting import Watcher
from fencelock.backends.etcd import address as etcd
from fencelock.backends.etcd.connection import Etcd
from fencelock.backends.ordered.places import Eye
from fencelock.backends.zookeeper import address as zookeeper
from fencelock.backends.zookeeper.sessions import Session
from fencelock.errors import BackendUnavailable
from fencelock.net.failures import Disconnected
from fencelock.runtime import clock
from fencelock.runtime.blocking import BlockingRuntime, run

SOON = 20.0
Made = tuple[Callable[[], Any], Callable[[], Any]]
"""A step, and a handler that comes in the middle of it."""


def interrupt(step: Callable[[], Any], handler: Callable[[], Any], place: int) -> bool:
    """Take a step, with the handler at one of its places; say whether there is such a place."""
    left = [place]

    def look(frame: FrameType, event: str, function: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            sys.setprofile(None)
            handler()

    sys.setprofile(look)
    try:
        step()
    finally:
        sys.setprofile(None)
    return left[0] <= 0


def everywhere(make: Callable[[], Made], after: Callable[[], Any] = lambda: None) -> None:
    """Fail if a handler waits for its own thread, wherever it comes."""
    errors: list[BaseException] = []
    places = [0]

    def main() -> None:
        try:
            while interrupt(*make(), places[0] + 1):
                places[0] += 1
                after()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=main, daemon=True)
    thread.start()
    thread.join(SOON)
    assert not thread.is_alive(), f"it waits for itself at place {places[0] + 1}"
    assert not errors, errors
    assert places[0] > 5


# Consul -----------------------------------------------------------------------------------------


class Silent:
    """A query that is not answered."""

    def __init__(self) -> None:
        self.is_over = threading.Event()

    def hang_up(self) -> None:
        self.is_over.set()


class SilentConsul(Consul):
    """Takes every query, and says nothing."""

    def __init__(self) -> None:
        super().__init__(BlockingRuntime(), Address(("localhost:8500",)))
        self.queries: list[Silent] = []

    async def query(self, path: str, call: Call, deadline: float) -> Answer:
        query = Silent()
        try:
            call.begin(query)  # type: ignore[arg-type]
            self.queries.append(query)
            query.is_over.wait(SOON)
        except Disconnected:
            pass
        finally:
            call.end()
        raise BackendUnavailable(backend="consul", detail="it ended")


def test_consul_watches_end() -> None:
    queries: list[Silent] = []
    closing: list[Callable[[], None]] = []

    def make() -> Made:
        consul = SilentConsul()
        queries.clear()
        consul.queries = queries
        watcher, eye, near = Watcher(BlockingRuntime(), consul), Eye(), Eye()
        closing[:] = [lambda: run(watcher.close())]

        def step() -> None:
            watcher.watch(eye, "fencelock/", ["fencelock/a"], False, 5)
            watcher.watch_near(near, "fencelock/b")
            watcher.unwatch(near)
            watcher.left("fencelock/b")

        def handler() -> None:
            watcher.unwatch(near)
            watcher.unwatch(eye)
            watcher.end()
            run(watcher.close())

        return step, handler

    def after() -> None:
        closing[0]()
        assert all(query.is_over.is_set() for query in queries)

    everywhere(make, after)
    for query in queries:
        query.hang_up()  # the last step was not interrupted


# Connections, and watches on ZooKeeper ----------------------------------------------------------


def test_a_connection_that_comes_after_the_end_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as member:
        member.settimeout(SOON)
        address = etcd.parse(f"etcd://127.0.0.1:{member.getsockname()[1]}")
        client = Etcd(BlockingRuntime(), address)

        def close(frame: FrameType, event: str, function: Any) -> None:
            if event == "c_exception" and function.__name__ == "connect":
                sys.setprofile(None)
                run(client.close())

        with pytest.raises(BackendUnavailable, match="closed"):
            sys.setprofile(close)
            try:
                run(client.channel(clock.now() + SOON))
            finally:
                sys.setprofile(None)
        with member.accept()[0] as link:
            link.settimeout(SOON)
            assert link.recv(1) == b"", "it was hung up"


def test_zookeeper_watches_end() -> None:
    address = zookeeper.parse("zookeeper://localhost")
    session = Session(address, 10.0, is_idle=lambda: True, is_held=lambda: False, lost=lambda reason: None)

    def make() -> Made:
        eye, other = Eye(), Eye()
        session.watch(other, ["/a"])

        def step() -> None:
            session.watch(eye, ["/a"])
            session.unwatch(eye, ["/a"])

        return step, lambda: session.unwatch(other, ["/a"])

    everywhere(make)
