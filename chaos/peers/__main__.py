"""Try each peer on a real server, without faults: it is granted, excludes, times out and releases.

It comes through proxies, and `chaos.peers.outside` must know its requests: one for each attempt, renewals
where it renews, and none of these in a release."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from tools.servers import start

from chaos.subject import Ask, load
from chaos.subjects import SUBJECTS, Library
from fencelock.testing import TCPProxy

SERVERS = {"redis": "redis", "redlock": "redlock", "zookeeper": "zookeeper3"}


def main(words: list[str]) -> int:
    """Return 0 if all that were tried do what a lock does."""
    failed = 0
    for word, peer in SUBJECTS.items():
        if not peer.is_peer:
            continue
        for backend in sorted(peer.backends) if not words or word in words else ():
            for factory in peer.factories:
                why = _tried(peer, factory, backend)
                failed += bool(why)
                print(f"{'failed' if why else 'works ':6} {factory} on {backend} {why}", flush=True)
    return 1 if failed else 0


def _tried(peer: Library, factory: str, backend: str) -> str:
    with start(SERVERS[backend]) as group, asyncio.Runner() as runner, _tapped(group) as (url, heard):

        def call(function: Callable[..., Any], *args: Any) -> Any:
            async def awaited() -> Any:
                found = function(*args)
                return await found if asyncio.iscoroutine(found) else found

            return runner.run(awaited())

        try:
            one, other = (load(factory)(url, name) for name in ("one", "other"))
            _drill(one, other, call)
            _listen(one, call, peer, heard)
            call(one.close)
            call(other.close)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return ""


def _drill(one: Any, other: Any, call: Callable[..., Any]) -> None:
    ask = Ask("job", "exclusive", None, 2.0, 0.3)
    lease = call(one.acquire, ask)
    assert lease is not None, "not granted though it was free"
    assert lease.is_held(), "granted and not held"
    assert 0 < lease.remaining() <= ask.ttl, f"{lease.remaining()} s remaining"
    began = time.monotonic()
    assert call(other.acquire, ask) is None, "granted twice"
    assert time.monotonic() - began < 3, "the timeout was not honoured"
    call(lease.release)
    assert not lease.is_held(), "released and held"
    again = call(other.acquire, ask)
    assert again is not None, "not granted after a release"
    call(again.release)


@contextmanager
def _tapped(group: Any) -> Iterator[tuple[str, list[bytes]]]:
    """The URL by way of proxies, and a list that all requests go into."""
    heard: list[bytes] = []
    url = str(group.url)
    with ExitStack() as stack:
        for server in group.members:
            proxy = stack.enter_context(TCPProxy(server.host, server.port))
            proxy.fail(match=partial(_hear, heard))
            url = url.replace(server.address, f"{proxy.host}:{proxy.port}")
        yield url, heard


def _hear(heard: list[bytes], data: bytes) -> bool:
    """Listen, and never strike."""
    heard.append(data)
    return False


def _listen(one: Any, call: Callable[..., Any], peer: Library, heard: list[bytes]) -> None:
    assert peer.is_acquire is not None, "nobody said how it asks for a lock"
    heard.clear()
    lease = call(one.acquire, Ask("job", "exclusive", None, 2.0, 0.3))
    assert any(map(peer.is_acquire, heard)), "its acquire is not known on the wire"
    time.sleep(0.1)  # a quorum does not wait for those that are late
    heard.clear()
    if peer.is_renewal is not None:
        time.sleep(2.0)
        assert any(map(peer.is_renewal, heard)), "its renewal is not known on the wire"
        assert not any(map(peer.is_acquire, heard)), "its renewal is taken for an acquire"
        heard.clear()
    call(lease.release)
    assert heard, "its release was not heard"
    assert not any(map(peer.is_acquire, heard)), "its release is taken for an acquire"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
