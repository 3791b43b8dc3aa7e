"""A signal handler closes the client in the middle of a step of its own thread, which waits for that."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from fencelock.backends.consul import address as consul
from fencelock.backends.consul.blocking import BlockingWire as ConsulWire
from fencelock.backends.consul.failures import closed
from fencelock.backends.consul.listening import Ear, ThreadLine
from fencelock.backends.consul.watching import Watcher
from fencelock.backends.etcd import address as etcd
from fencelock.backends.etcd.blocking import BlockingWire as EtcdWire
from fencelock.backends.etcd.blocking import ThreadStream
from fencelock.backends.ordered.places import Eye
from fencelock.backends.zookeeper import address as zookeeper
from fencelock.backends.zookeeper.sessions import Session
from fencelock.errors import BackendUnavailable
from fencelock.runtime import clock
from fencelock.runtime.blocking import run

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


# etcd -------------------------------------------------------------------------------------------


class PaperLink:
    """A connection on which messages are written in two parts."""

    def __init__(self) -> None:
        self.talk = self
        self.parts: list[str] = []
        self.is_up = threading.Event()

    def begin(self, path: str, metadata: Any) -> int:
        return 1

    def send(self, number: int, message: bytes, *, last: bool) -> None:
        self.parts.append(f"{message.decode()} begins")

    def flush(self, until: float) -> None:
        self.parts.append(f"{self.parts[-1].split()[0]} ends")

    def wait(self) -> bool:
        self.is_up.wait(SOON)
        return False

    def hang_up(self) -> None:
        self.is_up.set()

    def close(self) -> None:
        pass


def test_etcd_messages_are_whole() -> None:
    links: list[PaperLink] = []

    def make() -> Made:
        link = PaperLink()
        links.append(link)
        stream = ThreadStream(link, "/watch", (), lambda message: None)  # type: ignore[arg-type]
        return lambda: stream.send(b"one"), lambda: stream.send(b"two")

    def after() -> None:
        link = links[-1]
        one, two = ["one begins", "one ends"], ["two begins", "two ends"]
        assert link.parts in ([*one, *two], [*two, *one]) or (link.parts == one and link.is_up.is_set())
        link.hang_up()

    everywhere(make, after)
    links[-1].hang_up()
    assert any(len(link.parts) == 2 for link in links), "in the middle of one there is nothing to be sent"


# Consul -----------------------------------------------------------------------------------------


class Silent:
    """A line that takes everything, and says nothing."""

    def __init__(self) -> None:
        self.is_open = True

    def send(self, data: bytes) -> None:
        pass

    def end(self) -> None:
        self.is_open = False


def test_consul_watches_end() -> None:
    lines: list[Silent] = []

    def make() -> Made:
        wire = ConsulWire(consul.parse("consul://localhost"))

        async def listen(heard: Any, deadline: float) -> Any:
            if wire._closed:
                raise closed()
            lines.append(Silent())
            return lines[-1], 0

        wire.listen = listen  # type: ignore[method-assign]
        watcher, eye, near = Watcher(wire), Eye(), Eye()

        def step() -> None:
            run(watcher.watch(eye, "fencelock/", ["fencelock/a"], False, 5, clock.now() + SOON))
            watcher.watch_near(near, "fencelock/b")
            watcher.unwatch(near)
            watcher.left("fencelock/b")
            watcher.unwatch(eye)

        def handler() -> None:
            watcher.unwatch(near)
            watcher.unwatch(eye)
            watcher.close()
            run(wire.close())

        return step, handler

    everywhere(make)
    assert lines and not any(line.is_open for line in lines)


class PaperSocketLink:
    """A connection to nowhere."""

    def __init__(self) -> None:
        self.sock, self.other = socket.socketpair()

    def close(self) -> None:
        self.sock.close()
        self.other.close()


def test_consul_queries_are_closed() -> None:
    ears: list[Ear] = []

    def make() -> Made:
        ear, link = Ear(), PaperSocketLink()
        ears.append(ear)
        line = ThreadLine(ear, link, lambda answer: None)  # type: ignore[arg-type]

        def step() -> None:
            try:
                ear.add(line)
            except BackendUnavailable:
                link.close()

        return step, ear.close

    everywhere(make)
    for ear in ears:
        ear.close()
        assert ear._bell is None
        assert ear._thread is None or not ear._thread.is_alive()


# Connections, and watches on ZooKeeper ----------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [lambda at: ConsulWire(consul.parse(f"consul://{at}")), lambda at: EtcdWire(etcd.parse(f"etcd://{at}"))],
)
def test_a_connection_that_comes_after_the_end_is_closed(make: Callable[[str], Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as member:
        member.settimeout(SOON)
        wire = make(f"127.0.0.1:{member.getsockname()[1]}")

        def close(frame: FrameType, event: str, function: Any) -> None:
            if event == "c_return" and function.__name__ == "connect":
                sys.setprofile(None)
                run(wire.close())

        with pytest.raises(BackendUnavailable, match="closed"):
            sys.setprofile(close)
            try:
                wire._dial(wire.address.endpoints[0], clock.now() + SOON)
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
