"""HTTP: middleware that refuses requests with an old `Fencing-Token`. `sending.py` has the other side.

    app = ASGIFence(app, AsyncGate())                                    # Starlette, FastAPI, Quart, …
    app = WSGIFence(app, SQLGate(engine.begin))                          # Flask, Django, …

| the request | is answered |
|---|---|
| has a token that passes | by your application; the token is in `scope` or `environ` as `fencelock.token` |
| has a token that is too old | 409, with a JSON body: `error`, `detail`, `resource`, `token`, `newest` |
| has a header that is no token, or two of them | 400, with a JSON body |
| has none, and is to change something | 428, with a JSON body, unless `required=False` |
| has none, and is GET, HEAD, OPTIONS or TRACE | by your application |

The resource is the path, or what your `resource` function says: `None` lets a request pass as it is.

A gate that can take turns (`Gate`, `AsyncGate`, `SQLGate`, `AsyncSQLGate`) keeps the resource until your
application has answered: comparison and work are one step. `SQLGate` does it with the row of the table of
fences, so it goes for all processes and takes a connection for as long. A gate without turns (`RedisFence`)
compares at the door only: a request may be overtaken while your application works. Give `fencelock.token` to
the write itself there.

Not promised: WebSockets and lifespan messages pass as they are. A gate that cannot answer raises, so your
server answers 500 and nothing is let through.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from contextlib import ExitStack
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol

from fencelock.errors import ConfigurationError, StaleToken
from fencelock.fencing.rule import check_resource, parse_token
from fencelock.names import shown

__all__ = ["HEADER", "ASGIFence", "Admits", "AsyncAdmits", "WSGIFence"]

HEADER = "Fencing-Token"
"""The header that carries the token."""

SAFE = {"GET", "HEAD", "OPTIONS", "TRACE"}
TOKEN = "fencelock.token"

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[Any]]
WSGIApp = Callable[..., Iterable[bytes]]


class Admits(Protocol):
    """What a `WSGIFence` asks: `Gate`, `SQLGate`, `RedisFence`, or a class of yours. `turn` is optional."""

    def admit(self, resource: str, token: int) -> None:
        """Let `token` pass and remember it, or raise `StaleToken`."""


class AsyncAdmits(Protocol):
    """What an `ASGIFence` asks: `AsyncGate`, `AsyncSQLGate`, `AsyncRedisFence`, or one of yours."""

    async def admit(self, resource: str, token: int) -> None:
        """Let `token` pass and remember it, or raise `StaleToken`."""


# The decision -------------------------------------------------------------------------------


class Refusal(NamedTuple):
    """An answer that is given in place of the application's."""

    status: HTTPStatus
    error: str
    detail: str
    fields: dict[str, Any]

    @property
    def body(self) -> bytes:
        return json.dumps({"error": self.error, "detail": self.detail, **self.fields}).encode()

    @property
    def headers(self) -> list[tuple[str, str]]:
        return [("Content-Type", "application/json"), ("Content-Length", str(len(self.body)))]


class Visit(NamedTuple):
    """A request that the gate has to judge."""

    resource: str
    token: int


def judged(tokens: list[str], method: str, resource: str | None, required: bool) -> Visit | Refusal | None:
    """Say what becomes of a request before the gate is asked; `None` lets it pass as it is."""
    if resource is None:
        return None
    if not tokens:
        if method in SAFE or not required:
            return None
        return Refusal(HTTPStatus.PRECONDITION_REQUIRED, "token required", f"send the header {HEADER}", {})
    try:
        if len(tokens) > 1:
            raise ConfigurationError(f"the header {HEADER} was sent {len(tokens)} times")
        return Visit(check_resource(resource), parse_token(tokens[0].strip(" \t")))
    except ConfigurationError as error:
        return Refusal(HTTPStatus.BAD_REQUEST, "bad token", str(error), {})


def stale(error: StaleToken) -> Refusal:
    """Return the answer to a token that is too old."""
    fields = {"resource": error.resource, "token": error.token, "newest": error.newest}
    return Refusal(HTTPStatus.CONFLICT, "stale token", str(error), fields)


# ASGI ---------------------------------------------------------------------------------------


