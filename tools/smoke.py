"""Imports modules and tries addresses. `tools/floors.py` runs this with the Python of its environment.

    python tools/smoke.py MODULE[,…] URL-WITHOUT-SERVER[,…] URL-WITH-SERVER[,…]

A module is imported with everything below it. Where no server is, both flavours must say so; where one is,
both must get a lock and verify it. Any warning is an error.
"""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import sys
import warnings
from collections.abc import Callable

import fencelock


def main(modules: str, nowhere: str, servers: str) -> None:
    """Do it; what is wrong is raised."""
    warnings.simplefilter("error")
    if "django" in modules:
        from django.conf import settings  # type: ignore[import-untyped]

        settings.configure(INSTALLED_APPS=["fencelock.contrib.django"])
    for module in filter(None, modules.split(",")):
        take(module)
    for url in filter(None, nowhere.split(",")):
        unreachable(url, blocking)
        unreachable(url, lambda url, timeout: asyncio.run(nonblocking(url, timeout)))
    for url in filter(None, servers.split(",")):
        assert blocking(url, 10) and asyncio.run(nonblocking(url, 10)), url


def take(name: str) -> None:
    """Import a module; one of ours with everything below it."""
    module = importlib.import_module(name)
    if name.startswith("fencelock."):
        for inner in pkgutil.iter_modules(getattr(module, "__path__", ()), f"{name}."):
            take(inner.name)


def blocking(url: str, timeout: float) -> bool:
    """Hold a lock, and ask the server whether it is held."""
    with fencelock.Client(url) as locks, locks.lock("floors", timeout=timeout) as lease:
        return lease.verify()


async def nonblocking(url: str, timeout: float) -> bool:
    """The same under asyncio."""
    async with fencelock.AsyncClient(url) as locks, locks.lock("floors", timeout=timeout) as lease:
        return await lease.verify()


def unreachable(url: str, use: Callable[[str, float], bool]) -> None:
    """See that the backend says that no server is there, and does not take a mistake of ours for that."""
    try:
        use(url, 0)
    except fencelock.BackendUnavailable as error:
        assert not isinstance(error.__cause__, AttributeError | TypeError), error
    else:
        raise AssertionError(f"a server answered at {url}")


if __name__ == "__main__":
    main(*sys.argv[1:])
