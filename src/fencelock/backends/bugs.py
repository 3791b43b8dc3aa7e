"""Mistakes in a program, told from outages: a driver of the wrong version, or an error of ours.

What a driver raises when a connection breaks is an outage, and passes. What Python raises where code does not
fit does not pass: asking again until the deadline would hide it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version

from fencelock.errors import BackendError

__all__ = ["BUGS", "bug", "told_as_bugs"]

BUGS = (AttributeError, NameError, TypeError)
"""No assertions: drivers make some about what a server sends."""
LONGEST = 200


def bug(backend: str, driver: str, error: BaseException) -> BackendError:
    """Return what is raised instead of an outage. Its cause is to be the error itself."""
    words = " ".join(str(error).split())[:LONGEST]
    detail = f"{type(error).__name__} in {_named(driver)}: {words} (a mistake in the code, and no outage"
    detail += ")" if driver == "fencelock" else f"; does this version of {driver} fit?)"
    failure = BackendError(backend=backend, detail=detail)
    failure.__cause__ = error
    return failure


@contextmanager
def told_as_bugs(backend: str, driver: str) -> Iterator[None]:
    """Raise what a driver makes of a mistake as `bug` does."""
    try:
        yield
    except BUGS as error:
        raise bug(backend, driver, error) from error


def _named(driver: str) -> str:
    try:
        return f"{driver} {version(driver)}"
    except PackageNotFoundError:
        return driver
