"""Requests under a lock: Starlette and FastAPI, spoken to by httpx."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Body, FastAPI, Query
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from fencelock import AsyncLease, BackendUnavailable, ConfigurationError, LeaseLost
from fencelock.contrib import fastapi as ours
from fencelock.contrib.starlette import client_of, fencelock_lifespan, locked

PATIENCE = 30.0


@asynccontextmanager
async def served(app: Any, through: Any = None) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(through or app), base_url="http://test") as http,
    ):
        yield http


class Work:
    """What endpoints do: they begin, and end when they may."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.may_end = asyncio.Event()
        self.tokens: list[int] = []

    async def __call__(self, lease: AsyncLease) -> dict[str, Any]:
        self.begun.append(lease.name)
        self.tokens.append(lease.token)
        await asyncio.wait_for(self.may_end.wait(), PATIENCE)
        self.ended.append(lease.name)
        return {"name": lease.name, "token": lease.token}


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.002)


def starlette_app(work: Work, **terms: Any) -> Starlette:
    @locked("invoice:{id}", **terms)
    async def pay(request: Request, lease: AsyncLease) -> JSONResponse:
        return JSONResponse(await work(lease))

    return Starlette(
        routes=[Route("/invoices/{id:int}/pay", pay, methods=["POST"])],
        lifespan=fencelock_lifespan("memory://"),
    )


def fastapi_app(work: Work, **terms: Any) -> FastAPI:
    app = FastAPI(lifespan=fencelock_lifespan("memory://"))

    wanted = ours.lease("invoice:{id}", **terms)

    @app.post("/invoices/{id}/pay")
    async def pay(id: int, lease: AsyncLease = wanted) -> Any:  # noqa: A002
        return await work(lease)

    return app


APPS = [starlette_app, fastapi_app]
both = pytest.mark.parametrize("make", APPS, ids=["starlette", "fastapi"])
Make = Callable[..., Any]


def run(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 2 * PATIENCE))  # type: ignore[arg-type]


@both
def test_one_at_a_time_for_a_name_and_all_get_their_turn(make: Make) -> None:
    async def story() -> None:
        work = Work()
        app = make(work)
        async with served(app) as http:
            paths = ["/invoices/42/pay", "/invoices/042/pay", "/invoices/7/pay"]
            asked = [asyncio.create_task(http.post(path)) for path in paths]
            await until(lambda: len(work.begun) == 2)
            await until_waiting(app, "invoice:42")
            assert sorted(work.begun) == ["invoice:42", "invoice:7"], "042 is 42"
            work.may_end.set()
            answers = await asyncio.gather(*asked)
            assert [answer.status_code for answer in answers] == [200] * 3
            assert {answer.json()["name"] for answer in answers} == {"invoice:42", "invoice:7"}
            assert len(set(work.tokens)) == 3
            assert await app.state.fencelock.list() == []

    run(story)


