"""Shelves: each has a text that anybody may write, and one behind a guard of `fencelock.fencing`.

`shelf(kind, where)` opens one; `where` is a URL or a folder. All have the same face, so that one story is
told of every guard: `create`, `read` (both texts), `trample` (write without care), `write` (with a token,
may raise `StaleToken`), `log` (the tokens of all writes that were accepted, in the store's own order),
`close`. A driver of asyncio runs on a loop of its own inside. What only one sort needs is imported there:
the start of a process is most of what a short test costs.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import inspect
import json
import sqlite3
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from multiprocessing import connection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fencelock import StaleToken, fencing
from fencelock.runtime import blocking

AGAIN = {"40001", "40P01", 1213, 1020}
"""Codes of a transaction that is to be tried again."""


@functools.cache
def mapped_row() -> Any:
    """Return the class of rows that SQLAlchemy's mixin fences."""
    from sqlalchemy import Column, Integer, Text
    from sqlalchemy.orm import DeclarativeBase

    class Base(DeclarativeBase):
        pass

    class Row(fencing.Fenced, Base):
        __tablename__ = "shelf"

        id = Column(Integer, primary_key=True)
        plain = Column(Text)
        text = Column(Text)

    return Row


class Shelf(ABC):
    """What all shelves can do."""

    @abstractmethod
    def create(self) -> None: ...

    @abstractmethod
    def read(self) -> tuple[str, str]: ...

    @abstractmethod
    def trample(self, words: str) -> None: ...

    @abstractmethod
    def write(self, token: int, words: str) -> None: ...

    def log(self) -> list[int] | None:
        return None

    def close(self) -> None:
        return


# SQL ----------------------------------------------------------------------------------------


NUMBERS = {
    "sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "postgresql": "bigserial PRIMARY KEY",
    "mysql": "BIGINT AUTO_INCREMENT PRIMARY KEY",
}


