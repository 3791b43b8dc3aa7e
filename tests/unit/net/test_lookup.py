"""Looking up names: by the deadline, one thread for each name, and no thread for an address."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from fencelock.net.connecting import Connector, Target
from fencelock.net.lookup import Lookups
from fencelock.runtime.base import Runtime

from .peer import FLAVOURS, LOOPS, drive, peer, soon

resolve = socket.getaddrinfo


class Names:
    """A name service that does not answer until it may."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers = threading.Event()

    def __call__(self, host: str, port: int, **options: Any) -> Any:
        if options.get("flags"):
            return resolve(host, port, **options)
        self.asked.append(host)
        if host == "slow":
            self.answers.wait(20)
        return resolve("127.0.0.1", port, **options)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    names = Names()
    monkeypatch.setattr(socket, "getaddrinfo", names)
    yield names
    names.answers.set()


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_slow_name_service_does_not_move_the_deadline(flavour: str, names: Names) -> None:
    async def main(runtime: Runtime) -> None:
        lookups = Lookups(runtime)
        for _ in range(3):
            with pytest.raises(TimeoutError, match="no address for slow in time"):
                await lookups.find("slow", 1, soon(0.02))
        assert names.asked == ["slow"], "one thread for a name"
        (other,) = await lookups.find("other", 1, soon())
        assert other.address == ("127.0.0.1", 1)
        names.answers.set()
        (slow,) = await lookups.find("slow", 1, soon())
        assert slow.address == ("127.0.0.1", 1)

    drive(flavour, main)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_an_address_is_not_looked_up(flavour: str, names: Names) -> None:
    async def main(runtime: Runtime) -> None:
        assert [one.family for one in await Lookups(runtime).find("::1", 1, soon())] == [socket.AF_INET6]
        assert [one.family for one in await Lookups(runtime).find("127.0.0.1", 1, 0.0)] == [socket.AF_INET]

    drive(flavour, main)
    assert names.asked == []


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_name_that_is_none(flavour: str) -> None:
    async def main(runtime: Runtime) -> None:
        for name in ("no-such-host.invalid", "a" * 64 + ".invalid"):
            with pytest.raises(OSError, match=r"."):
                await Lookups(runtime).find(name, 1, soon())

    drive(flavour, main)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_lookup_that_is_cancelled_ends_by_itself(loop: str, names: Names) -> None:
    async def main(runtime: Runtime) -> None:
        lookups = Lookups(runtime)
        tasks = [asyncio.create_task(lookups.find("slow", 1, soon())) for _ in range(5)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.gather(tasks[0], return_exceptions=True)
        names.answers.set()
        for found in await asyncio.gather(*tasks[1:]):
            assert found[0].address == ("127.0.0.1", 1)

    drive(loop, main)
    assert names.asked == ["slow"]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_address_that_answers_is_used(flavour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name may have several, and nothing listens on the first."""
    with peer() as server:
        port = int(server.endpoint.rpartition(":")[2])

        def found(host: str, port: int, **options: Any) -> Any:
            if options.get("flags"):
                return resolve(host, port, **options)
            return resolve("::1", port, **options) + resolve("127.0.0.1", port, **options)

        monkeypatch.setattr(socket, "getaddrinfo", found)

        async def main(runtime: Runtime) -> None:
            stream = await Connector(runtime).open(Target(f"somewhere:{port}"), soon())
            stream.close()

        drive(flavour, main)
