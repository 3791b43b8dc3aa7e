"""Asking several servers: in turn, until the deadline, and whether a question was sent before."""

from __future__ import annotations

from typing import Any

import pytest

from fencelock.errors import BackendUnavailable
from fencelock.net.failures import Disconnected, WrongProtocol
from fencelock.net.retry import Servers
from fencelock.runtime.base import Runtime

from .peer import FAILURES, FLAVOURS, drive, soon


class Attempts:
    """Fails as it is told, one attempt after the other."""

    def __init__(self, *failures: BaseException | None) -> None:
        self.failures = list(failures)
        self.asked: list[str] = []

    async def __call__(self, endpoint: str, until: float) -> str:
        self.asked.append(endpoint)
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure
        return endpoint


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_next_server_is_asked_and_stays_so(flavour: str) -> None:
    async def main(runtime: Runtime) -> None:
        servers = Servers(runtime, FAILURES, ("a:1", "b:2", "c:3"), tls=False)
        transient = FAILURES.unavailable("busy")
        attempt = Attempts(Disconnected(), ConnectionRefusedError(), TimeoutError(), transient)
        assert await servers.ask(attempt, soon()) == ("b:2", True)
        assert attempt.asked == ["a:1", "b:2", "c:3", "a:1", "b:2"]
        assert await servers.ask(Attempts(), soon()) == ("b:2", False)
        assert servers.current == "b:2"

    drive(flavour, main)


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (FAILURES.unavailable("no right", transient=False), "no right"),
        (WrongProtocol("x"), "a:1: it speaks something else"),
    ],
)
def test_what_lasts_is_not_tried_again(failure: BaseException, words: str) -> None:
    async def main(runtime: Runtime) -> None:
        servers = Servers(runtime, FAILURES, ("a:1", "b:2"), tls=False)
        attempt = Attempts(failure)
        with pytest.raises(BackendUnavailable, match=words):
            await servers.ask(attempt, soon())
        assert attempt.asked == ["a:1"]

    drive("blocking", main)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_first_failure_is_told_at_the_deadline(flavour: str) -> None:
    async def main(runtime: Runtime) -> None:
        servers = Servers(runtime, FAILURES, ("a:1",), tls=False)
        attempt = Attempts(ConnectionRefusedError(), *[Disconnected() for _ in range(1000)])
        with pytest.raises(BackendUnavailable, match="a:1: connection refused"):
            await servers.ask(attempt, soon(0.12))
        assert len(attempt.asked) < 1000
        with pytest.raises(BackendUnavailable, match="a:1: no answer in time"):
            await servers.ask(attempt, soon(-1))

    drive(flavour, main)


def test_a_client_that_is_closed_asks_no_more() -> None:
    async def main(runtime: Runtime) -> None:
        servers = Servers(runtime, FAILURES, ("a:1",), tls=False)

        async def attempt(endpoint: str, until: float) -> Any:
            servers.close()
            raise Disconnected

        with pytest.raises(BackendUnavailable, match="the client is closed"):
            await servers.ask(attempt, soon())

    drive("blocking", main)


def test_mistakes_and_cancellations_pass_through() -> None:
    async def main(runtime: Runtime) -> None:
        servers = Servers(runtime, FAILURES, ("a:1",), tls=False)
        for kind in (TypeError, KeyboardInterrupt):
            with pytest.raises(kind):
                await servers.ask(Attempts(kind()), soon())

    drive("blocking", main)


def test_what_a_broken_connection_may_mean() -> None:
    plain = FAILURES.unreachable("h:1", ConnectionResetError(), tls=False)
    sealed = FAILURES.unreachable("h:1", Disconnected(), tls=True)
    assert "perhaps it wants TLS" in str(plain)
    assert "perhaps it wants a certificate" in str(sealed)
    assert "no route to host" in str(FAILURES.unreachable("h:1", OSError(113, "No route to host"), tls=True))
    assert plain.transient and sealed.transient
