"""System checks: settings that cannot be right are an error of `manage.py check`, in one line.

    fencelock.E001   a setting that cannot be read, or a URL that cannot be right
    fencelock.W001   with `check --deploy`: a backend that reaches no further than one process

No server is asked: `manage.py fencelock doctor` does that.
"""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage, Error, Warning  # type: ignore[import-untyped]  # noqa: A004

from fencelock.client import Client
from fencelock.contrib.django.conf import aliases, options
from fencelock.errors import FencelockError

__all__ = ["check_reach", "check_settings"]


def check_settings(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Say what is wrong with `FENCELOCK`."""
    found = []
    try:
        known = aliases()
    except FencelockError as error:
        return [Error(str(error), id="fencelock.E001")]
    for alias in known:
        try:
            _unopened(alias)
        except FencelockError as error:
            found.append(Error(f"FENCELOCK[{alias!r}]: {error}", id="fencelock.E001"))
    return found


def check_reach(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Warn of locks that no other process sees."""
    if check_settings():
        return []
    return [
        Warning(
            f"FENCELOCK[{alias!r}]: its locks reach no further than one process",
            hint="use sqlite:// for the processes of one host, redis:// or postgresql:// for many",
            id="fencelock.W001",
        )
        for alias in aliases()
        if _unopened(alias).guarantees.scope == "process"
    ]


def _unopened(alias: str) -> Client:
    url, namespace, client_name = options(alias)
    return Client(url, namespace=namespace, client_name=client_name)
