"""A ZooKeeper that is too old is refused in one line, with the version that its members tell."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import UnimplementedError  # type: ignore[import-untyped]

from fencelock import BackendUnavailable
from fencelock.backends.zookeeper.address import parse
from fencelock.backends.zookeeper.ensemble import Ensemble
from fencelock.runtime.asyncio import AsyncioRuntime
from fencelock.runtime.base import Runtime
from fencelock.runtime.blocking import BlockingRuntime, run

SRVR = "Zookeeper version: {}, built on 2019-03-06\nLatency min/avg/max: 0/0/0\nMode: standalone\n"
FORBIDDEN = "srvr is not executed because it is not in the whitelist.\n"


@contextmanager
def member(answer: str) -> Iterator[str]:
    """Be a member that answers every word with this; yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with listener.accept()[0] as sock:
                assert sock.recv(100) == b"srvr"
                sock.sendall(answer.encode())

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield "{}:{}".format(*listener.getsockname())
        thread.join(5.0)


class Results:
    """Every answer is that the server does not know the request."""

    async def of(self, *_: Any) -> None:
        raise UnimplementedError


def refusal(flavour: str, *hosts: str) -> BackendUnavailable:
    """Ask for something, and return the error."""

    async def ask(runtime: Runtime) -> BackendUnavailable:
        ensemble = Ensemble(parse(f"zookeeper://{','.join(hosts)}"), runtime, Results())  # type: ignore[arg-type]
        with pytest.raises(BackendUnavailable) as caught:
            await ensemble.result(SimpleNamespace(), object(), runtime.now() + 5.0)  # type: ignore[arg-type]
        return caught.value

    async def in_a_loop() -> BackendUnavailable:
        return await ask(AsyncioRuntime())

    return asyncio.run(in_a_loop()) if flavour == "asyncio" else run(ask(BlockingRuntime()))


@pytest.mark.parametrize("flavour", ["blocking", "asyncio"])
def test_the_version_found_is_named(flavour: str) -> None:
    with member(SRVR.format("3.4.13-5")) as host:
        error = refusal(flavour, host)
    assert str(error) == (
        f"zookeeper: {host}: it is ZooKeeper 3.4.13, and 3.5 or newer is needed: upgrade it"
    )
    assert not error.transient


def test_the_oldest_member_is_named() -> None:
    with member(SRVR.format("3.8.4")) as new, member(SRVR.format("3.4.14")) as old:
        assert "it is ZooKeeper 3.4.14, and 3.5" in str(refusal("blocking", new, old))


@pytest.mark.parametrize("answer", [FORBIDDEN, SRVR.format("3.8.4"), ""])
def test_where_no_member_tells_an_old_one(answer: str) -> None:
    with member(answer) as host:
        error = refusal("blocking", host)
    assert "ZooKeeper 3.5 or newer is needed: upgrade it (`fencelock doctor`" in str(error)
    assert not error.transient