class SQLShelf(Shelf):
    """`kind` is DRIVER+FORM: a driver or a part of SQLAlchemy, and admit, column or orm."""

    def __init__(self, kind: str, where: str) -> None:
        self.driver, _, self.form = kind.partition("+")
        self.where = where
        self.dialect = "sqlite" if "://" not in where else urlsplit(where).scheme
        self.asynchronous = self.driver in {"psycopg-async", "asyncmy", "connection-async", "session-async"}
        self.runner = asyncio.Runner() if self.asynchronous else None
        self.engine: Any = None
        self.text: Callable[[str], Any]
        self.conn = self.run(self.connect())

    def run(self, steps: Any) -> Any:
        return self.runner.run(steps) if self.runner is not None else blocking.run(steps)

    def call(self, name: str, *args: Any, **terms: Any) -> Any:
        return getattr(fencing, f"{name}_async" if self.asynchronous else name)(*args, **terms)

    async def connect(self) -> Any:
        parts = urlsplit(self.where)
        mysql = {
            "host": parts.hostname,
            "port": parts.port,
            "user": parts.username,
            "password": parts.password,
        }
        if self.driver == "sqlite3":
            return sqlite3.connect(self.where, timeout=60)
        if self.driver == "psycopg":
            import psycopg

            return psycopg.connect(self.where)
        if self.driver == "psycopg-async":
            import psycopg

            return await psycopg.AsyncConnection.connect(self.where)
        if self.driver == "pymysql":
            import pymysql  # type: ignore[import-untyped]

            return pymysql.connect(**mysql, database=parts.path[1:])
        if self.driver == "asyncmy":
            import asyncmy

            return await asyncmy.connect(**mysql, db=parts.path[1:])
        return await self.alchemy()

    async def alchemy(self) -> Any:
        from sqlalchemy import create_engine, text
        from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
        from sqlalchemy.orm import Session

        self.text = text
        if self.dialect == "sqlite":
            url = f"sqlite:///{self.where}"
        elif self.dialect == "postgresql":
            url = self.where.replace("postgresql://", "postgresql+psycopg://")
        else:
            url = self.where.replace("mysql://", f"mysql+{'asyncmy' if self.asynchronous else 'pymysql'}://")
        options: dict[str, Any] = {"connect_args": {"timeout": 60}} if self.dialect == "sqlite" else {}
        self.engine = (create_async_engine if self.asynchronous else create_engine)(url, **options)
        if self.driver == "connection-async":
            return await self.engine.connect()
        if self.driver == "connection":
            return self.engine.connect()
        return (AsyncSession if self.asynchronous else Session)(self.engine)

    async def ask(self, statement: str) -> list[Any]:
        conn = self.conn
        if self.driver in {"pymysql", "asyncmy"}:
            cursor = conn.cursor()
            await done(cursor.execute(statement))
            rows = await done(cursor.fetchall())
            await done(cursor.close())
            return list(rows or ())
        if self.engine is not None:
            result = await done(conn.execute(self.text(statement)))
            return list(result.all()) if result.returns_rows else []
        cursor = await done(conn.execute(statement))
        return list(await done(cursor.fetchall())) if cursor.description else []

    def transaction(self, steps: Callable[[], Awaitable[Any]]) -> Any:
        async def all_of_it() -> Any:
            while True:
                try:
                    found = await steps()
                    await done(self.conn.commit())
                    return found
                except BaseException as error:
                    await done(self.conn.rollback())
                    if not AGAIN & set(codes(error)):
                        raise

        return self.run(all_of_it())

    def create(self) -> None:
        async def steps() -> None:
            columns = "id INTEGER PRIMARY KEY, plain TEXT, text TEXT, fence BIGINT NOT NULL DEFAULT 0"
            await self.ask(f"CREATE TABLE shelf ({columns})")
            await self.ask(f"CREATE TABLE log (n {NUMBERS[self.dialect]}, token BIGINT)")
            await self.ask("INSERT INTO shelf VALUES (1, '', '', 0)")

        async def table() -> None:
            await done(self.call("create_table", self.conn))

        self.transaction(steps)
        self.transaction(table)

    def read(self) -> tuple[str, str]:
        (row,) = self.transaction(lambda: self.ask("SELECT plain, text FROM shelf"))
        return row[0], row[1]

    def trample(self, words: str) -> None:
        self.transaction(lambda: self.ask(f"UPDATE shelf SET plain = '{words}'"))

    def write(self, token: int, words: str) -> None:
        async def steps() -> None:
            if self.form == "column":
                await done(
                    self.call("update", self.conn, "shelf", {"text": words}, where={"id": 1}, token=token)
                )
            elif self.form == "orm":
                row = await done(self.conn.get_one(mapped_row(), 1))
                await done(row.admit_async(token) if self.asynchronous else row.admit(token))
                row.text = words
                await done(self.conn.flush())
            else:
                await done(self.call("admit", self.conn, "shelf", token))
                await self.ask(f"UPDATE shelf SET text = '{words}'")
            await self.ask(f"INSERT INTO log (token) VALUES ({token})")

        self.transaction(steps)

    def log(self) -> list[int]:
        rows = self.transaction(lambda: self.ask("SELECT token FROM log ORDER BY n"))
        return [row[0] for row in rows]

    def close(self) -> None:
        async def steps() -> None:
            await done(self.conn.close())
            if self.engine is not None:
                await done(self.engine.dispose())

        self.run(steps())
        if self.runner is not None:
            self.runner.close()


async def made(make: Callable[[], Any]) -> Any:
    """Make something that looks for its event loop."""
    return make()


async def done(found: Any) -> Any:
    return await found if inspect.isawaitable(found) else found


def codes(error: BaseException) -> list[Any]:
    cause: Any = getattr(error, "orig", None) or error  # SQLAlchemy wraps what the driver says
    return [getattr(cause, "sqlstate", None), next(iter(getattr(cause, "args", ())), None)]


# Redis --------------------------------------------------------------------------------------


NOTED = "redis.call('RPUSH', KEYS[2], ARGV[2]) return redis.call('SET', KEYS[1], ARGV[1])"