class ASGIFence:
    """ASGI middleware: a request with an old token does not reach the application.

    `resource(scope)` names what a request is about, or is `None` for what needs no fence.
    """

    def __init__(
        self,
        app: ASGIApp,
        gate: AsyncAdmits,
        *,
        resource: Callable[[Scope], str | None] | None = None,
        required: bool = True,
    ) -> None:
        _check_gate(gate, asynchronous=True)
        self._app = app
        self._gate = gate
        self._resource = resource or _scope_path
        self._required = required

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        tokens = [
            value.decode("latin-1") for name, value in scope["headers"] if name.lower() == b"fencing-token"
        ]
        found = judged(tokens, scope["method"], self._resource(scope), self._required)
        if isinstance(found, Visit):
            found = await self._visit(found, scope, receive, send)
        elif found is None:
            await self._app(scope, receive, send)
        if isinstance(found, Refusal):
            headers = [(name.lower().encode(), value.encode()) for name, value in found.headers]
            await send({"type": "http.response.start", "status": found.status.value, "headers": headers})
            await send({"type": "http.response.body", "body": found.body})

    async def _visit(self, visit: Visit, scope: Scope, receive: Receive, send: Send) -> Refusal | None:
        scope = {**scope, TOKEN: visit.token}
        turn = getattr(self._gate, "turn", None)
        inside = False
        try:
            if turn is None:
                await self._gate.admit(*visit)
                inside = True
                await self._app(scope, receive, send)
                return None
            async with turn(*visit):
                inside = True
                await self._app(scope, receive, send)
        except StaleToken as error:
            if inside:  # the application's own: not ours to answer
                raise
            return stale(error)
        return None


def _scope_path(scope: Scope) -> str | None:
    path = str(scope["path"])
    return path or "/"


# WSGI ---------------------------------------------------------------------------------------


class WSGIFence:
    """WSGI middleware: a request with an old token does not reach the application.

    `resource(environ)` names what a request is about, or is `None` for what needs no fence.
    """

    def __init__(
        self,
        app: WSGIApp,
        gate: Admits,
        *,
        resource: Callable[[dict[str, Any]], str | None] | None = None,
        required: bool = True,
    ) -> None:
        _check_gate(gate, asynchronous=False)
        self._app = app
        self._gate = gate
        self._resource = resource or _environ_path
        self._required = required

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Serve a request."""
        token = environ.get("HTTP_FENCING_TOKEN")
        tokens = [] if token is None else [token]
        found = judged(tokens, environ["REQUEST_METHOD"], self._resource(environ), self._required)
        if found is None:
            return self._app(environ, start_response)
        if isinstance(found, Visit):
            held = ExitStack()
            try:
                turn = getattr(self._gate, "turn", None)
                if turn is None:
                    self._gate.admit(*found)
                else:
                    held.enter_context(turn(*found))
            except StaleToken as error:
                found = stale(error)
            else:
                return _serve(self._app, {**environ, TOKEN: found.token}, start_response, held)
        start_response(f"{found.status.value} {found.status.phrase}", found.headers)
        return [found.body]


def _serve(
    app: WSGIApp, environ: dict[str, Any], start_response: Callable[..., Any], held: ExitStack
) -> Iterable[bytes]:
    """Let the application answer, and end the turn with its answer: a generator works while it is read."""
    with ExitStack() as failing:
        failing.push(held)  # knows of an error, so that a transaction is rolled back
        answer = app(environ, start_response)
        if not isinstance(answer, list | tuple):
            failing.pop_all()
            return _Answer(answer, held)
    return answer


class _Answer:
    """An answer that is still being made; the server closes it, as WSGI demands."""

    def __init__(self, answer: Iterable[bytes], held: ExitStack) -> None:
        self._answer = answer
        self._held = held

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._answer
        except BaseException as error:
            held, self._held = self._held, ExitStack()
            held.__exit__(type(error), error, error.__traceback__)
            raise

    def close(self) -> None:
        try:
            if hasattr(self._answer, "close"):
                self._answer.close()
        finally:
            self._held.close()


def _environ_path(environ: dict[str, Any]) -> str | None:
    path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    return path.encode("latin-1").decode("utf-8", "backslashreplace") or "/"


def _check_gate(gate: Any, *, asynchronous: bool) -> None:
    admit = getattr(gate, "admit", None)
    if not callable(admit):
        raise ConfigurationError(f"gate={shown(gate)} has no method admit(resource, token)")
    if inspect.iscoroutinefunction(admit) is not asynchronous:
        wanted = (
            "AsyncGate, AsyncSQLGate or AsyncRedisFence" if asynchronous else "Gate, SQLGate or RedisFence"
        )
        raise ConfigurationError(f"gate={shown(gate)} is of the other flavour: give {wanted}")
