"""The middleware, in ASGI and WSGI, and the hooks that send the header."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import requests

import fencelock
from fencelock import ConfigurationError, LeaseLost, StaleToken
from fencelock.fencing import ASGIFence, AsyncGate, Gate, WSGIFence, send_token, send_token_async


class Site:
    """An application of either sort behind the middleware: it notes each request that reaches it."""

    def __init__(self, kind: str, **options: Any) -> None:
        self.kind = kind
        self.reached: list[int | None] = []
        self.gate: Any = AsyncGate() if kind == "asgi" else Gate()
        self.fail = False
        fence: Any = ASGIFence(self.asgi, self.gate, **options) if kind == "asgi" else None
        self.fence = fence or WSGIFence(self.wsgi, self.gate, **options)

    async def asgi(self, scope: Any, receive: Any, send: Any) -> None:
        self.reached.append(scope.get("fencelock.token"))
        if self.fail:
            raise StaleToken(resource="inner", token=1, newest=2)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def wsgi(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self.reached.append(environ.get("fencelock.token"))
        if self.fail:
            raise StaleToken(resource="inner", token=1, newest=2)
        start_response("204 No Content", [])
        return [b""]

    def ask(self, method: str, path: str, *headers: tuple[str, str]) -> httpx.Response:
        if self.kind == "wsgi":
            with httpx.Client(transport=httpx.WSGITransport(self.fence), base_url="http://site") as client:
                return client.request(method, path, headers=list(headers))

        async def main() -> httpx.Response:
            transport = httpx.ASGITransport(self.fence)
            async with httpx.AsyncClient(transport=transport, base_url="http://site") as client:
                return await client.request(method, path, headers=list(headers))

        return asyncio.run(main())

    def put(self, token: object, path: str = "/document/1") -> httpx.Response:
        return self.ask("PUT", path, ("Fencing-Token", str(token)))


@pytest.fixture(params=["asgi", "wsgi"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_rule(kind: str) -> None:
    site = Site(kind)
    assert [site.put(token).status_code for token in (34, 34, 33, 35, 34)] == [204, 204, 409, 204, 409]
    assert site.put(1, "/document/2").status_code == 204
    assert site.reached == [34, 34, 35, 1]
    answer = site.put(33)
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {
        "error": "stale token",
        "detail": "token 33 for '/document/1' is stale: 35 was seen already",
        "resource": "/document/1",
        "token": 33,
        "newest": 35,
    }


@pytest.mark.parametrize("token", ["", "0", "-1", "abc", "3.0", "1e9", str(2**63), "34, 35", "34;35", "0x22"])
def test_garbage(kind: str, token: str) -> None:
    site = Site(kind)
    answer = site.put(token)
    assert answer.status_code == 400
    assert answer.json()["error"] == "bad token"
    assert site.reached == []


def test_two_headers() -> None:
    """A WSGI server makes one of them, with a comma: that is garbage, above."""
    site = Site("asgi")
    answer = site.ask("PUT", "/document/1", ("Fencing-Token", "34"), ("Fencing-Token", "34"))
    assert answer.status_code == 400
    assert site.reached == []


def test_no_token(kind: str) -> None:
    site = Site(kind)
    for method in ("POST", "PUT", "PATCH", "DELETE", "PURGE"):
        answer = site.ask(method, "/document/1")
        assert answer.status_code == 428, method
        assert answer.json() == {"error": "token required", "detail": "send the header Fencing-Token"}
    assert site.reached == []
    for method in ("GET", "HEAD", "OPTIONS"):
        assert site.ask(method, "/document/1").status_code == 204
    assert site.reached == [None, None, None]


def test_reading_with_a_token_raises_the_mark(kind: str) -> None:
    site = Site(kind)
    assert site.ask("GET", "/document/1", ("fencing-token", "34")).status_code == 204
    assert site.put(33).status_code == 409


def test_a_token_that_is_not_required(kind: str) -> None:
    site = Site(kind, required=False)
    assert site.ask("PUT", "/document/1").status_code == 204
    assert site.put(34).status_code == 204
    assert site.put(33).status_code == 409


def test_resources_of_your_own(kind: str) -> None:
    path = "path" if kind == "asgi" else "PATH_INFO"
    site = Site(kind, resource=lambda request: None if "health" in request[path] else "all")
    assert site.ask("POST", "/health").status_code == 204
    assert site.put(34, "/a").status_code == 204
    assert site.put(33, "/b").status_code == 409


def test_a_path_that_is_too_long(kind: str) -> None:
    site = Site(kind)
    answer = site.put(34, "/" + "x" * 600)
    assert answer.status_code == 400
    assert "resource=" in answer.json()["detail"]


def test_a_refusal_of_the_application_is_its_own(kind: str) -> None:
    site = Site(kind)
    site.fail = True
    with pytest.raises(StaleToken, match="inner"):
        site.put(34)
    site.fail = False
    assert site.put(34).status_code == 204, "the turn did not end"


def test_paths_in_other_scripts() -> None:
    """WSGI has the bytes of a path as characters; the resource is the same in both."""
    asgi, wsgi = Site("asgi"), Site("wsgi")
    assert asgi.put(34, "/dök/ü").status_code == 204
    assert asgi.gate.newest("/dök/ü") == 34
    raw = "/ü".encode().decode("latin-1")
    environ = {"REQUEST_METHOD": "PUT", "SCRIPT_NAME": "/dök".encode().decode("latin-1"), "PATH_INFO": raw}
    assert wsgi.fence({**environ, "HTTP_FENCING_TOKEN": "34"}, lambda *_: None) == [b""]
    assert wsgi.gate.newest("/dök/ü") == 34


def test_a_gate_of_the_other_flavour() -> None:
    site = Site("wsgi")
    with pytest.raises(ConfigurationError, match="is of the other flavour: give AsyncGate"):
        ASGIFence(site.asgi, Gate())  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="is of the other flavour: give Gate"):
        WSGIFence(site.wsgi, AsyncGate())  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="has no method admit"):
        WSGIFence(site.wsgi, object())  # type: ignore[arg-type]


def test_other_messages_pass() -> None:
    site = Site("asgi")
    seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    async def nothing(*_: Any) -> None:
        raise AssertionError

    asyncio.run(ASGIFence(app, site.gate)({"type": "lifespan"}, nothing, nothing))
    asyncio.run(ASGIFence(app, site.gate)({"type": "websocket"}, nothing, nothing))
    assert seen == ["lifespan", "websocket"]


# Turns --------------------------------------------------------------------------------------


def test_a_request_is_not_overtaken_asgi() -> None:
    order: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.05 if scope["fencelock.token"] == 33 else 0)
        order.append(scope["fencelock.token"])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def main() -> list[int]:
        transport = httpx.ASGITransport(ASGIFence(app, AsyncGate()))
        async with httpx.AsyncClient(transport=transport, base_url="http://site") as client:

            async def put(token: int) -> int:
                await asyncio.sleep(0.01 * (token - 33))
                return (await client.put("/d", headers={"Fencing-Token": str(token)})).status_code

            return await asyncio.gather(put(33), put(34))

    assert asyncio.run(main()) == [204, 204]
    assert order == [33, 34]


class Slow:
    """A WSGI application that does its work while its answer is read."""

    def __init__(self) -> None:
        self.order: list[int] = []
        self.closed = 0
        self.go = threading.Event()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [])
        return self.work(environ["fencelock.token"])

    def work(self, token: int) -> Iterator[bytes]:
        try:
            if token == 33:
                assert self.go.wait(10)
            self.order.append(token)
            yield b"done"
        finally:
            self.closed += 1


def test_a_request_is_not_overtaken_wsgi() -> None:
    app = Slow()
    transport = httpx.WSGITransport(WSGIFence(app, Gate()))

    def put(token: int) -> None:
        with httpx.Client(transport=transport, base_url="http://site") as client:
            assert client.put("/d", headers={"Fencing-Token": str(token)}).content == b"done"

    threads = [threading.Thread(target=put, args=(token,)) for token in (33, 34)]
    threads[0].start()
    threads[0].join(0.1)
    threads[1].start()
    threads[1].join(0.1)
    assert app.order == []
    app.go.set()
    for thread in threads:
        thread.join(10)
    assert app.order == [33, 34]
    assert app.closed == 2


def test_an_answer_that_fails_while_it_is_read_ends_its_turn() -> None:
    def app(environ: Any, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [])
        yield b"half"
        raise KeyError("the rest")

    gate = Gate()
    answer: Any = WSGIFence(app, gate)(
        {"REQUEST_METHOD": "PUT", "PATH_INFO": "/d", "HTTP_FENCING_TOKEN": "34"}, lambda *_: None
    )
    with pytest.raises(KeyError, match="the rest"):
        list(answer)
    answer.close()
    gate.admit("/d", 35)


def test_a_turn_is_told_of_a_failure() -> None:
    """A gate in a database rolls back then."""
    seen: list[Any] = []

    class Turns(Gate):
        @contextmanager
        def turn(self, resource: str, token: int) -> Iterator[None]:
            try:
                yield
            except BaseException as error:
                seen.append(type(error))
                raise

    def late(environ: Any, start_response: Any) -> Iterator[bytes]:
        yield b"half"
        raise KeyError

    def early(environ: Any, start_response: Any) -> Iterable[bytes]:
        raise IndexError

    environ = {"REQUEST_METHOD": "PUT", "PATH_INFO": "/d", "HTTP_FENCING_TOKEN": "34"}
    answer: Any = WSGIFence(late, Turns())(environ, lambda *_: None)
    with pytest.raises(KeyError):
        list(answer)
    answer.close()
    with pytest.raises(IndexError):
        WSGIFence(early, Turns())(environ, lambda *_: None)
    assert seen == [KeyError, IndexError]


def test_an_answer_that_nobody_reads_ends_its_turn() -> None:
    gate, app = Gate(), Slow()
    environ = {"REQUEST_METHOD": "PUT", "PATH_INFO": "/d", "HTTP_FENCING_TOKEN": "34"}
    answer: Any = WSGIFence(app, gate)(environ, lambda *_: None)
    answer.close()
    gate.admit("/d", 35)


# The hooks ----------------------------------------------------------------------------------


def test_httpx_and_requests_send_the_token() -> None:
    site = Site("wsgi")
    with fencelock.Client("memory://") as locks, locks.lock("document") as lease:
        hook = send_token(lease)
        transport = httpx.WSGITransport(site.fence)
        with httpx.Client(
            transport=transport, base_url="http://site", event_hooks={"request": [hook]}
        ) as client:
            assert client.put("/document/1").status_code == 204
        assert site.reached == [lease.token]
        prepared = requests.Request("PUT", "http://site/document/1", auth=hook).prepare()
        assert prepared.headers["Fencing-Token"] == str(lease.token)
    with pytest.raises(fencelock.NotHeld):
        hook(prepared)


def test_nothing_is_sent_for_a_lease_that_is_lost() -> None:
    site = Site("wsgi")
    with fencelock.Client("memory://") as locks:
        lease = locks.lock("document", ttl=20).acquire()
        locks.force_release("document")
        lease.verify()
        hooks = {"request": [send_token(lease)]}
        transport = httpx.WSGITransport(site.fence)
        with (
            httpx.Client(transport=transport, base_url="http://site", event_hooks=hooks) as client,
            pytest.raises(LeaseLost),
        ):
            client.put("/document/1")
    assert site.reached == []


def test_httpx_under_asyncio_sends_the_token() -> None:
    site = Site("asgi")

    async def main() -> int:
        async with fencelock.AsyncClient("memory://") as locks, locks.lock("document") as lease:
            hooks = {"request": [send_token_async(lease)]}
            transport = httpx.ASGITransport(site.fence)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://site", event_hooks=hooks
            ) as client:
                assert (await client.put("/document/1")).status_code == 204
            return lease.token

    token = asyncio.run(main())
    assert site.reached == [token]