async def until_waiting(app: Any, name: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while not (await app.state.fencelock.inspect(name)).waiters:
            await asyncio.sleep(0.002)


@both
@pytest.mark.parametrize("status", [423, 409])
def test_not_in_time_is_an_answer_that_says_when_to_come_again(make: Make, status: int) -> None:
    async def story() -> None:
        work = Work()
        async with served(make(work, timeout=0, status=status, retry_after=1.2)) as http:
            first = asyncio.create_task(http.post("/invoices/42/pay"))
            await until(lambda: work.begun)
            second = await http.post("/invoices/42/pay")
            assert (second.status_code, second.headers["retry-after"]) == (status, "2")
            assert "somebody else is at it" in second.text
            work.may_end.set()
            assert (await first).status_code == 200
            assert (await http.post("/invoices/42/pay")).status_code == 200

    run(story)


@both
def test_a_lease_that_is_lost_cancels_the_endpoint_and_is_a_503(make: Make) -> None:
    async def story() -> None:
        work = Work()
        app = make(work, ttl=0.3)
        async with served(app) as http:
            asked = asyncio.create_task(http.post("/invoices/42/pay"))
            await until(lambda: work.begun)
            await app.state.fencelock.force_release("invoice:42")
            answer = await asked
            assert answer.status_code == 503 and answer.headers["retry-after"] == "1"
            assert "the lock was lost" in answer.text
            assert work.ended == []
            work.may_end.set()
            assert (await http.post("/invoices/42/pay")).status_code == 200

    run(story)


@both
def test_a_backend_that_is_down_is_a_503(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        work = Work()
        app = make(work)
        async with served(app) as http:
            backend = app.state.fencelock._session.backend

            async def down(*_: Any, **__: Any) -> Any:
                raise BackendUnavailable(backend="memory", detail="down", transient=False)

            monkeypatch.setattr(backend, "acquire", down)
            answer = await http.post("/invoices/42/pay")
            assert answer.status_code == 503 and answer.headers["retry-after"] == "1"
            assert "down" not in answer.text, "what went wrong inside is not for the world"
            assert work.begun == []

    run(story)


@both
def test_work_that_was_done_stands_though_the_release_fails(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        work = Work()
        work.may_end.set()
        app = make(work)
        async with served(app) as http:

            async def down(*_: Any, **__: Any) -> Any:
                raise BackendUnavailable(backend="memory", detail="down", transient=False)

            with monkeypatch.context() as patch:
                patch.setattr(app.state.fencelock._session.backend, "release", down)
                answer = await http.post("/invoices/42/pay")
            assert answer.status_code == 200
            assert work.ended == ["invoice:42"]

    run(story)


def test_errors_of_the_endpoint_are_its_own() -> None:
    async def story() -> None:
        @locked("a")
        async def fails(request: Request) -> JSONResponse:
            raise BackendUnavailable(backend="redis", detail="of the endpoint")

        @locked("b")
        async def loses(request: Request) -> JSONResponse:
            raise LeaseLost(name="b", token=1, reason="it checked")

        app = Starlette(
            routes=[Route("/a", fails), Route("/b", loses)], lifespan=fencelock_lifespan("memory://")
        )
        async with served(app) as http:
            with pytest.raises(BackendUnavailable, match="of the endpoint"):
                await http.get("/a")
            assert (await http.get("/b")).status_code == 503
            assert await app.state.fencelock.list() == []

    run(story)


def test_values_of_the_query() -> None:
    async def story() -> None:
        @locked("stock:{shop}:{item}")
        async def take(request: Request, lease: AsyncLease) -> JSONResponse:
            return JSONResponse(lease.name)

        app = Starlette(routes=[Route("/{shop}", take)], lifespan=fencelock_lifespan("memory://"))
        async with served(app) as http:
            assert (await http.get("/a?item=b:c")).json() == "stock:a:b%3Ac"
            assert (await http.get("/a:b?item=c")).json() == "stock:a%3Ab:c"
            assert (await http.get("/a")).status_code == 400
            assert (await http.get("/a?item=1&item=2")).status_code == 400

    run(story)


def test_endpoints_on_threads_and_in_classes_and_in_mounted_applications() -> None:
    async def story() -> None:
        @locked("thread")
        def on_a_thread(request: Request, lease: AsyncLease) -> JSONResponse:
            return JSONResponse([lease.is_held(), threading.current_thread() is threading.main_thread()])

        class Page(HTTPEndpoint):
            @locked("page")
            async def get(self, request: Request) -> JSONResponse:
                return JSONResponse(len(await client_of(request).list()))

        inner = Starlette(routes=[Route("/page", Page)])
        routes = [Route("/thread", on_a_thread), Route("/page", Page), Mount("/inner", inner)]
        app = Starlette(routes=routes, lifespan=fencelock_lifespan("memory://"))
        async with served(app) as http:
            assert (await http.get("/thread")).json() == [True, False]
            assert (await http.get("/page")).json() == 1
            with pytest.raises(ConfigurationError, match="give it lifespan=fencelock_lifespan"):
                await http.get("/inner/page")  # httpx does not pass on what a lifespan yields: servers do
            inner.state.fencelock = app.state.fencelock
            assert (await http.get("/inner/page")).json() == 1

    run(story)


@pytest.mark.parametrize("framework", ["starlette", "fastapi"])
def test_a_thread_goes_on_when_its_lease_is_lost_and_the_answer_is_a_503(framework: str) -> None:
    may_end, ended = threading.Event(), threading.Event()
    begun: list[bool] = []

    def work(lease: AsyncLease) -> str:
        begun.append(lease.is_held())
        assert may_end.wait(PATIENCE)
        begun.append(lease.is_held())
        ended.set()
        return "done"

    async def story() -> None:
        app: Any
        if framework == "fastapi":
            app = FastAPI(lifespan=fencelock_lifespan("memory://"))
            wanted = ours.lease("a", ttl=0.3)
            app.get("/")(lambda lease=wanted: work(lease))
        else:
            page = locked("a", ttl=0.3)(lambda request, lease: JSONResponse(work(lease)))
            app = Starlette(routes=[Route("/", page)], lifespan=fencelock_lifespan("memory://"))
        async with served(app) as http:
            asked = asyncio.create_task(http.get("/"))
            await until(lambda: begun)
            await app.state.fencelock.force_release("a")
            assert (await asked).status_code == 503
            assert not ended.is_set()
            may_end.set()
            assert await asyncio.to_thread(ended.wait, PATIENCE)
            assert begun == [True, False]

    run(story)


def test_what_the_lifespan_yields_reaches_everyone_and_your_own_lifespan_runs_inside() -> None:
    async def story() -> None:
        seen = []

        @asynccontextmanager
        async def own(app: Any) -> AsyncIterator[dict[str, Any]]:
            seen.append(await app.state.fencelock.list())
            yield {"mine": 1}
            seen.append("ended")

        app = Starlette(lifespan=fencelock_lifespan("memory://", lifespan=own))
        async with app.router.lifespan_context(app) as state:
            assert state["mine"] == 1 and state["fencelock"] is app.state.fencelock
        assert seen == [[], "ended"]
        assert not hasattr(app.state, "fencelock")

    run(story)


def test_a_url_that_cannot_be_right_is_refused_at_the_start() -> None:
    async def story() -> None:
        app = Starlette(lifespan=fencelock_lifespan("nonsense"))
        with pytest.raises(ConfigurationError, match="'nonsense' is not a URL"):
            async with app.router.lifespan_context(app):
                pass

    run(story)


@pytest.mark.parametrize("make", [locked, ours.lease])
def test_bad_terms_are_refused_before_any_request(make: Callable[..., Any]) -> None:
    for terms in ({"ttl": -1}, {"timeout": "5"}, {"status": 200}, {"status": True}, {"retry_after": None}):
        with pytest.raises(ConfigurationError, match=next(iter(terms))):
            make("a", **terms)
    with pytest.raises(ConfigurationError, match="name="):
        make(7)


def test_fastapi_takes_values_as_the_endpoint_does() -> None:
    async def story() -> None:
        app = FastAPI(lifespan=fencelock_lifespan("memory://"))

        def of_the_body(order: Annotated[str, Body(embed=True)]) -> str:
            return f"order:{order.lower()}"

        @app.get("/stock/{shop}")
        async def stock(
            shop: str,
            number: int = 1,
            limit: int = Query(default=9),
            lease: Any = ours.lease("{shop}:{number}:{limit}"),  # noqa: B008
        ) -> str:
            return str(lease.name)

        @app.post("/orders")
        async def order(order: Annotated[str, Body(embed=True)], lease: Any = ours.lease(of_the_body)) -> Any:  # noqa: B008
            return lease.name

        @app.get("/both/{id}")
        def two(
            id: int,  # noqa: A002
            a: Annotated[AsyncLease, ours.lease("a:{id}")],
            b: Annotated[AsyncLease, ours.lease("b:{id}:{tenant}")],
        ) -> list[str]:
            return [a.name, b.name]

        async with served(app) as http:
            assert (await http.get("/stock/x")).json() == "x:1:9"
            assert (await http.get("/stock/x:1?number=007&limit=2")).json() == "x%3A1:7:2"
            wrong = await http.get("/stock/x?number=many")
            assert wrong.status_code == 422
            assert wrong.json()["detail"][0]["loc"] == ["query", "number"]
            assert (await http.get("/stock/x?number=1&number=2")).status_code == 400
            assert (await http.post("/orders", json={"order": "ABC"})).json() == "order:abc"
            assert (await http.get("/both/07?tenant=t")).json() == ["a:7", "b:7:t"]
            assert (await http.get("/both/7")).status_code == 400
            assert await app.state.fencelock.list() == []
            assert (await http.get("/openapi.json")).status_code == 200

    run(story)


def test_fastapi_gives_every_request_its_own_lease_and_the_lock_is_free_before_the_answer() -> None:
    async def story() -> None:
        app = FastAPI(lifespan=fencelock_lifespan("memory://"))
        held_when_sent = []

        @app.get("/")
        async def root(lease: Any = ours.lease("a")) -> int:  # noqa: B008
            assert len(await app.state.fencelock.list()) == 1
            return int(lease.token)

        async def watched(scope: Any, receive: Any, send: Any) -> None:
            async def look(message: Any) -> None:
                if message["type"] == "http.response.start":
                    held_when_sent.append(len(await app.state.fencelock.list()))
                await send(message)

            await app(scope, receive, look)

        async with served(app, watched) as http:
            tokens = [(await http.get("/")).json() for _ in range(3)]
            assert tokens == sorted(set(tokens))
            assert held_when_sent == [0, 0, 0]

    run(story)
