"""Many renewals on one server: scripts in turn, two under way, and what is known when something fails."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import hiredis
import pytest

from fencelock import BackendUnavailable
from fencelock.backends.base import Origin, Outcome, Renewal, Request
from fencelock.backends.redis import CHUNK, RedisBackend
from fencelock.backends.redis.keys import Places
from fencelock.backends.redis.renewals import outcomes_of, renewing
from fencelock.backends.redis.server import Server
from fencelock.runtime import clock
from fencelock.runtime.asyncio import AsyncioRuntime
from fencelock.runtime.blocking import BlockingRuntime, run

SCRIPTS = 6
COUNT = (SCRIPTS - 1) * CHUNK + 7
SIZES = [CHUNK] * (SCRIPTS - 1) + [7]
UNKNOWN_SCRIPT = b"-NOSCRIPT No matching script.\r\n"
Answer = Callable[["FakeServer", int], bytes | None]


class FakeServer(threading.Thread):
    """Answers scripts, one at a time; `answer` tells how, by the number of the script; `None` hangs up."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(daemon=True)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        self.answer = answer
        self.sizes: list[int] = []
        self.most_waiting = 0
        self.start()

    def run(self) -> None:
        while True:
            try:
                connection, _ = self.listening.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        reader = hiredis.Reader()
        with connection, suppress(ConnectionError):
            while data := connection.recv(1 << 20):
                reader.feed(data)
                waiting = []
                while (request := reader.gets()) is not False:
                    waiting.append(request)
                self.most_waiting = max(self.most_waiting, len(waiting))
                for words in waiting:
                    reply = self.reply(words)
                    if reply is None:
                        return
                    connection.sendall(reply)

    def reply(self, words: Sequence[bytes]) -> bytes | None:
        if words[0].upper() not in {b"EVALSHA", b"EVAL"}:
            return b"+OK\r\n"
        self.sizes.append(int(words[2]))
        return self.answer(self, len(self.sizes) - 1)

    def all_renewed(self) -> bytes:
        return b"*1\r\n:%d\r\n" % self.sizes[-1]


@pytest.fixture
def serving() -> Iterator[Callable[[Answer], FakeServer]]:
    servers: list[FakeServer] = []

    def serve(answer: Answer) -> FakeServer:
        servers.append(FakeServer(answer))
        return servers[-1]

    yield serve
    for server in servers:
        server.listening.shutdown(socket.SHUT_RDWR)
        server.listening.close()


def renewals(count: int) -> Sequence[Renewal]:
    origin = Origin("client", "host", 1)
    return [
        Renewal(Request(f"{n:032x}", f"job-{n}", "exclusive", 1, 30.0, origin, None), n, 30.0, extend=True)
        for n in range(count)
    ]


async def renewed(server: FakeServer, runtime: Any, seconds: float) -> Sequence[Outcome]:
    backend = RedisBackend(Server(host="127.0.0.1", port=server.port))
    backend.open(runtime, "", lambda owner, reason: None)
    try:
        return await backend.renew(renewals(COUNT), deadline=clock.now() + seconds)
    finally:
        await backend.close()


@pytest.fixture(params=["blocking", "asyncio"])
def renew(request: pytest.FixtureRequest) -> Callable[..., Sequence[Outcome]]:
    def call(server: FakeServer, seconds: float = 20.0) -> Sequence[Outcome]:
        if request.param == "blocking":
            return run(renewed(server, BlockingRuntime(), seconds))

        async def main() -> Sequence[Outcome]:
            return await renewed(server, AsyncioRuntime(), seconds)

        return asyncio.run(main())

    return call


def test_scripts_in_turn_and_never_more_than_two_under_way(serving: Any, renew: Any) -> None:
    server = serving(lambda server, number: server.all_renewed())
    assert renew(server) == [Outcome.RENEWED] * COUNT
    assert server.sizes == SIZES
    assert server.most_waiting <= 2


def test_with_little_time_one_is_under_way(serving: Any, renew: Any) -> None:
    server = serving(lambda server, number: server.all_renewed())
    assert renew(server, 1.0) == [Outcome.RENEWED] * COUNT
    assert server.sizes == SIZES
    assert server.most_waiting == 1


@pytest.mark.parametrize("lost", range(1, SCRIPTS))
def test_a_lost_connection_costs_no_more_than_asking_again(serving: Any, renew: Any, lost: int) -> None:
    server = serving(lambda server, number: None if number == lost else server.all_renewed())
    assert renew(server) == [Outcome.RENEWED] * COUNT
    # One more is the rule; one that was under way behind it may have been read, and come again.
    assert len(server.sizes) in {SCRIPTS + 1, SCRIPTS + 2}


@pytest.mark.parametrize("unknown", range(SCRIPTS))
def test_a_server_that_forgot_the_script_gets_it_again(serving: Any, renew: Any, unknown: int) -> None:
    server = serving(lambda server, number: UNKNOWN_SCRIPT if number == unknown else server.all_renewed())
    assert renew(server) == [Outcome.RENEWED] * COUNT


def test_after_a_failure_nobody_is_asked_and_nothing_is_known(serving: Any, renew: Any) -> None:
    server = serving(lambda server, number: server.all_renewed() if number < 2 else b"-ERR broken\r\n")
    known = 2 * CHUNK
    assert renew(server) == [Outcome.RENEWED] * known + [Outcome.UNKNOWN] * (COUNT - known)
    assert set(server.sizes) == {CHUNK}  # the last was not sent


def test_a_server_that_answers_nothing_is_an_error(serving: Any, renew: Any) -> None:
    with pytest.raises(BackendUnavailable, match="broken"):
        renew(serving(lambda server, number: b"-ERR broken\r\n"))


def test_those_that_were_not_renewed_are_told_by_their_places() -> None:
    assert outcomes_of([0]) == []
    assert outcomes_of([2, 1, 0, 3, 1, 5, 0]) == [
        Outcome.LOST,
        Outcome.RENEWED,
        Outcome.HELD,
        Outcome.RENEWED,
        Outcome.LOST,
    ]


def words_of(asked: Sequence[Renewal]) -> Sequence[bytes]:
    reader = hiredis.Reader()
    reader.feed(renewing(asked, Places("")).packed)
    words: Sequence[bytes] = reader.gets()  # type: ignore[assignment]
    return words[3 + len(asked) :]


def test_a_common_ttl_is_sent_once() -> None:
    one, two = renewals(2)
    first, second = ([each.request.owner.encode(), b"%016d" % each.token] for each in (one, two))
    assert words_of([one, two]) == [b"30000000", *first, *second]
    other = two._replace(ttl=1.5)
    assert words_of([one, other]) == [b"", *first, b"30000000", *second, b"1500000"]
    look = two._replace(extend=False)
    assert words_of([one, look]) == [b"", *first, b"30000000", *second, b""]
    assert words_of([look]) == [b"", *second, b""]


def test_an_exact_ttl_is_marked() -> None:
    one, two = renewals(2)
    first, second = ([each.request.owner.encode(), b"%016d" % each.token] for each in (one, two))
    exact = two._replace(exact=True)
    assert words_of([exact]) == [b"=30000000", *second]
    assert words_of([one, exact]) == [b"", *first, b"30000000", *second, b"=30000000"]
    over = exact._replace(ttl=-0.5)
    assert words_of([over]) == [b"=0", *second]
