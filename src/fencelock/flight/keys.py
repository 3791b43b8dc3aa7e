"""Keys of decorated functions: made by a function of yours, from a pattern, or of the arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from fencelock.errors import ConfigurationError
from fencelock.idempotency import fingerprint
from fencelock.names import shown
from fencelock.templates import Template

__all__ = ["Key", "key_maker"]

Key = str | Callable[..., str] | None
"""What `cached` takes as `key`."""


def key_maker(function: Callable[..., Any], key: Key) -> Callable[..., str]:
    """Return what makes the key of a call. Raises `ConfigurationError`."""
    if callable(key):
        return key
    if isinstance(key, str):
        return _pattern(function, Template(key, "key"))
    if key is not None:
        raise ConfigurationError(
            f"key={shown(key)} makes no key: give a pattern like 'user:{{id}}', or a function"
        )
    name = f"{function.__module__}.{function.__qualname__}"

    def by_arguments(*args: Any, **kwargs: Any) -> str:
        try:
            return f"{name}:{fingerprint(args, kwargs)}" if args or kwargs else name
        except ConfigurationError:
            raise ConfigurationError(
                f"an argument of {function.__qualname__} is not JSON, so it makes no key: give cached a key="
            ) from None

    return by_arguments


def _pattern(function: Callable[..., Any], template: Template) -> Callable[..., str]:
    signature = inspect.signature(function)
    for field in template.fields:
        if field not in signature.parameters:
            called = f"{function.__qualname__}{signature}"
            raise ConfigurationError(f"key={template.text!r} does not fit {called}: there is no {field!r}")

    def by_pattern(*args: Any, **kwargs: Any) -> str:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return template.filled(bound.arguments)

    return by_pattern
