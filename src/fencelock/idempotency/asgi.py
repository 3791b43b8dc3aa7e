"""ASGI middleware for `Idempotency-Key`: a request that is sent again gets the answer of the first time.

    app = IdempotencyMiddleware(app, AsyncStore(engine.connect))

The key is the header's, together with who asks (by default the `Authorization` header), so that nobody gets
an answer that was somebody else's. The fingerprint is method, path, query and body.

    first request        runs; status, headers and body are kept, then sent
    the same again       the same answer, and `Idempotency-Replayed: true`
    while it runs        409 (after `timeout`), with `Retry-After`
    another request      422
    no key, `required`   400
    a key of no use      400
    too large a body     413, and nothing runs

An answer of 500 or more, or an error, is not kept: the next request with the key runs. An answer that is
larger than `max_response` is sent but cannot be sent again: requests after it get 409.

NOT promised: a process that dies in the middle leaves the question open whether it was done; after the
store's `ttl` the next request runs again. `scope["fencelock.attempt"]` tells the application, which may look
first, or pass its token on.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from contextlib import suppress
from typing import Any

from fencelock.durations import Duration, optional_duration
from fencelock.errors import ConfigurationError, LeaseLost, StaleToken
from fencelock.idempotency.records import (
    LARGEST_RESULT,
    Attempt,
    Done,
    FingerprintChanged,
    InProgress,
    fingerprint,
)
from fencelock.idempotency.store import AsyncStore

__all__ = ["IdempotencyMiddleware"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HEADER = b"idempotency-key"
LONGEST_KEY = 255
MAX_BODY = 1 << 20
MAX_RESPONSE = LARGEST_RESULT // 2
"""Half of what a result may have: a body is kept as base64."""
MAY_CHANGE = ("POST", "PATCH")
NOT_KEPT = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"date"})
"""Headers that belong to one connection or one moment."""


class IdempotencyMiddleware:
    """Answer a request with a known `Idempotency-Key` as it was answered the first time."""

    def __init__(
        self,
        app: App,
        store: AsyncStore,
        *,
        required: bool = False,
        methods: Collection[str] = MAY_CHANGE,
        timeout: Duration | None = 0,
        max_body: int = MAX_BODY,
        max_response: int = MAX_RESPONSE,
        identity: Callable[[Scope], str] | None = None,
    ) -> None:
        if not isinstance(store, AsyncStore):
            raise ConfigurationError(f"store={store!r} is no AsyncStore: make one of your connection")
        if max_body < 0 or not 0 <= max_response <= MAX_RESPONSE:
            raise ConfigurationError(
                f"max_body and max_response are sizes; the latter is at most {MAX_RESPONSE}"
            )
        self._app = app
        self._store = store
        self._required = bool(required)
        self._methods = frozenset(method.upper() for method in methods)
        self._timeout = optional_duration(timeout, "timeout")
        self._max_body = max_body
        self._max_response = max_response
        self._identity = identity or _authorization

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, as ASGI has it."""
        if scope["type"] != "http" or scope["method"] not in self._methods:
            await self._app(scope, receive, send)
            return
        given = [value for name, value in scope["headers"] if name.lower() == HEADER]
        if not given and not self._required:
            await self._app(scope, receive, send)
            return
        key = _key(given)
        if key is None:
            told = f"give one Idempotency-Key of 1 to {LONGEST_KEY} visible ASCII characters"
            await _refuse(send, 400, told if given else f"Idempotency-Key is missing: {told}")
            return
        try:
            body = await _body(receive, self._max_body)
        except ConnectionResetError:
            return  # nobody is there to be answered, and half a request is none
        if body is None:
            await _refuse(send, 413, f"the body has more than {self._max_body} bytes")
            return
        await self._serve(scope, receive, send, key, body)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, key: str, body: bytes) -> None:
        name = fingerprint(self._identity(scope), key)
        query = scope.get("query_string", b"")
        request = fingerprint(scope["method"], scope["path"], query, body)
        try:
            found = await self._store.begin(name, request, timeout=self._timeout)
        except InProgress as error:
            wait = max(1, int(min(error.expires_in or 1, 5)))
            await _refuse(send, 409, "a request with this key is in progress", ("retry-after", str(wait)))
            return
        except FingerprintChanged:
            await _refuse(send, 422, "this key was used before for another request")
            return
        if isinstance(found, Done):
            await _replay(send, found.result)
            return
        scope["fencelock.attempt"] = found
        await self._run(scope, _again(body, receive), send, found)

    async def _run(self, scope: Scope, receive: Receive, send: Send, attempt: Attempt) -> None:
        response = Response(self._max_response, send)
        try:
            await self._app(scope, receive, response.take)
        except BaseException:
            await self._abandon(attempt)
            raise
        if not response.is_complete or response.status >= 500:
            await self._abandon(attempt)
            await response.send_on()
            return
        try:
            await self._store.finish(attempt, response.kept())
        except (StaleToken, LeaseLost):
            if response.is_streaming:
                raise
            await _refuse(send, 409, "it took too long, and another request with this key has begun")
            return
        await response.send_on()

    async def _abandon(self, attempt: Attempt) -> None:
        with suppress(Exception):  # its ttl ends it anyway
            await self._store.abandon(attempt)


