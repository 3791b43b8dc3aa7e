"""A connection that comes up while the client is being closed is closed as well."""

from __future__ import annotations

import socket

import pytest

from fencelock import BackendUnavailable
from fencelock.backends.redis.blocking import BlockingWire
from fencelock.backends.redis.server import Server
from fencelock.backends.redis.topology import One
from fencelock.runtime.blocking import run


def test_a_dial_that_ends_after_the_close_leaves_no_socket() -> None:
    ours, theirs = socket.socketpair()
    server = Server(host="nowhere")
    wire = BlockingWire(One(server))

    def dial(timeout: float) -> socket.socket:
        run(wire.close())
        return ours

    server.dial = dial  # type: ignore[method-assign]
    with theirs, pytest.raises(BackendUnavailable, match="closed"):
        wire.dial(server, 1.0)
    assert ours.fileno() == -1
