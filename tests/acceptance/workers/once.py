"""Does what is to be done once, in many threads or tasks at the same time.

once.py URL FORM FLAVOUR KEY COUNT, where FORM is once (in a transaction) or store. Says what each got.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from typing import Any

from databases import asked, connected, connected_async
from resources import say

from holdfast.idempotency import AsyncStore, Attempt, Store, once, once_async

PAUSE = 0.05


def effect(url: str, key: str) -> int:
    """Leave a trace in the database, and return how many there are."""
    if url.startswith("redis"):
        import redis

        with redis.Redis.from_url(url) as client:
            return int(client.rpush(f"effects-{key}", "x"))  # type: ignore[arg-type]
    conn = connected(url)
    try:
        count = trace(conn, key)
        conn.commit()
        return count
    finally:
        conn.close()


def trace(conn: Any, key: str) -> int:
    asked(conn, "INSERT INTO effects (name) VALUES (?)", key)
    return int(asked(conn, "SELECT count(*) FROM effects WHERE name = ?", key)[0][0])


def in_thread(url: str, form: str, key: str) -> int:
    if form == "once":
        conn = connected(url)
        try:

            def traced() -> int:
                count = trace(conn, key)
                time.sleep(PAUSE)
                return count

            found = once(conn, key, "f", traced)
            conn.commit()
            return found
        finally:
            conn.close()

    def slowly(attempt: Attempt) -> int:
        count = effect(url, key)
        time.sleep(PAUSE)
        return count

    if url.startswith("redis"):
        import redis

        with redis.Redis.from_url(url) as client:
            return Store(client).run(key, "f", slowly, timeout=60)
    return Store(lambda: connected(url)).run(key, "f", slowly, timeout=60)


async def in_task(url: str, form: str, key: str) -> int:
    if form == "once":
        conn = await connected_async(url)
        try:

            async def traced() -> int:
                cursor = conn.cursor()
                await cursor.execute("INSERT INTO effects (name) VALUES (%s)", (key,))
                await cursor.execute("SELECT count(*) FROM effects WHERE name = %s", (key,))
                (count,) = await cursor.fetchone()
                await cursor.close()
                await asyncio.sleep(PAUSE)
                return int(count)

            found = await once_async(conn, key, "f", traced)
            await conn.commit()
            return found
        finally:
            await (conn.ensure_closed() if hasattr(conn, "ensure_closed") else conn.close())

    async def slowly(attempt: Attempt) -> int:
        count = await asyncio.to_thread(effect, url, key)
        await asyncio.sleep(PAUSE)
        return count

    if url.startswith("redis"):
        import redis.asyncio

        async with redis.asyncio.Redis.from_url(url) as client:
            return await AsyncStore(client).run(key, "f", slowly, timeout=60)
    if url.startswith("sqlite"):
        return await AsyncStore(lambda: connected(url), threads=True).run(key, "f", slowly, timeout=60)
    return await AsyncStore(lambda: connected_async(url)).run(key, "f", slowly, timeout=60)


def threads(url: str, form: str, key: str, count: int) -> list[Any]:
    results: list[Any] = []

    def work() -> None:
        try:
            results.append(in_thread(url, form, key))
        except Exception as error:
            results.append(repr(error))

    all_of_them = [threading.Thread(target=work) for _ in range(count)]
    for thread in all_of_them:
        thread.start()
    for thread in all_of_them:
        thread.join()
    return results


async def tasks(url: str, form: str, key: str, count: int) -> list[Any]:
    found = await asyncio.gather(*(in_task(url, form, key) for _ in range(count)), return_exceptions=True)
    return [repr(one) if isinstance(one, BaseException) else one for one in found]


if __name__ == "__main__":
    where, how, flavour, name, number = *sys.argv[1:5], int(sys.argv[5])
    say(ready=True)
    sys.stdin.readline()
    if flavour == "asyncio":
        say(results=asyncio.run(tasks(where, how, name, number)))
    else:
        say(results=threads(where, how, name, number))
