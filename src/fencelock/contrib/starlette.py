"""Starlette: a client that lives as long as the application, and endpoints under a lock.

    app = Starlette(routes, lifespan=fencelock_lifespan("redis://localhost"))

    @locked("invoice:{id}", timeout=5)
    async def pay(request, lease): ...

The name is made of the path's parameters and the query's; `templates.py` says why no value can become another
name. A query parameter that is given twice is refused: which one would be meant?

| what happens | the answer |
|---|---|
| the lock is acquired | that of the endpoint |
| not within `timeout` | `status` (423), with `Retry-After` |
| a value is missing or given twice | 400 |
| the backend cannot be reached | 503, with `Retry-After` |
| the lease is lost while it works | 503; an `async def` endpoint is cancelled, a `def` one works on |

A lock is held until the endpoint has returned its response, not until that was sent: whatever a streaming
response does while it is sent is done without the lock.

Not promised: WebSockets are not looked at. A client that goes away while it waits keeps its place until
`timeout`. A `def` endpoint runs on a thread, which nothing can stop: give its writes the token.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from fencelock.aio import AsyncClient
from fencelock.contrib.answers import LOCKED, RETRY_AFTER, TIMEOUT, TTL, Terms
from fencelock.contrib.calls import Call, held_async, missing
from fencelock.core.ports import Backend
from fencelock.durations import Duration
from fencelock.errors import AcquireTimeout, BackendError, ConfigurationError, LeaseLost
from fencelock.extras import refuse_old
from fencelock.lease import AsyncLease
from fencelock.templates import Template

try:
    refuse_old("starlette", "fencelock.contrib.starlette")
    from starlette.concurrency import run_in_threadpool
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
except ModuleNotFoundError as error:
    raise missing(error, "starlette") from error

__all__ = ["client_of", "fencelock_lifespan", "locked"]

STATE = "fencelock"

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]
Endpoint = Callable[..., Any]


def fencelock_lifespan(
    target: str | Backend | None = None,
    *,
    namespace: str | None = None,
    client_name: str | None = None,
    lifespan: Lifespan | None = None,
) -> Lifespan:
    """Return a lifespan that opens an `AsyncClient` for the application and closes it at the end.

    `lifespan` is one of yours, to be run inside of it. A URL that cannot be right is refused at the start.
    """

    @asynccontextmanager
    async def live(app: Any) -> AsyncIterator[dict[str, Any]]:
        async with AsyncClient(target, namespace=namespace, client_name=client_name) as locks:
            setattr(app.state, STATE, locks)
            try:
                if lifespan is None:
                    yield {STATE: locks}
                else:
                    async with lifespan(app) as state:
                        yield {STATE: locks, **(state or {})}
            finally:
                delattr(app.state, STATE)

    return live


def client_of(request: Request) -> AsyncClient:
    """Return the client of the application that serves this request."""
    # A mounted application has a state of its own; what the lifespan yields reaches all of them.
    found = getattr(request.app.state, STATE, None) or getattr(request.state, STATE, None)
    if not isinstance(found, AsyncClient):
        raise ConfigurationError(
            "the application has no client of fencelock: give it lifespan=fencelock_lifespan(url)"
        )
    return found


def request_values(request: Request, fields: list[str]) -> Mapping[str, Any]:
    """Return what a request says for these fields: its path's parameters, else its query's."""
    found: dict[str, Any] = {}
    for field in fields:
        if field in request.path_params:
            found[field] = request.path_params[field]
            continue
        given = request.query_params.getlist(field)
        if len(given) != 1:
            raise HTTPException(400, f"give {field} once" if given else f"{field} is missing")
        found[field] = given[0]
    return found


@asynccontextmanager
async def held(request: Request, name: str, terms: Terms) -> AsyncIterator[AsyncLease]:
    """Hold a lock for a request; whatever goes wrong with it becomes an answer."""
    lock = client_of(request).lock(name, ttl=terms.ttl, timeout=terms.timeout)
    try:
        async with AsyncExitStack() as stack:
            try:
                lease = await stack.enter_async_context(held_async(lock))
            except (AcquireTimeout, BackendError) as error:
                raise _answer(terms, error) from error
            yield lease
    except LeaseLost as error:
        raise _answer(terms, error) from error


def _answer(terms: Terms, error: AcquireTimeout | BackendError | LeaseLost) -> HTTPException:
    refusal = terms.refusal(error)
    return HTTPException(refusal.status, refusal.detail, refusal.headers)


def locked(
    name: str,
    *,
    ttl: Duration = TTL,
    timeout: Duration | None = TIMEOUT,
    status: int = LOCKED,
    retry_after: Duration = RETRY_AFTER,
) -> Callable[[Endpoint], Callable[..., Awaitable[Any]]]:
    """Serve requests of an endpoint under the lock that their values name.

    A parameter `lease` of the endpoint gets the lease. Endpoints are functions, `async def` or `def`, and
    methods of an `HTTPEndpoint`.
    """
    template, terms = Template(name), Terms(ttl, timeout, status, retry_after)

    def decorate(endpoint: Endpoint) -> Callable[..., Awaitable[Any]]:
        call = Call(endpoint, template, values=False)
        is_async = inspect.iscoroutinefunction(endpoint)

        @functools.wraps(endpoint)
        async def serve(*args: Any, **kwargs: Any) -> Any:
            request = next((arg for arg in args if isinstance(arg, Request)), None)
            if request is None:
                raise ConfigurationError(f"{endpoint.__qualname__} was called without a request")
            wanted = template.filled(request_values(request, template.fields))
            async with held(request, wanted, terms) as lease:
                given = call.given(kwargs, lease)
                if is_async:
                    return await endpoint(*args, **given)
                return await run_in_threadpool(endpoint, *args, **given)

        return serve

    return decorate