class Response:
    """What an application answers: held back until it is kept, or sent on if it is too large for that."""

    def __init__(self, limit: int, send: Send) -> None:
        self._limit = limit
        self._send = send
        self._held: list[Message] = []
        self._body = bytearray()
        self.status = 500
        self.is_complete = False
        self.is_streaming = False
        """It was too large, and is being sent."""

    async def take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._headers = list(message.get("headers", ()))
        elif message["type"] == "http.response.body":
            self.is_complete = not message.get("more_body", False)
            if not self.is_streaming:
                self._body += message.get("body", b"")
        if self.is_streaming:
            await self._send(message)
            return
        self._held.append(message)
        if len(self._body) > self._limit:
            self.is_streaming = True
            self._body.clear()
            await self.send_on()

    async def send_on(self) -> None:
        """Send what was held back."""
        held, self._held = self._held, []
        for message in held:
            await self._send(message)

    def kept(self) -> dict[str, Any]:
        """Return what is to be kept."""
        if self.is_streaming:
            return {"large": True}
        headers = [
            [name.decode("latin-1"), value.decode("latin-1")]
            for name, value in self._headers
            if name.lower() not in NOT_KEPT
        ]
        return {
            "status": self.status,
            "headers": headers,
            "body": base64.b64encode(bytes(self._body)).decode("ascii"),
        }


async def _replay(send: Send, kept: dict[str, Any]) -> None:
    if kept.get("large"):
        await _refuse(send, 409, "it was done, and its answer was too large to be kept")
        return
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in kept["headers"]]
    headers.append((b"idempotency-replayed", b"true"))
    await send({"type": "http.response.start", "status": kept["status"], "headers": headers})
    await send({"type": "http.response.body", "body": base64.b64decode(kept["body"])})


async def _refuse(send: Send, status: int, why: str, *more: tuple[str, str]) -> None:
    body = json.dumps({"error": why}).encode()
    headers = [("content-type", "application/json"), ("content-length", str(len(body))), *more]
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


def _key(given: list[bytes]) -> str | None:
    """Return the one key of a request; it may stand in quotes. `None` if it is none."""
    if len(given) != 1:
        return None
    text = given[0].decode("latin-1").strip()
    if len(text) >= 2 and text[0] == text[-1] == '"':
        text = text[1:-1]
    is_plain = text.isascii() and text.isprintable() and 0 < len(text) <= LONGEST_KEY
    return text if is_plain else None


def _authorization(scope: Scope) -> str:
    return "\n".join(v.decode("latin-1") for n, v in scope["headers"] if n.lower() == b"authorization")


async def _body(receive: Receive, limit: int) -> bytes | None:
    """Return the body of a request; `None` if it is too large. Raises `ConnectionResetError`."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionResetError("the client is gone")
        body += message.get("body", b"")
        if len(body) > limit:
            return None
        if not message.get("more_body", False):
            return bytes(body)


def _again(body: bytes, receive: Receive) -> Receive:
    """Return what gives a body that was read already, and then what comes after it."""
    is_given = False

    async def give() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return give
