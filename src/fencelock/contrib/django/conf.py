"""Settings, and a client for each alias of them.

    FENCELOCK = {"default": {"URL": …, "NAMESPACE": …, "CLIENT_NAME": …, "RECORD": …}, "other": {…}}
    FENCELOCK_URL = "redis://…"          short for the URL of "default"

`RECORD` says where to keep what `OnceCommand` has run, if that is not beside the locks: a URL, or what else
`Schedule(record=)` takes.

Without either, "default" is `$FENCELOCK_URL`, else an embedded file, as everywhere in fencelock.

A client is made at its first use and stays: nothing is opened when settings are read, and a worker that was
forked after that connects for itself. An `AsyncClient` belongs to a loop, and under WSGI each async view has
a loop of its own; so there is one for each loop, and it is closed with its loop: an asynchronous generator
that was begun on a loop is ended by `loop.shutdown_asyncgens()`, which `asyncio.run` and ASGI servers call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

from fencelock.client import Client
from fencelock.connect import default_url
from fencelock.contrib.calls import missing
from fencelock.errors import ConfigurationError
from fencelock.extras import refuse_old
from fencelock.names import shown

try:
    refuse_old("django", "fencelock.contrib.django")
    from django.core.signals import setting_changed  # type: ignore[import-untyped]
except ModuleNotFoundError as error:
    raise missing(error, "django") from error

from fencelock.aio import AsyncClient

__all__ = ["DEFAULT", "aliases", "alocks", "locks", "options", "record_of", "url_of"]

DEFAULT = "default"
KEYS = ("URL", "NAMESPACE", "CLIENT_NAME", "RECORD")

_clients: dict[str, Client] = {}
_per_loop: dict[Any, dict[str, tuple[AsyncClient, AsyncIterator[None]]]] = {}


def locks(using: str = DEFAULT) -> Client:
    """Return the client of an alias in `FENCELOCK`. Any number of threads may share it."""
    found = _clients.get(using)
    if found is None:  # two threads may come here at once: then one client is forgotten, unopened
        url, namespace, client_name = options(using)
        found = _clients.setdefault(using, Client(url, namespace=namespace, client_name=client_name))
    return found


async def alocks(using: str = DEFAULT) -> AsyncClient:
    """Return the asynchronous client of an alias in `FENCELOCK`, for the loop that runs here."""
    loop = asyncio.get_running_loop()
    if loop not in _per_loop:
        for closed in [known for known in _per_loop if known.is_closed()]:
            _per_loop.pop(closed, None)
    here = _per_loop.setdefault(loop, {})
    if using not in here:
        url, namespace, client_name = options(using)
        client = AsyncClient(url, namespace=namespace, client_name=client_name)
        life = _life(loop, client)
        here[using] = client, life
        await anext(life)
    return here[using][0]


async def _life(loop: Any, client: AsyncClient) -> AsyncIterator[None]:
    try:
        yield
    finally:
        _per_loop.pop(loop, None)
        await client.close()


def aliases() -> list[str]:
    """Return the aliases that the settings have. Raises `ConfigurationError`."""
    return [*{DEFAULT: None, **_settings()}]


def options(using: str) -> tuple[str, str | None, str | None]:
    """Return URL, namespace and client name of an alias. Raises `ConfigurationError`."""
    from django.conf import settings  # type: ignore[import-untyped]

    known = _settings()
    if using not in known and using != DEFAULT:
        raise ConfigurationError(f"FENCELOCK has no alias {using!r}, but {', '.join(aliases())}")
    given = known.get(using, {})
    if not isinstance(given, dict):
        raise ConfigurationError(f"FENCELOCK[{using!r}] is {shown(given)}: give a dict, such as {{'URL': …}}")
    unknown = [key for key in given if key not in KEYS]
    if unknown:
        raise ConfigurationError(
            f"FENCELOCK[{using!r}] has the key {unknown[0]!r}, which is none of {', '.join(KEYS)}"
        )
    short = getattr(settings, "FENCELOCK_URL", None) if using == DEFAULT else None
    url = given.get("URL", short)
    if url is None and using == DEFAULT:
        url = default_url()
    if not isinstance(url, str) or not url:
        raise ConfigurationError(f"FENCELOCK[{using!r}] has no URL: give one, such as redis://localhost")
    return url, given.get("NAMESPACE"), given.get("CLIENT_NAME")


def record_of(using: str) -> Any:
    """Return where an alias keeps the records of schedules; `None` is beside its locks."""
    options(using)
    return _settings().get(using, {}).get("RECORD")


def url_of(using: str) -> str:
    """Return the URL of an alias with its namespace in it, for the command line."""
    url, namespace, _ = options(using)
    if namespace is None:
        return url
    base, mark, fragment = url.partition("#")
    return f"{base}{'&' if '?' in base else '?'}namespace={quote(namespace, safe='')}{mark}{fragment}"


def _settings() -> dict[str, Any]:
    from django.conf import settings

    found = getattr(settings, "FENCELOCK", {})
    if not isinstance(found, dict):
        raise ConfigurationError(
            f"FENCELOCK is {shown(found)}: give a dict, such as {{'default': {{'URL': …}}}}"
        )
    return found


def _forget(*, setting: str, **_: Any) -> None:
    """Tests change settings: what was opened by the old ones is closed."""
    if setting in {"FENCELOCK", "FENCELOCK_URL"}:
        while _clients:
            _clients.popitem()[1].close()
        _per_loop.clear()


setting_changed.connect(_forget)
