"""Watches on Consul, without one: which queries are asked, whom their answers wake, and when they end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from fencelock.backends.consul.address import Address
from fencelock.backends.consul.connection import MOST, Call, Consul
from fencelock.backends.consul.protocol import Answer
from fencelock.backends.consul.waiting import Watcher
from fencelock.backends.ordered.places import Eye
from fencelock.errors import BackendUnavailable
from fencelock.net.failures import Disconnected
from fencelock.runtime.asyncio import AsyncioRuntime


class PaperQuery:
    """A query that is answered by the test."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.reply: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def hang_up(self) -> None:
        if not self.reply.done():
            self.reply.cancel()


class PaperConsul(Consul):
    """Notes what is asked."""

    def __init__(self, runtime: AsyncioRuntime) -> None:
        super().__init__(runtime, Address(("h:1",)))
        self.queries: list[PaperQuery] = []
        self.fails = False

    async def query(self, path: str, call: Call, deadline: float) -> Answer:
        query = PaperQuery(path)
        try:
            call.begin(query)  # type: ignore[arg-type]
            if self.fails:
                raise Disconnected
            self.queries.append(query)
            return await query.reply
        except (asyncio.CancelledError, Disconnected):
            raise BackendUnavailable(backend="consul", detail="it ended") from None
        finally:
            call.end()

    @property
    def asked(self) -> list[str]:
        return [query.path for query in self.queries]

    def live(self) -> list[PaperQuery]:
        return [query for query in self.queries if not query.reply.done()]


async def turn() -> None:
    """Let all that can happen do so."""
    for _ in range(10):
        await asyncio.sleep(0)


async def answer(consul: PaperConsul, status: int, index: int, *keys: str) -> None:
    """Answer the latest query."""
    body = json.dumps([{"Key": key} for key in keys]).encode()
    consul.queries[-1].reply.set_result(Answer(status, {b"x-consul-index": b"%d" % index}, body, True))
    await turn()


async def watch(watcher: Watcher, eye: Eye, *keys: str, moves: bool = False, index: int = 5) -> None:
    watcher.watch(eye, "p/", keys, moves, index)
    await turn()


Body = Callable[[PaperConsul, Watcher], Awaitable[None]]


def on_paper(body: Body) -> Callable[[], None]:
    """Run a test on a loop, with a watcher that is closed at its end."""

    async def main() -> None:
        runtime = AsyncioRuntime()
        consul = PaperConsul(runtime)
        watcher = Watcher(runtime, consul)
        await body(consul, watcher)
        watcher.end()
        await turn()
        assert not consul.live(), "all queries ended"
        await watcher.close()

    def test() -> None:
        asyncio.run(main())

    return test


@on_paper
async def test_a_key_that_leaves_wakes(consul: PaperConsul, watcher: Watcher) -> None:
    eye = Eye()
    await watch(watcher, eye, "p/a")
    assert consul.asked == ["/v1/kv/p/a?index=5&wait=30s"]
    await answer(consul, 200, 6, "p/a")  # it has moved
    assert not eye.stirred
    assert consul.asked[1:] == ["/v1/kv/p/a?index=6&wait=30s"]
    await answer(consul, 404, 7)
    assert eye.called
    assert len(consul.queries) == 2
    assert not watcher._watches


@on_paper
async def test_a_key_that_moves_wakes_a_watch_for_moves(consul: PaperConsul, watcher: Watcher) -> None:
    eye = Eye()
    await watch(watcher, eye, "p/a", moves=True)
    await answer(consul, 200, 5, "p/a")  # its time was over
    assert not eye.stirred
    await answer(consul, 200, 6, "p/a")
    assert eye.stirred
    assert not eye.called


@on_paper
async def test_an_index_that_goes_back_begins_anew(consul: PaperConsul, watcher: Watcher) -> None:
    eye = Eye()
    await watch(watcher, eye, "p/a", index=100)
    await answer(consul, 200, 3, "p/a")
    assert consul.asked[-1] == "/v1/kv/p/a?index=0&wait=30s"
    await answer(consul, 200, 3, "p/a")
    assert consul.asked[-1] == "/v1/kv/p/a?index=3&wait=30s"
    assert not eye.called


@on_paper
async def test_any_of_several_is_watched_by_their_list(consul: PaperConsul, watcher: Watcher) -> None:
    eye = Eye()
    await watch(watcher, eye, "p/a", "p/b")
    assert consul.asked == ["/v1/kv/p/?keys&index=5&wait=30s"]
    listed = Answer(200, {b"x-consul-index": b"6"}, b'["p/b", "p/c"]', True)
    consul.queries[0].reply.set_result(listed)
    await turn()
    assert eye.called


@on_paper
async def test_what_is_watched_already_is_not_asked_for_again(consul: PaperConsul, watcher: Watcher) -> None:
    eye, other = Eye(), Eye()
    for one in (eye, other, eye, other):
        await watch(watcher, one, "p/a")
    assert len(consul.queries) == 1
    watcher.unwatch(eye)
    await turn()
    assert consul.live()
    watcher.unwatch(other)
    watcher.unwatch(other)
    await turn()
    assert not consul.live()


@on_paper
async def test_a_watch_that_ends_before_it_is_asked_is_not_asked(
    consul: PaperConsul, watcher: Watcher
) -> None:
    eye = Eye()
    watcher.watch(eye, "p/", ["p/a"], False, 5)
    watcher.unwatch(eye)
    await turn()
    assert not consul.queries


@pytest.mark.parametrize("status", [500, 200])
def test_a_query_that_fails_ends_quietly_and_is_begun_again(status: int) -> None:
    @on_paper
    async def test(consul: PaperConsul, watcher: Watcher) -> None:
        eye = Eye()
        await watch(watcher, eye, "p/a")
        consul.queries[0].reply.set_result(Answer(status, {}, b"no JSON", True))
        await turn()
        assert not eye.stirred
        assert not watcher._watches
        await watch(watcher, eye, "p/a")
        assert len(consul.queries) == 2

    test()


@on_paper
async def test_a_connection_that_fails_ends_a_watch_quietly(consul: PaperConsul, watcher: Watcher) -> None:
    eye = Eye()
    consul.fails = True
    await watch(watcher, eye, "p/a")
    assert not watcher._watches
    assert not eye.stirred
    consul.fails = False
    await watch(watcher, eye, "p/a")
    assert len(consul.queries) == 1


@on_paper
async def test_there_are_so_many_queries_and_no_more(consul: PaperConsul, watcher: Watcher) -> None:
    eyes = [Eye() for _ in range(MOST + 3)]
    for number, eye in enumerate(eyes):
        await watch(watcher, eye, f"p/{number}")
    assert len(consul.queries) == MOST
    watcher.unwatch(eyes[0])
    await watch(watcher, eyes[-1], f"p/{MOST + 2}")
    assert len(consul.queries) == MOST + 1


@on_paper
async def test_one_of_the_same_client_needs_no_query(consul: PaperConsul, watcher: Watcher) -> None:
    eye, other = Eye(), Eye()
    watcher.watch_near(eye, "p/a")
    watcher.watch_near(eye, "p/a")
    watcher.watch_near(other, "p/a")
    watcher.unwatch(other)
    watcher.left("p/b")
    assert not eye.called
    watcher.left("p/a")
    assert eye.called
    assert not other.called
    assert not consul.queries
    assert not watcher._near
