"""The middleware for `Idempotency-Key` while its store goes down and comes back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy.ext.asyncio import create_async_engine
from tools.servers import start
from workers.databases import connected, connected_async, engine_url

from fencelock.idempotency import AsyncStore, IdempotencyMiddleware, create_table

STORES = ["redis", "postgres", "postgres-engine", "mariadb", "mariadb-threads"]


def made(kind: str, url: str) -> tuple[AsyncStore, Callable[[], Any]]:
    """Return a store on a server, and what closes it."""

    async def nothing() -> None: ...

    if kind == "redis":
        import redis.asyncio
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        client = redis.asyncio.Redis.from_url(url, retry=Retry(NoBackoff(), 0))  # its own tries take seconds
        return AsyncStore(client), client.aclose
    if kind == "postgres-engine":
        engine = create_async_engine(engine_url(url))
        return AsyncStore(engine.connect), engine.dispose
    if kind == "mariadb-threads":
        return AsyncStore(lambda: connected(url), threads=True), nothing
    return AsyncStore(lambda: connected_async(url)), nothing


@pytest.mark.parametrize("kind", STORES)
def test_a_store_that_is_down_is_503_and_nothing_runs(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    paid: list[str] = []
    app = FastAPI()
    broken = asyncio.Event()

    with start(kind.partition("-")[0]) as group:
        url = str(group.url)
        if kind != "redis":
            conn = connected(url)
            create_table(conn)
            conn.commit()
            conn.close()
        (server,) = group.members

        @app.post("/pay")
        async def pay() -> dict[str, int]:
            paid.append("paid")
            if broken.is_set():
                await asyncio.to_thread(server.kill)
            return {"number": len(paid)}

        @app.post("/other")
        async def other() -> str:
            return "other"

        async def main() -> None:
            store, close = made(kind, url)
            guarded = IdempotencyMiddleware(app, store, required=True, paths=["/pay"])  # type: ignore[arg-type]
            transport = httpx.ASGITransport(guarded)  # type: ignore[arg-type]
            async with httpx.AsyncClient(transport=transport, base_url="http://shop", timeout=60) as http:

                async def post(key: str, path: str = "/pay") -> httpx.Response:
                    return await http.post(path, headers={"Idempotency-Key": key})

                assert (await post("a")).json() == {"number": 1}
                await asyncio.to_thread(server.kill)
                for key in ("a", "b"):
                    refused = await post(key)
                    assert refused.status_code == 503, refused.text
                    assert int(refused.headers["retry-after"]) >= 1
                    assert refused.headers["content-type"] == "application/json"
                    assert "cannot be reached" in refused.json()["error"]
                assert paid == ["paid"], "the application was called"
                assert (await post("c", "/other")).json() == "other", "other routes need no store"

                await asyncio.to_thread(lambda: (server.start(), group.wait()))
                assert (await post("b")).json() == {"number": 2}

                broken.set()  # it goes down while the application works: the answer is sent, though not kept
                caplog.clear()
                assert (await post("d")).json() == {"number": 3}
                assert [record.levelno for record in caplog.records if record.name == "fencelock"] == [
                    logging.WARNING
                ]
                assert "was not kept" in caplog.text
            await close()

        with caplog.at_level(logging.WARNING, "fencelock"):
            asyncio.run(main())