class RedisShelf(Shelf):
    """redis or cluster, or either with -async; the form is set, hset or script."""

    def __init__(self, kind: str, where: str) -> None:
        import redis
        import redis.asyncio

        driver, _, self.form = kind.partition("+")
        where = where.replace("valkey://", "redis://")
        blocking: Any = redis.RedisCluster if "cluster" in driver else redis.Redis
        asynchronous: Any = redis.asyncio.RedisCluster if "cluster" in driver else redis.asyncio.Redis
        self.client = blocking.from_url(where, decode_responses=True)
        self.other: Any = None
        self.runner: asyncio.Runner | None = None
        self.fence: Any
        if driver.endswith("-async"):
            self.runner = asyncio.Runner()
            self.other = self.runner.run(made(lambda: asynchronous.from_url(where)))
            self.fence = fencing.AsyncRedisFence(self.other)
        else:
            self.fence = fencing.RedisFence(self.client)
        self.noted = self.fence.script(NOTED)

    def create(self) -> None:
        self.client.set("plain", "")
        self.client.set("{shelf}:text", "")

    def read(self) -> tuple[str, str]:
        words = (
            self.client.hget("{shelf}:hash", "words")
            if self.form == "hset"
            else self.client.get("{shelf}:text")
        )
        return str(self.client.get("plain")), str(words or "")

    def trample(self, words: str) -> None:
        self.client.set("plain", words)

    def write(self, token: int, words: str) -> None:
        if self.form == "script":
            called = self.noted(keys=["{shelf}:text", "{shelf}:log"], args=[words, token], token=token)
        elif self.form == "hset":
            called = self.fence.hset("{shelf}:hash", {"words": words}, token=token)
        else:
            called = self.fence.set("{shelf}:text", words, token=token)
        if self.runner is not None:
            self.runner.run(done(called))

    def log(self) -> list[int]:
        return [int(token) for token in self.client.lrange("{shelf}:log", 0, -1)]

    def close(self) -> None:
        self.client.close()
        if self.runner is not None:
            self.runner.run(self.other.aclose())
            self.runner.close()


# The others ---------------------------------------------------------------------------------


class FileShelf(Shelf):
    """file or file-async."""

    def __init__(self, kind: str, where: str) -> None:
        self.asynchronous = kind == "file-async"
        self.plain, self.guarded = Path(where, "plain"), Path(where, "guarded")

    def create(self) -> None:
        self.plain.write_text("")
        self.guarded.write_text("")

    def read(self) -> tuple[str, str]:
        return self.plain.read_text(), self.guarded.read_text()

    def trample(self, words: str) -> None:
        self.plain.write_text(words)

    def write(self, token: int, words: str) -> None:
        if self.asynchronous:
            asyncio.run(fencing.fenced_write_async(self.guarded, words.encode(), token))
        else:
            fencing.fenced_write(self.guarded, words.encode(), token)


class HTTPShelf(Shelf):
    """A service with the middleware in front of `/guarded`; see test_fencing_http."""

    def __init__(self, kind: str, where: str) -> None:
        import httpx

        self.client = httpx.Client(base_url=where, timeout=60, verify=False)  # no certificates to load

    def create(self) -> None:
        return

    def read(self) -> tuple[str, str]:
        return self.client.get("/plain").text, self.client.get("/guarded").text

    def trample(self, words: str) -> None:
        self.client.put("/plain", content=words).raise_for_status()

    def write(self, token: int, words: str) -> None:
        answer = self.client.put("/guarded", content=words, headers={"Fencing-Token": str(token)})
        if answer.status_code == 409:
            told = answer.json()
            raise StaleToken(resource=told["resource"], token=told["token"], newest=told["newest"])
        answer.raise_for_status()

    def log(self) -> list[int]:
        return [int(token) for token in self.client.get("/log").text.split()]

    def close(self) -> None:
        self.client.close()


