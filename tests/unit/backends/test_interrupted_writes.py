"""Ctrl-C in the moment in which a request has been sent and nobody has said so yet.

The store will do it, perhaps later than what is to undo it: so its answer is waited for first.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Coroutine, Iterator
from types import FrameType
from typing import Any

import pytest

from fencelock.backends.etcd import address as etcd
from fencelock.backends.etcd.blocking import BlockingWire as EtcdWire
from fencelock.runtime import clock
from fencelock.runtime.blocking import run


@pytest.fixture
def member() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        yield server


def place(member: socket.socket) -> str:
    return f"127.0.0.1:{member.getsockname()[1]}"


def received(member: socket.socket, end: bytes) -> bytes:
    """Return what the member gets, up to and with `end`."""
    with member.accept()[0] as link:
        link.settimeout(10)
        data = b""
        while not data.endswith(end):
            data += link.recv(65536)
        return data


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


def test_etcd_waits_for_the_answer(member: socket.socket) -> None:
    wire = EtcdWire(etcd.parse(f"etcd://{place(member)}"))
    interrupted_when_sent(wire._call(0, "/etcdserverpb.KV/Txn", b"put it there", clock.now() + 5))
    assert b"put it there" in received(member, b"there")
    assert len(wire._interrupted) == 1
    run(wire.close())
