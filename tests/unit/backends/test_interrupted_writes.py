"""Ctrl-C in the moment in which a request has been sent and nobody has said so yet.

The store will do it, perhaps later than what is to undo it: so its answer is waited for first.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from types import FrameType
from typing import Any

import pytest

from fencelock.backends.etcd import rpc_pb2 as pb
from fencelock.backends.etcd.address import parse
from fencelock.backends.etcd.connection import Etcd
from fencelock.backends.etcd.keys import Keys
from fencelock.backends.etcd.methods import TXN
from fencelock.backends.etcd.queues import EtcdStore
from fencelock.backends.ordered.places import Place
from fencelock.backends.ordered.tenures import Tenure
from fencelock.core.ports import Origin, Request
from fencelock.runtime import clock
from fencelock.runtime.blocking import BlockingRuntime, run
from unit.backends.etcd_server import Server


@pytest.fixture
def member() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        yield server


def place(member: socket.socket) -> str:
    return f"127.0.0.1:{member.getsockname()[1]}"


def interrupted_when_sent(call: Coroutine[Any, Any, Any]) -> None:
    def look(frame: FrameType, event: str, function: Any) -> None:
        if event == "c_return" and function.__name__ in {"send", "sendall"}:
            sys.setprofile(None)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sys.setprofile(look)
        try:
            run(call)
        finally:
            sys.setprofile(None)


class Member:
    """Answers what it is asked on each of its connections: a transaction late, once it may."""

    def __init__(self, listener: socket.socket) -> None:
        self.done: list[str] = []
        self.begins = threading.Event()
        for _ in range(2):
            threading.Thread(target=self._serve, args=(listener,), daemon=True).start()

    def _serve(self, listener: socket.socket) -> None:
        server = Server()
        with contextlib.suppress(OSError), listener.accept()[0] as link:
            link.settimeout(10)
            while not server.ended:
                server.take(link.recv(65536))
            path = server.headers[1][b":path"].decode().rpartition("/")[2]
            if path == "Txn":
                self.begins.wait(10)
                time.sleep(0.2)
            self.done.append(path)
            answer = {"Txn": pb.TxnResponse, "DeleteRange": pb.DeleteRangeResponse}[path]
            server.answer(1, answer().SerializeToString())
            link.sendall(server.h2.data_to_send())
            link.recv(65536)


def test_etcd_waits_for_the_answer(member: socket.socket) -> None:
    etcd, server = Etcd(BlockingRuntime(), parse(f"etcd://{place(member)}")), Member(member)
    interrupted_when_sent(etcd.call(TXN, pb.TxnRequest(), clock.now() + 5, "me"))
    server.begins.set()
    run(etcd.settle("another", clock.now() + 5))
    assert not server.done
    run(etcd.settle("me", clock.now() + 5))
    assert server.done == ["Txn"]
    run(etcd.close())


def test_etcd_withdraws_what_was_done(member: socket.socket) -> None:
    etcd, server = Etcd(BlockingRuntime(), parse(f"etcd://{place(member)}")), Member(member)
    store = EtcdStore(BlockingRuntime(), etcd, Keys("fencelock", "default"))
    store._has_begun = True
    request = Request("me", "job", "exclusive", 1, 30.0, Origin("billing", "host-a", 812), None)
    tenure = Tenure(30.0, 7, 30.0, clock.now())
    interrupted_when_sent(store.enter(Place(request), tenure, b"{}", clock.now() + 5))
    threading.Timer(0.1, server.begins.set).start()
    run(store.leave(request, None, clock.now() + 5))
    assert server.done == ["Txn", "DeleteRange"], "withdrawn before it was done"
    run(etcd.close())