class GateShelf(Shelf):
    """A process that keeps its texts behind a `Gate` of its own; see fencing_gate.py."""

    def __init__(self, kind: str, where: str) -> None:
        self.conn = connection.Client(where)

    def ask(self, name: str, *args: Any) -> Any:
        self.conn.send((name, args))
        answer = self.conn.recv()
        if isinstance(answer, StaleToken):
            raise answer
        return answer

    def create(self) -> None:
        self.ask("clear")

    def read(self) -> tuple[str, str]:
        plain, guarded = self.ask("read")
        return plain, guarded

    def trample(self, words: str) -> None:
        self.ask("trample", words)

    def write(self, token: int, words: str) -> None:
        self.ask("write", token, words)

    def log(self) -> list[int]:
        return list(self.ask("tokens"))

    def close(self) -> None:
        self.conn.close()


class EtcdShelf(Shelf):
    """By the JSON gateway."""

    def __init__(self, kind: str, where: str) -> None:
        self.base = where.replace("etcd://", "http://").partition(",")[0]

    def ask(self, method: str, body: Any) -> Any:
        request = urllib.request.Request(f"{self.base}/v3/kv/{method}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def value(self, key: str) -> str:
        found = self.ask("range", {"key": coded(key)}).get("kvs", ())
        return base64.b64decode(found[0].get("value", "")).decode() if found else ""

    def create(self) -> None:
        for _ in range(2):
            self.ask("txn", fencing.etcd_new_fence({}, "fence"))

    def read(self) -> tuple[str, str]:
        return self.value("plain"), self.value("guarded")

    def trample(self, words: str) -> None:
        self.ask("put", {"key": coded("plain"), "value": coded(words)})

    def write(self, token: int, words: str) -> None:
        put = {"request_put": {"key": coded("guarded"), "value": coded(words)}}
        answer = self.ask("txn", fencing.etcd_fence({"success": [put]}, "fence", token))
        if not answer.get("succeeded"):
            newest = answer["responses"][-1]["response_range"]["kvs"][0]["value"]
            raise StaleToken(resource="fence", token=token, newest=int(base64.b64decode(newest)))


def coded(words: str) -> str:
    return base64.b64encode(words.encode()).decode()


class ZooKeeperShelf(Shelf):
    """By kazoo."""

    def __init__(self, kind: str, where: str) -> None:
        from kazoo.client import KazooClient  # type: ignore[import-untyped]

        self.client = KazooClient(urlsplit(where).netloc, timeout=30)
        self.client.start(60)

    def create(self) -> None:
        for path in ("/plain", "/guarded"):
            self.client.create(path, b"")

    def read(self) -> tuple[str, str]:
        return self.client.get("/plain")[0].decode(), self.client.get("/guarded")[0].decode()

    def trample(self, words: str) -> None:
        self.client.set("/plain", words.encode())

    def write(self, token: int, words: str) -> None:
        from kazoo.exceptions import BadVersionError, NodeExistsError, RolledBackError, RuntimeInconsistency  # type: ignore[import-untyped]

        while True:
            transaction = fencing.zookeeper_fence(self.client, self.client.transaction(), "/fence", token)
            transaction.set_data("/guarded", words.encode())
            results = transaction.commit()
            errors = [result for result in results if isinstance(result, Exception)]
            if not errors:
                return
            assert all(
                isinstance(error, BadVersionError | NodeExistsError | RolledBackError | RuntimeInconsistency)
                for error in errors
            ), errors

    def close(self) -> None:
        self.client.stop()
        self.client.close()


def shelf(kind: str, where: str) -> Shelf:
    """Open a shelf."""
    driver = kind.partition("+")[0]
    sorts: dict[str, Callable[[str, str], Shelf]] = {
        "redis": RedisShelf,
        "redis-async": RedisShelf,
        "cluster": RedisShelf,
        "cluster-async": RedisShelf,
        "file": FileShelf,
        "file-async": FileShelf,
        "http": HTTPShelf,
        "gate": GateShelf,
        "etcd": EtcdShelf,
        "zookeeper": ZooKeeperShelf,
    }
    return sorts.get(driver, SQLShelf)(kind, where)
