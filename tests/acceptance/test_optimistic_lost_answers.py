"""A register's write whose answer is lost: recognised, or said to be unknown, but never answered wrongly."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from redis_desk import proxied
from register_desk import Held
from tools.servers import start

from fencelock import BackendUnavailable
from fencelock.optimistic import Register, Updated

MARKER = b"marker-7f3a19"


@pytest.fixture(scope="module", params=["redis", "etcd", "consul", "zookeeper"])
def store(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    with start(request.param) as group:
        yield request.param, str(group.url)


def is_the_write(data: bytes) -> bool:
    return MARKER in data or base64.b64encode(MARKER) in data


@pytest.mark.parametrize("then", ["reset", "hang"])
def test_it_is_never_called_a_conflict(store: tuple[str, str], flavour: str, then: Any) -> None:
    kind, url = store
    with proxied(url) as (proxy, through):
        held = Held(flavour, through, f"lost-{flavour}-{then}", timeout=8)
        version = held.set(b"before", 0).expect().version
        with proxy.swallow(1, then=then, match=is_the_write) as fault:
            if kind == "redis":  # the id of the write tells
                assert isinstance(held.set(MARKER, version), Updated)
            else:
                with pytest.raises(BackendUnavailable, match="is not known: read it"):
                    held.set(MARKER, version)
            assert fault.wait() and fault.struck == 1
        assert held.read().value == MARKER
        held.close()


def test_one_that_was_overwritten_since_is_unknown(store: tuple[str, str], flavour: str) -> None:
    """Ours was done, then somebody else's: to call that a conflict would make us do ours again."""
    _, url = store
    name = f"overwritten-{flavour}"
    with proxied(url) as (proxy, through), Register(url, name) as other:
        held = Held(flavour, through, name, timeout=8)
        version = held.set(b"before", 0).expect().version

        def overwrite(data: bytes) -> bool:
            return is_the_write(data)

        with proxy.swallow(1, then="hang", match=overwrite):
            import threading
            import time

            def meanwhile() -> None:
                for _ in range(500):
                    found = other.read()
                    if found.value == MARKER:
                        other.set(b"after", found.version)
                        return
                    time.sleep(0.002)

            thread = threading.Thread(target=meanwhile)
            thread.start()
            with pytest.raises(BackendUnavailable, match="is not known: read it"):
                held.set(MARKER, version)
            thread.join()
        assert held.read().value == b"after"
        held.close()


def test_a_server_that_is_gone(store: tuple[str, str], flavour: str) -> None:
    with proxied(store[1]) as (proxy, through):
        held = Held(flavour, through, f"gone-{flavour}", timeout=1)
        version = held.set(b"x", held.read().version).expect().version
        proxy.refuse()
        proxy.reset()
        with pytest.raises(BackendUnavailable):
            held.read()
        with pytest.raises(BackendUnavailable):
            held.set(b"y", version)
        proxy.accept()
        held.close()
