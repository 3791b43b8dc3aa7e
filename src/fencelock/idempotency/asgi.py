"""ASGI middleware for `Idempotency-Key`: a request that is sent again gets the answer of the first time.

    app = IdempotencyMiddleware(app, AsyncStore(engine.connect), paths=["/payments", "/invoices/*/pay"])

It looks at requests whose method is in `methods` and whose path is in `paths`, and passes all others on. The
key is the header's together with the client (by default the `Authorization` header), so that no client gets
the answer of another. The fingerprint is method, path, query and body.

    first request        runs; status, headers and body are kept, then sent
    the same again       the same answer, and `Idempotency-Replayed: true`
    while it runs        409 (after `timeout`), with `Retry-After`
    another request      422
    no key, `required`   400
    a key of no use      400
    too large a body     413, and nothing runs
    the store is down    503, with `Retry-After`, and nothing runs

An answer of 500 or more, or an error, is not kept: the next request with the key runs. An answer that is
larger than `max_response` is sent but cannot be sent again: requests after it get 409. An answer that cannot
be kept because the store went down meanwhile is sent too: a client that does not get it would ask again.

NOT promised: a process that dies in the middle leaves the question open whether it was done; after the
store's `ttl` the next request runs again. `scope["fencelock.attempt"]` tells the application, which may look
first, or pass its token on.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress

from fencelock.durations import Duration, optional_duration
from fencelock.errors import BackendError, ConfigurationError, FencelockError, LeaseLost, StaleToken
from fencelock.idempotency.records import (
    LARGEST_RESULT,
    Attempt,
    Done,
    FingerprintChanged,
    InProgress,
    fingerprint,
)
from fencelock.idempotency.responses import Message, Response, Scope, Send, refuse, replay
from fencelock.idempotency.store import AsyncStore
from fencelock.names import shown

__all__ = ["IdempotencyMiddleware"]

Receive = Callable[[], Awaitable[Message]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HEADER = b"idempotency-key"
LONGEST_KEY = 255
MAX_BODY = 1 << 20
MAX_RESPONSE = LARGEST_RESULT // 2
"""Half of what a result may have: a body is kept as base64."""
MAY_CHANGE = ("POST", "PATCH")
RETRY_AFTER = "5"
"""Seconds after which to ask again when the store is down."""

log = logging.getLogger("fencelock")


class IdempotencyMiddleware:
    """Answer a request with a known `Idempotency-Key` as it was answered the first time.

    It looks at requests of these `methods` and `paths` only. `paths` has paths of the application, in which
    `*` stands for anything, also for more than one segment; or is a function that says whether to look at a
    path. By default it looks at all. With `required` a request without a key is refused.
    """

    def __init__(
        self,
        app: App,
        store: AsyncStore,
        *,
        required: bool = False,
        methods: Collection[str] = MAY_CHANGE,
        paths: Collection[str] | Callable[[str], bool] | None = None,
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
        self._methods = frozenset(method.upper() for method in _listed(methods, "methods", "POST"))
        self._covers = _predicate(paths)
        self._timeout = optional_duration(timeout, "timeout")
        self._max_body = max_body
        self._max_response = max_response
        self._identity = identity or _authorization

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, as ASGI has it."""
        if (
            scope["type"] != "http"
            or scope["method"] not in self._methods
            or not self._covers(_route_path(scope))
        ):
            await self._app(scope, receive, send)
            return
        given = [value for name, value in scope["headers"] if name.lower() == HEADER]
        if not given and not self._required:
            await self._app(scope, receive, send)
            return
        key = _key(given)
        if key is None:
            told = f"give one Idempotency-Key of 1 to {LONGEST_KEY} visible ASCII characters"
            await refuse(send, 400, told if given else f"Idempotency-Key is missing: {told}")
            return
        try:
            body = await _body(receive, self._max_body)
        except ConnectionResetError:
            return  # nobody is there to be answered, and half a request is none
        if body is None:
            await refuse(send, 413, f"the body has more than {self._max_body} bytes")
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
            await refuse(send, 409, "a request with this key is in progress", ("retry-after", str(wait)))
            return
        except FingerprintChanged:
            await refuse(send, 422, "this key was used before for another request")
            return
        except Exception as error:
            if not _is_store_down(error):
                raise
            log.warning("no idempotency key for a request: %s: %s", type(error).__name__, error)
            told = "the store of idempotency keys cannot be reached, nothing was done: try again later"
            await refuse(send, 503, told, ("retry-after", RETRY_AFTER))
            return
        if isinstance(found, Done):
            await replay(send, found.result)
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
            await refuse(send, 409, "it took too long, and another request with this key has begun")
            return
        except Exception as error:
            if not _is_store_down(error):
                raise
            log.warning("the answer of a request was not kept: %s: %s", type(error).__name__, error)
        await response.send_on()

    async def _abandon(self, attempt: Attempt) -> None:
        with suppress(Exception):  # its ttl ends it anyway
            await self._store.abandon(attempt)


def _listed(given: Collection[str], what: str, example: str) -> list[str]:
    if isinstance(given, str) or not isinstance(given, Collection):
        raise ConfigurationError(f"{what}={shown(given)} is no list: give one, such as [{example!r}]")
    for one in given:
        if not isinstance(one, str) or not one:
            raise ConfigurationError(f"{what} has {shown(one)}: give text, such as {example!r}")
    return list(given)


def _predicate(paths: Collection[str] | Callable[[str], bool] | None) -> Callable[[str], bool]:
    """Return what says whether a path is looked at."""
    if paths is None:
        return lambda path: True
    if callable(paths):
        return paths
    patterns = _listed(paths, "paths", "/payments/*")
    for pattern in patterns:
        if not pattern.startswith(("/", "*")):
            raise ConfigurationError(f"paths has {pattern!r}, which no path matches: begin it with '/'")
    wanted = re.compile("|".join(".*".join(map(re.escape, each.split("*"))) for each in patterns), re.DOTALL)
    return lambda path: wanted.fullmatch(path) is not None


def _route_path(scope: Scope) -> str:
    """Return the path as the application knows it: without what it is mounted under."""
    path, root = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


def _is_store_down(error: Exception) -> bool:
    """Whether the store has failed, and not the request or the set-up.

    Connections are made by the user's function, so what it or its driver raises can be of any class.
    """
    return isinstance(error, BackendError) or not isinstance(error, FencelockError)


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
