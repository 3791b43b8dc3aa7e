"""The middleware for `Idempotency-Key`, spoken to as a server does."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fencelock import ConfigurationError
from fencelock.idempotency import AsyncStore, IdempotencyMiddleware, create_table
from fencelock.idempotency.asgi import MAX_RESPONSE


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> str:
        return str(json.loads(self.body)["error"])


@pytest.fixture
def store(tmp_path: Path) -> AsyncStore:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "keys.db", timeout=30)

    with connect() as conn:
        create_table(conn)
    conn.close()
    return AsyncStore(connect, threads=True, ttl=0.4)


class Shop:
    """An application that counts what it sells, and answers in two pieces."""

    def __init__(self) -> None:
        self.sold: list[bytes] = []
        self.status = 201
        self.pause = 0.0
        self.begun, self.open = asyncio.Event(), asyncio.Event()
        self.open.set()
        self.more = b""
        self.attempts: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message["body"]
            if not message["more_body"]:
                break
        self.sold.append(body)
        self.attempts.append(scope.get("fencelock.attempt"))
        self.begun.set()
        await self.open.wait()
        await asyncio.sleep(self.pause)
        if self.status == 0:
            raise ZeroDivisionError
        headers = [(b"x-number", b"%d" % len(self.sold)), (b"X-Caf\xe9", b"\xff"), (b"date", b"now")]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"sold \xff", "more_body": True})
        await send({"type": "http.response.body", "body": body + self.more})


async def ask(
    app: Any,
    key: str | list[str] | None = "k",
    body: bytes | list[bytes] = b"one",
    *,
    method: str = "POST",
    path: str = "/buy",
    root: str = "",
    query: bytes = b"",
    who: str = "",
    gone: bool = False,
) -> Answer | None:
    keys = [key] if isinstance(key, str) else key or []
    headers = [(b"Idempotency-Key", each.encode("latin-1")) for each in keys]
    if who:
        headers.append((b"authorization", who.encode()))
    pieces = [body] if isinstance(body, bytes) else list(body)
    sent: list[Any] = []

    async def receive() -> Any:
        if pieces:
            return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces) or gone}
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "root_path": root,
        "query_string": query,
        "headers": headers,
    }
    await app(scope, receive, send)
    if not sent:
        return None
    named = {name.decode("latin-1"): value.decode("latin-1") for name, value in sent[0]["headers"]}
    return Answer(sent[0]["status"], named, b"".join(message.get("body", b"") for message in sent[1:]))


def test_the_answer_is_replayed(store: AsyncStore) -> None:
    shop = Shop()
    app = IdempotencyMiddleware(shop, store)
    first = asyncio.run(ask(app, body=[b"o", b"ne"]))
    again = asyncio.run(ask(app, '"k"', b"one"))
    assert first is not None and again is not None
    assert first == Answer(201, {"x-number": "1", "X-Café": "ÿ", "date": "now"}, b"sold \xffone")
    assert (again.status, again.body) == (first.status, first.body)
    assert again.headers == {"x-number": "1", "X-Café": "ÿ", "idempotency-replayed": "true"}
    assert shop.sold == [b"one"]


@pytest.mark.parametrize(
    "change", [{"body": b"two"}, {"path": "/sell"}, {"method": "PATCH"}, {"query": b"x"}]
)
def test_another_request_with_the_key_is_refused(store: AsyncStore, change: dict[str, Any]) -> None:
    shop = Shop()
    app = IdempotencyMiddleware(shop, store)
    asyncio.run(ask(app))
    answer = asyncio.run(ask(app, **change))
    assert answer is not None and answer.status == 422 and "another request" in answer.error
    assert len(shop.sold) == 1


def test_one_that_runs_is_not_run_beside(store: AsyncStore) -> None:
    shop = Shop()
    shop.open.clear()
    told = IdempotencyMiddleware(shop, store)
    waiting = IdempotencyMiddleware(shop, store, timeout=60)

    async def main() -> list[Answer | None]:
        first = asyncio.ensure_future(ask(told))
        await shop.begun.wait()
        second = await ask(told)
        third = asyncio.ensure_future(ask(waiting))
        shop.open.set()
        return [await first, second, await third]

    first, second, third = asyncio.run(main())
    assert first is not None and second is not None and third is not None
    assert (first.status, second.status, third.status) == (201, 409, 201)
    assert "in progress" in second.error and second.headers["retry-after"] == "1"
    assert third.headers["idempotency-replayed"] == "true"
    assert len(shop.sold) == 1


def test_nobody_gets_the_answer_of_somebody_else(store: AsyncStore) -> None:
    shop = Shop()
    app = IdempotencyMiddleware(shop, store)
    answers = [asyncio.run(ask(app, who=who)) for who in ("alice", "bob", "alice")]
    assert [answer.headers["x-number"] for answer in answers if answer] == ["1", "2", "1"]
    by_path = IdempotencyMiddleware(shop, store, identity=lambda scope: str(scope["path"]))
    asyncio.run(ask(by_path, "z", path="/a"))
    asyncio.run(ask(by_path, "z", path="/b"))
    assert len(shop.sold) == 4


@pytest.mark.parametrize("status", [500, 503])
def test_a_failure_is_not_kept(store: AsyncStore, status: int) -> None:
    shop = Shop()
    shop.status = status
    app = IdempotencyMiddleware(shop, store)
    failed = asyncio.run(ask(app))
    assert failed is not None and failed.status == status
    shop.status = 404
    answers = [asyncio.run(ask(app)) for _ in range(2)]
    assert [answer.status for answer in answers if answer] == [404, 404]
    assert len(shop.sold) == 2
    assert [attempt.tries for attempt in shop.attempts] == [1, 2]


def test_an_error_passes_and_is_not_kept(store: AsyncStore) -> None:
    shop = Shop()
    shop.status = 0
    app = IdempotencyMiddleware(shop, store)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(ask(app))
    shop.status = 200
    answer = asyncio.run(ask(app))
    assert answer is not None and answer.status == 200


def test_one_that_took_too_long_does_not_answer_for_its_successor(store: AsyncStore) -> None:
    shop = Shop()
    shop.pause = 0.8
    app = IdempotencyMiddleware(shop, store)

    async def main() -> list[Answer | None]:
        first = asyncio.ensure_future(ask(app))
        await asyncio.sleep(0.5)
        shop.pause = 0.0
        second = await ask(app)
        return [await first, second, await ask(app)]

    first, second, third = asyncio.run(main())
    assert first is not None and second is not None and third is not None
    assert (first.status, second.status) == (409, 201) and "took too long" in first.error
    assert third.body == second.body and third.headers["x-number"] == second.headers["x-number"]


@pytest.mark.parametrize("key", ["", '""', "x" * 256, "tab\there", "café", ["a", "b"]])
@pytest.mark.parametrize("required", [True, False])
def test_a_key_of_no_use(store: AsyncStore, key: Any, required: bool) -> None:
    shop = Shop()
    answer = asyncio.run(ask(IdempotencyMiddleware(shop, store, required=required), key))
    assert answer is not None and answer.status == 400 and "visible ASCII" in answer.error
    assert shop.sold == []


def test_without_a_key(store: AsyncStore) -> None:
    shop = Shop()
    answer = asyncio.run(ask(IdempotencyMiddleware(shop, store, required=True), None))
    assert answer is not None and answer.status == 400 and "missing" in answer.error
    assert shop.sold == []
    for method in ("POST", "GET"):
        asyncio.run(ask(IdempotencyMiddleware(shop, store), None, method=method))
    asyncio.run(ask(IdempotencyMiddleware(shop, store, required=True), None, method="GET"))
    assert len(shop.sold) == 3


def test_a_method_that_changes_nothing_is_left_alone(store: AsyncStore) -> None:
    shop = Shop()
    app = IdempotencyMiddleware(shop, store)
    for _ in range(2):
        asyncio.run(ask(app, method="GET"))
    assert len(shop.sold) == 2


@pytest.mark.parametrize(
    "paths", [["/buy", "/invoices/*/pay"], ("/buy", "*/pay"), lambda path: path == "/buy" or "/pay" in path]
)
def test_only_the_paths_that_were_chosen_need_a_key(store: AsyncStore, paths: Any) -> None:
    shop = Shop()
    app = IdempotencyMiddleware(shop, store, required=True, paths=paths)
    for path in ("/buy", "/invoices/42/pay", "/invoices/4/2/pay"):
        refused = asyncio.run(ask(app, None, path=path))
        assert refused is not None and refused.status == 400, path
    assert shop.sold == []
    for path in ("/buy/", "/buyer", "/invoices/42", "/webhooks", "/"):
        answer = asyncio.run(ask(app, None, path=path))
        assert answer is not None and answer.status == 201, path
    assert len(shop.sold) == 5
    answers = [asyncio.run(ask(app, "k", path="/webhooks")) for _ in range(2)]
    assert all(answer and "idempotency-replayed" not in answer.headers for answer in answers)
    assert len(shop.sold) == 7, "a key on another path is passed on"
    for _ in range(2):
        asyncio.run(ask(app, "k"))
    assert len(shop.sold) == 8


def test_paths_are_those_of_the_application_wherever_it_is_mounted(store: AsyncStore) -> None:
    app = IdempotencyMiddleware(Shop(), store, required=True, paths=["/buy"])
    statuses = {}
    for root, path in (("/v1", "/v1/buy"), ("/v1/", "/v1/buy"), ("/v1", "/buy"), ("/v1", "/v1buy")):
        answer = asyncio.run(ask(app, None, path=path, root=root))
        assert answer is not None
        statuses[root, path] = answer.status
    assert [*statuses.values()] == [400, 400, 400, 201], statuses


def test_a_path_is_no_regular_expression(store: AsyncStore) -> None:
    app = IdempotencyMiddleware(Shop(), store, required=True, paths=["/a.b[c]"])
    answers = {path: asyncio.run(ask(app, None, path=path)) for path in ("/a.b[c]", "/a.bc", "/axb[c]")}
    assert {path: answer.status for path, answer in answers.items() if answer} == {
        "/a.b[c]": 400,
        "/a.bc": 201,
        "/axb[c]": 201,
    }


def test_the_methods_that_were_chosen(store: AsyncStore) -> None:
    shop = Shop()
    app = IdempotencyMiddleware(shop, store, required=True, methods=["put"])
    for method, status in (("PUT", 400), ("POST", 201), ("DELETE", 201)):
        answer = asyncio.run(ask(app, None, method=method))
        assert answer is not None and answer.status == status


def test_the_body_is_bounded(store: AsyncStore) -> None:
    shop = Shop()
    app = IdempotencyMiddleware(shop, store, max_body=10)
    large = asyncio.run(ask(app, body=[b"x" * 6, b"x" * 5]))
    assert large is not None and large.status == 413 and "10 bytes" in large.error
    assert shop.sold == []
    small = asyncio.run(ask(app, body=[b"x" * 5, b"x" * 5]))
    assert small is not None and small.status == 201


def test_half_a_request_is_none(store: AsyncStore) -> None:
    shop = Shop()
    assert asyncio.run(ask(IdempotencyMiddleware(shop, store), gone=True)) is None
    assert shop.sold == []


def test_an_answer_that_is_too_large_is_sent_once(store: AsyncStore) -> None:
    shop = Shop()
    shop.more = b"y" * 100
    app = IdempotencyMiddleware(shop, store, max_response=50)
    first, second = asyncio.run(ask(app)), asyncio.run(ask(app))
    assert first is not None and second is not None
    assert first.body == b"sold \xffone" + b"y" * 100
    assert second.status == 409 and "too large" in second.error
    assert len(shop.sold) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"store": 5}, "is no AsyncStore"),
        ({"max_body": -1}, "sizes"),
        ({"max_response": MAX_RESPONSE + 1}, "sizes"),
        ({"timeout": -1}, "timeout=-1"),
        ({"methods": "POST"}, r"methods='POST' is no list: give one, such as \['POST'\]"),
        ({"methods": [1]}, "methods has 1: give text, such as 'POST'"),
        ({"paths": "/pay"}, r"paths='/pay' is no list: give one, such as \['/payments/\*'\]"),
        ({"paths": ["pay"]}, "paths has 'pay', which no path matches: begin it with '/'"),
        ({"paths": [""]}, "paths has '': give text"),
        ({"paths": 7}, "paths=7 is no list"),
    ],
)
def test_bad_input(store: AsyncStore, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        IdempotencyMiddleware(Shop(), **{"store": store, **options})


def test_a_set_up_that_is_wrong_is_no_outage(tmp_path: Path) -> None:
    nowhere = AsyncStore(lambda: sqlite3.connect(tmp_path / "empty.db"), threads=True)
    with pytest.raises(ConfigurationError, match="there is no table fencelock_idempotency"):
        asyncio.run(ask(IdempotencyMiddleware(Shop(), nowhere)))


def test_other_protocols_pass(store: AsyncStore) -> None:
    seen: list[str] = []

    async def app(scope: Any, receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        seen.append(scope["type"])

    asyncio.run(IdempotencyMiddleware(app, store)({"type": "lifespan"}, app, app))  # type: ignore[arg-type]
    assert seen == ["lifespan"]
