"""What decorators share: the values of a call by their parameters' names, and where the lease goes.

A parameter that is called `lease` gets the lease: callers leave it out. Whoever has no such parameter, in a
framework that calls functions by a signature of its own, finds it with `current_lease()`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from holdfast.contrib.naming import Template
from holdfast.errors import ConfigurationError, HoldfastError
from holdfast.lease import AsyncLease, Lease

__all__ = ["Call", "current_lease", "holding"]

LEASE = "lease"
_current: ContextVar[Lease | AsyncLease | None] = ContextVar("holdfast_lease", default=None)


class Call:
    """How a function is called under a lock whose name is made of its arguments."""

    def __init__(self, function: Callable[..., Any], template: Template, *, values: bool = True) -> None:
        self._signature = inspect.signature(function)
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
def holding(lease: Lease | AsyncLease) -> Iterator[None]:
    """Let `current_lease` find this lease."""
    token = _current.set(lease)
    try:
        yield
    finally:
        _current.reset(token)


def current_lease() -> Lease | AsyncLease:
    """Return the lease that the task or job which runs here is run under."""
    lease = _current.get()
    if lease is None:
        raise HoldfastError("there is no lease here: ask inside of a task or job that holdfast runs")
    return lease
