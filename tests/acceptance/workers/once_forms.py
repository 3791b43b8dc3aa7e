"""One piece of work that is to be done once, in every form: once, store and asgi, blocking and asyncio.

It leaves a trace in the store's own database, and calls `at(point, attempt)` on its way, which says for how
many seconds to pause there or does something worse:

    begun      it is this caller's to do
    done       it was done: the trace is there (with `once`: in the open transaction)
    kept       the result was kept (with `once`: in the open transaction)
    committed  the transaction was committed, with `once`

Whoever takes over from an attempt that did not end looks for the trace before it does anything.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from databases import asked, connected, connected_async

from fencelock.idempotency import AsyncStore, Attempt, IdempotencyMiddleware, Store, once, once_async

At = Callable[[str, Attempt | None], float]
LIST = "effects-"


def trace(conn: Any, key: str) -> int:
    """Do it, on a connection, and return how often it was done."""
    asked(conn, "INSERT INTO effects (name) VALUES (?)", key)
    return int(asked(conn, "SELECT count(*) FROM effects WHERE name = ?", key)[0][0])


def traces(url: str, key: str, *, more: bool = False) -> int:
    """Return how often it was done, after it was done once more if that is asked for."""
    if url.startswith("redis"):
        import redis

        with redis.Redis.from_url(url) as client:
            found: Any = client.rpush(LIST + key, "x") if more else client.llen(LIST + key)
            return int(found)
    conn = connected(url)
    try:
        if more:
            count = trace(conn, key)
            conn.commit()
            return count
        return int(asked(conn, "SELECT count(*) FROM effects WHERE name = ?", key)[0][0])
    finally:
        conn.close()


@contextmanager
def store_at(url: str, ttl: float) -> Iterator[Store]:
    if url.startswith("redis"):
        import redis

        with redis.Redis.from_url(url) as client:
            yield Store(client, ttl=ttl)
    else:
        yield Store(lambda: connected(url), ttl=ttl)


@asynccontextmanager
async def async_store_at(url: str, ttl: float) -> AsyncIterator[AsyncStore]:
    if url.startswith("redis"):
        import redis.asyncio

        async with redis.asyncio.Redis.from_url(url) as client:
            yield AsyncStore(client, ttl=ttl)
    elif url.startswith("sqlite"):
        yield AsyncStore(lambda: connected(url), ttl=ttl, threads=True)
    else:
        yield AsyncStore(lambda: connected_async(url), ttl=ttl)


# Blocking -------------------------------------------------------------------------------------


def perform(url: str, form: str, key: str, at: At, *, ttl: float = 60.0, timeout: float = 60.0) -> Any:
    """Do it or have its result, on this thread."""
    if form == "once":
        conn = connected(url)
        try:
            found = once(conn, key, "f", lambda: _traced(conn, key, at))
            time.sleep(at("kept", None))
            conn.commit()
            at("committed", None)
            return found
        finally:
            conn.close()

    def effect(attempt: Attempt) -> int:
        time.sleep(at("begun", attempt))
        count = traces(url, key, more=True)
        time.sleep(at("done", attempt))
        return count

    def look(attempt: Attempt) -> int:
        found = traces(url, key)
        if not found:
            return effect(attempt)
        time.sleep(at("begun", attempt) + at("done", attempt))
        return found

    with store_at(url, ttl) as store:
        result = store.run(key, "f", effect, recover=look, timeout=timeout)
    at("kept", None)
    return result


def _traced(conn: Any, key: str, at: At) -> int:
    time.sleep(at("begun", None))
    count = trace(conn, key)
    time.sleep(at("done", None))
    return count


# Asyncio --------------------------------------------------------------------------------------


async def perform_async(
    url: str, form: str, key: str, at: At, *, ttl: float = 60.0, timeout: float = 60.0
) -> Any:
    """Do it or have its result, in this task."""
    if form == "once":
        return await _once(url, key, at)

    async def effect(attempt: Attempt) -> int:
        await asyncio.sleep(at("begun", attempt))
        count = await asyncio.to_thread(lambda: traces(url, key, more=True))
        await asyncio.sleep(at("done", attempt))
        return count

    async def look(attempt: Attempt) -> int:
        found = await asyncio.to_thread(traces, url, key)
        if not found:
            return await effect(attempt)
        await asyncio.sleep(at("begun", attempt) + at("done", attempt))
        return found

    async with async_store_at(url, ttl) as store:
        if form == "store":
            result: Any = await store.run(key, "f", effect, recover=look, timeout=timeout)
        else:

            async def app(scope: Any, receive: Any, send: Any) -> None:
                attempt = scope["fencelock.attempt"]
                await receive()
                count = await (look if attempt.is_recovery else effect)(attempt)
                await send({"type": "http.response.start", "status": 201, "headers": []})
                await send({"type": "http.response.body", "body": b"%d" % count})

            result = await request(IdempotencyMiddleware(app, store, timeout=timeout), key)
    at("kept", None)
    return result


async def request(app: Any, key: str) -> Any:
    """Post; return the number in the answer, or its status if it was refused."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"f", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"idempotency-key", key.encode())]
    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers}
    await app(scope, receive, send)
    return int(sent[1]["body"]) if sent[0]["status"] == 201 else sent[0]["status"]


async def _once(url: str, key: str, at: At) -> Any:
    conn = await connected_async(url)
    try:

        async def traced() -> int:
            await asyncio.sleep(at("begun", None))
            cursor = conn.cursor()
            await cursor.execute("INSERT INTO effects (name) VALUES (%s)", (key,))
            await cursor.execute("SELECT count(*) FROM effects WHERE name = %s", (key,))
            (count,) = await cursor.fetchone()
            await cursor.close()
            await asyncio.sleep(at("done", None))
            return int(count)

        found = await once_async(conn, key, "f", traced)
        await asyncio.sleep(at("kept", None))
        await conn.commit()
        at("committed", None)
        return found
    finally:
        await (conn.ensure_closed() if hasattr(conn, "ensure_closed") else conn.close())


def performed(url: str, form: str, flavour: str, key: str, at: At, **options: float) -> Any:
    """Do it or have its result, in a flavour."""
    if flavour == "blocking":
        return perform(url, form, key, at, **options)
    return asyncio.run(perform_async(url, form, key, at, **options))
