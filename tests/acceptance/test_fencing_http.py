"""The middleware in front of a real service: the holder that slept, 32 writers, with each sort of gate."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import socketserver
import sqlite3
import threading
import time
import wsgiref.simple_server
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
import redis.asyncio
import requests
import uvicorn
from crew import wait_until
from fencing_drills import Cast
from tools.servers import start

import fencelock
from fencelock.fencing import (
    ASGIFence,
    AsyncGate,
    AsyncRedisFence,
    Gate,
    RedisFence,
    SQLGate,
    WSGIFence,
    create_table,
    send_token,
    send_token_async,
)

WORK = 0.0005
"""Seconds between reading a request and writing the text: time to be overtaken."""


class Service:
    """Two texts and a log, as an application of either sort. `/guarded` and `/log` belong to the guard."""

    def __init__(self) -> None:
        self.texts = {"/plain": "", "/guarded": ""}
        self.log: list[int] = []

    def serve(self, method: str, path: str, body: str, token: int | None) -> str:
        if path == "/log":
            return " ".join(map(str, self.log))
        if method == "PUT":
            self.texts[path] = body
            if path == "/guarded":
                assert token is not None
                self.log.append(token)
        return self.texts[path]

    def wsgi(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        size = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(size).decode()
        time.sleep(WORK)
        answer = self.serve(
            environ["REQUEST_METHOD"], environ["PATH_INFO"], body, environ.get("fencelock.token")
        ).encode()
        start_response("200 OK", [("Content-Length", str(len(answer)))])
        return [answer]

    async def asgi(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        await asyncio.sleep(WORK)
        answer = self.serve(
            scope["method"], scope["path"], body.decode(), scope.get("fencelock.token")
        ).encode()
        headers = [(b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


def guarded(path: str) -> str | None:
    return "shelf" if path == "/guarded" else None


class Quiet(wsgiref.simple_server.WSGIRequestHandler):
    protocol_version = "HTTP/1.0"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        return


class Threads(socketserver.ThreadingMixIn, wsgiref.simple_server.WSGIServer):
    daemon_threads = True
    request_queue_size = 64


@contextlib.contextmanager
def wsgi_served(app: Any) -> Iterator[str]:
    server = wsgiref.simple_server.make_server("127.0.0.1", 0, app, Threads, Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


@contextlib.contextmanager
def asgi_served(app: Any, *, at_last: Callable[[], Awaitable[Any]] | None = None) -> Iterator[str]:
    """Serve on a loop of its own; `at_last` is done there before it ends."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=64)
    server = uvicorn.Server(
        uvicorn.Config(app, log_level="error", lifespan="off", http="h11", loop="asyncio")
    )

    async def main() -> None:
        await server.serve([listening])
        if at_last is not None:
            await at_last()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started, "the service has started")
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        listening.close()


@contextlib.contextmanager
def sqlite_gate(folder: Path) -> Iterator[SQLGate]:
    file = folder / "fences.db"
    with contextlib.closing(sqlite3.connect(file)) as conn:
        create_table(conn)

    @contextlib.contextmanager
    def connect() -> Iterator[sqlite3.Connection]:
        conn = sqlite3.connect(file, timeout=60)
        try:
            with conn:
                yield conn
        finally:
            conn.close()

    yield SQLGate(connect)


@contextlib.contextmanager
def served(kind: str, folder: Path) -> Iterator[str]:
    """A service behind one sort of gate."""
    service = Service()

    def wsgi(gate: Any) -> Any:
        return wsgi_served(WSGIFence(service.wsgi, gate, resource=lambda env: guarded(env["PATH_INFO"])))

    def asgi(gate: Any, **options: Any) -> Any:
        app = ASGIFence(service.asgi, gate, resource=lambda scope: guarded(scope["path"]))
        return asgi_served(app, **options)

    with contextlib.ExitStack() as stack:
        if kind == "wsgi, memory":
            yield stack.enter_context(wsgi(Gate()))
        elif kind == "asgi, memory":
            yield stack.enter_context(asgi(AsyncGate()))
        elif kind == "wsgi, sql":
            yield stack.enter_context(wsgi(stack.enter_context(sqlite_gate(folder))))
        elif kind == "wsgi, redis":
            group = stack.enter_context(start("redis"))
            client = stack.enter_context(contextlib.closing(redis.Redis.from_url(group.url)))
            yield stack.enter_context(wsgi(RedisFence(client)))
        else:
            group = stack.enter_context(start("redis"))
            other = redis.asyncio.Redis.from_url(group.url, single_connection_client=False)
            yield stack.enter_context(asgi(AsyncRedisFence(other), at_last=other.aclose))


KINDS = ["wsgi, memory", "asgi, memory", "wsgi, sql", "wsgi, redis", "asgi, redis"]


@pytest.fixture(scope="module")
def cast() -> Iterator[Cast]:
    with Cast() as cast:
        yield cast


@pytest.mark.parametrize("kind", KINDS)
def test_the_holder_that_slept(cast: Cast, kind: str, tmp_path: Path) -> None:
    with served(kind, tmp_path) as url:
        cast.paused_holder("http", url, tmp_path)


@pytest.mark.parametrize("kind", ["wsgi, memory", "asgi, memory", "wsgi, sql"])
def test_32_writers(cast: Cast, kind: str, tmp_path: Path) -> None:
    """Where a gate takes turns a request is not overtaken by a newer one while the service works."""
    with served(kind, tmp_path) as url:
        cast.crowd("http", url)


def test_what_a_client_is_answered(tmp_path: Path) -> None:
    with served("asgi, memory", tmp_path) as url, httpx.Client(base_url=url) as client:
        assert client.put("/guarded", headers={"Fencing-Token": "34"}).status_code == 200
        assert client.put("/guarded", headers={"Fencing-Token": "33"}).json()["newest"] == 34
        assert client.put("/guarded", headers={"Fencing-Token": "x"}).status_code == 400
        assert client.put("/guarded").status_code == 428
        assert client.put("/plain").status_code == 200


def test_the_hooks(tmp_path: Path) -> None:
    locks = fencelock.Client("memory://")
    with served("wsgi, memory", tmp_path) as url, locks, locks.lock("shelf") as lease:
        hook = send_token(lease)
        with httpx.Client(base_url=url, event_hooks={"request": [hook]}) as client:
            assert client.put("/guarded", content="httpx").status_code == 200
        with requests.Session() as session:
            session.auth = hook
            assert session.put(f"{url}/guarded", data="requests", timeout=30).status_code == 200
        assert httpx.get(f"{url}/log").text == f"{lease.token} {lease.token}"

        async def main() -> int:
            async with httpx.AsyncClient(
                base_url=url, event_hooks={"request": [send_token_async(lease)]}
            ) as client:
                return (await client.put("/guarded", content="asyncio")).status_code

        assert asyncio.run(main()) == 200
