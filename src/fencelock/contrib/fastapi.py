"""FastAPI: a dependency that holds a lock for the duration of a request.

    app = FastAPI(lifespan=fencelock_lifespan("redis://localhost"))

    @app.post("/invoices/{id}/pay")
    async def pay(id: int, lease: Annotated[AsyncLease, lease("invoice:{id}", timeout=5)]): ...

The name is made of the values as the endpoint takes them: with `id: int`, `/invoices/42` and `/invoices/042`
are one invoice and one lock. A parameter that the endpoint does not have is taken as text. Where that does
not do (a value of the body, an alias, one that another dependency finds), give a dependency of your own in
place of the template: a function that returns the name.

Answers, and what is not promised, are those of `starlette.py`. The lock is released when the endpoint has
returned and before its response is sent (FastAPI's scope "function"), so a lease that was lost on the
way is a 503 and not a success.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any, get_type_hints

from fencelock.contrib.answers import LOCKED, RETRY_AFTER, TIMEOUT, TTL, Terms
from fencelock.contrib.calls import missing
from fencelock.durations import Duration
from fencelock.errors import ConfigurationError
from fencelock.extras import refuse_old
from fencelock.lease import AsyncLease
from fencelock.names import shown
from fencelock.templates import Template

try:
    refuse_old("fastapi", "fencelock.contrib.fastapi")
    from fastapi import Depends, Request
    from fastapi.exceptions import RequestValidationError
    from pydantic import TypeAdapter, ValidationError
    from pydantic.fields import FieldInfo
except ModuleNotFoundError as error:
    raise missing(error, "fastapi") from error

from fencelock.contrib.starlette import client_of, fencelock_lifespan, held, request_values

__all__ = ["client_of", "fencelock_lifespan", "lease"]

EMPTY = inspect.Parameter.empty


def lease(
    name: str | Callable[..., Any],
    *,
    ttl: Duration = TTL,
    timeout: Duration | None = TIMEOUT,
    status: int = LOCKED,
    retry_after: Duration = RETRY_AFTER,
) -> Any:
    """Return a dependency that holds a lock while the endpoint works, and gives it the lease.

    `name` is a template of the endpoint's own parameters, or a dependency that returns a name. The result
    is a `Depends`: use it as it is, in `Annotated` or as a default value.
    """
    terms = Terms(ttl, timeout, status, retry_after)
    if isinstance(name, str):
        template = Template(name)

        async def named(request: Request) -> str:
            return template.filled(_values(request, template.fields))

        finder: Callable[..., Any] = named
    elif callable(name):
        finder = name
    else:
        raise ConfigurationError(f"name={shown(name)} is neither a template nor a dependency")

    found_name = Depends(finder)

    async def hold(request: Request, wanted: str = found_name) -> AsyncIterator[AsyncLease]:
        async with held(request, wanted, terms) as found:
            yield found

    return Depends(hold, use_cache=False, scope="function")


def _values(request: Request, fields: list[str]) -> dict[str, Any]:
    """Return the values of a request as its endpoint takes them. Raises `RequestValidationError`."""
    found: dict[str, Any] = {}
    for field in fields:
        read, default = _parameter(request.scope["endpoint"], field)
        is_path = field in request.path_params
        if default is not EMPTY and not is_path and field not in request.query_params:
            found[field] = default
            continue
        text = request_values(request, [field])[field]
        try:
            found[field] = text if read is None else read.validate_python(text)
        except ValidationError as error:
            where = ("path" if is_path else "query", field)
            wrong = [{**one, "loc": (*where, *one["loc"])} for one in error.errors(include_url=False)]
            raise RequestValidationError(wrong) from None
    return found


@functools.lru_cache(maxsize=1024)
def _parameter(endpoint: Callable[..., Any], name: str) -> tuple[TypeAdapter[Any] | None, Any]:
    """Return what reads a parameter of an endpoint from text, and its default."""
    parameter = inspect.signature(endpoint).parameters.get(name)
    if parameter is None:
        return None, EMPTY
    default = parameter.default
    if isinstance(default, FieldInfo):
        default = EMPTY if default.is_required() else default.get_default(call_default_factory=True)
    hint = get_type_hints(endpoint, include_extras=True).get(name)
    return None if hint is None else TypeAdapter(hint), default
