"""What the integrations share: the values of a call by their parameters' names, and where the lease goes.

A parameter that is called `lease` gets the lease: callers leave it out. Whoever has no such parameter, in a
framework that calls functions by a signature of its own, finds it with `current_lease()`.

`held` and `held_async` are `with lock`, but for one thing: a release that fails is logged and not raised. The
work was done under the lock and is to be reported as done; the lock ends with its ttl.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any

from fencelock.errors import BackendError, ConfigurationError, FencelockError
from fencelock.lease import AsyncLease, Lease
from fencelock.lock import AsyncLock, Lock
from fencelock.templates import Template

__all__ = ["Call", "current", "current_lease", "held", "held_async", "missing"]

LEASE = "lease"
NOT_RELEASED = "a lock was not released, and ends with its ttl: %s"
_current: ContextVar[Lease | AsyncLease | None] = ContextVar("fencelock_lease", default=None)

log = logging.getLogger("fencelock")


class Call:
    """How a function is called under a lock whose name is made of its arguments."""

    def __init__(self, function: Callable[..., Any], template: Template, *, values: bool = True) -> None:
        # What Django's method_decorator gives is a partial that claims to be the method it is bound to.
        follow = not isinstance(function, functools.partial)
        self._signature = inspect.signature(function, follow_wrapped=follow)
        self._template = template
        self._takes_lease = LEASE in self._signature.parameters
        names = set(self._signature.parameters)
        open_ended = any(p.kind is p.VAR_KEYWORD for p in self._signature.parameters.values())
        unknown = [field for field in template.fields if field not in names]
        if values and unknown and not open_ended:
            called = getattr(function, "__qualname__", repr(function))
            raise ConfigurationError(
                f"name={template.text!r} has the field {{{unknown[0]}}}, and {called} has no such argument"
            )

    def name(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Return the name of the lock for a call. Raises `TypeError` if it cannot be called so."""
        if not self._template.fields:
            return self._template.filled({})
        given = {LEASE: None, **kwargs} if self._takes_lease else kwargs
        bound = self._signature.bind(*args, **given)
        bound.apply_defaults()
        values: dict[str, Any] = {}
        for name, parameter in self._signature.parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                values.update(bound.arguments[name])
            else:
                values[name] = bound.arguments[name]
        return self._template.filled(values)

    def given(self, kwargs: dict[str, Any], lease: Lease | AsyncLease) -> dict[str, Any]:
        """Return the keyword arguments of a call, with the lease if it is wanted."""
        return {**kwargs, LEASE: lease} if self._takes_lease else kwargs


@contextmanager
def current(lease: Lease | AsyncLease) -> Iterator[None]:
    """Let `current_lease()` find a lease."""
    token = _current.set(lease)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def held(lock: Lock) -> Iterator[Lease]:
    """Hold a lock. Raises `LeaseLost` at the end if it was lost."""
    lease = lock.__enter__()
    token = _current.set(lease)
    try:
        yield lease
    except BaseException as error:
        _current.reset(token)
        lock.__exit__(type(error), error, error.__traceback__)
        raise
    _current.reset(token)
    try:
        lock.__exit__(None, None, None)
    except BackendError as error:
        log.warning(NOT_RELEASED, error)


@asynccontextmanager
async def held_async(lock: AsyncLock) -> AsyncIterator[AsyncLease]:
    """Hold a lock, under asyncio: the task is cancelled if it is lost, and `LeaseLost` raised."""
    lease = await lock.__aenter__()
    token = _current.set(lease)
    try:
        yield lease
    except BaseException as error:
        _current.reset(token)
        await lock.__aexit__(type(error), error, error.__traceback__)
        raise
    _current.reset(token)
    try:
        await lock.__aexit__(None, None, None)
    except BackendError as error:
        log.warning(NOT_RELEASED, error)


def missing(error: ModuleNotFoundError, module: str) -> ConfigurationError:
    """Return the error for a framework that is not installed."""
    package = (error.name or module).partition(".")[0]
    return ConfigurationError(
        f"fencelock.contrib.{module} needs the package {package!r}: pip install 'fencelock[{module}]'"
    )


def current_lease() -> Lease | AsyncLease:
    """Return the lease that the task or job which runs here is run under."""
    lease = _current.get()
    if lease is None:
        raise FencelockError("there is no lease here: ask inside of a task or job that fencelock runs")
    return lease
