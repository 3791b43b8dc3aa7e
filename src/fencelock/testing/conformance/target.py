"""What is under test: a URL, or a function that makes backends."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import closing
from functools import cached_property
from typing import Any

from fencelock.aio import AsyncClient
from fencelock.backends import backend_from_url
from fencelock.backends.url import split
from fencelock.client import Client
from fencelock.connect import _split_namespace
from fencelock.core.ports import Backend
from fencelock.errors import BackendUnavailable
from fencelock.testing.conformance.nursery import Nursery
from fencelock.testing.conformance.relays import Relays

__all__ = ["Target"]

USUAL = 30.0
"""The ttl of a lock that says nothing else."""


def _with_shorter_ttl(kind: Any, longest: float) -> Any:
    """Return a kind of client whose locks have a usual ttl that the server allows."""

    def terms(self: Any, *args: Any, ttl: Any, **options: Any) -> Any:
        return kind._terms(self, *args, ttl=longest if ttl == USUAL else ttl, **options)

    return type(kind.__name__, (kind,), {"_terms": terms})


class Target:
    """Makes clients of either flavour, and knows what the backend declares."""

    def __init__(self, given: str | Callable[[], Backend]) -> None:
        self._make: Callable[[], Backend]
        self.url: str | None = None
        self.namespace: str | None = None
        if isinstance(given, str):
            self.url = given
            bare, self.namespace = _split_namespace(given)
            self._make = lambda: backend_from_url(bare)
        else:
            self._make = given
        backend = self.backend()
        self._default_port = backend.default_port
        with Client(backend) as client:
            self.capabilities = self._declared(client)
            if client.guarantees.crash_release == "session" and "inspect" in self.capabilities:
                client.inspect("conform")  # it connects, and learns which sessions the server agrees to
            self.guarantees = client.guarantees
        self._nursery = Nursery(self.url) if self.url is not None else None

    @property
    def nursery(self) -> Nursery:
        """Where other processes come from."""
        assert self._nursery is not None
        return self._nursery

    def close(self) -> None:
        """End the nursery."""
        if self._nursery is not None:
            self._nursery.close()

    def backend(self) -> Backend:
        """Return a backend of its own for one client."""
        return self._make()

    @cached_property
    def unrelayed(self) -> str:
        """Why no relay can stand before the servers; empty if relays can."""
        if self.url is None:
            return "needs relays, and they need a URL"
        if self._default_port is None or not split(self.url).hosts:
            return "needs relays, and the URL names no hosts that clients connect to"
        with closing(self.relays()) as relays, self.client("blocking", url=relays.url) as client:
            try:
                with client.lock(f"conform-{secrets.token_hex(6)}"):
                    return ""
            except BackendUnavailable as error:  # a certificate is not valid for a relay's address
                return "" if error.transient else f"needs relays, and gets no connection through one: {error}"

    def relays(self) -> Relays:
        """Return new relays, one in front of each server."""
        assert self.url is not None and self._default_port is not None, self.unrelayed
        return Relays(self.url, self._default_port)

    def client(
        self, flavour: str, backend: Backend | None = None, *, url: str | None = None, **options: Any
    ) -> Any:
        """Return a new client: by way of the URL if there is one, or of another that leads there too."""
        kind: Any = Client if flavour == "blocking" else AsyncClient
        if self.guarantees.max_ttl < USUAL:
            kind = _with_shorter_ttl(kind, self.guarantees.max_ttl)
        url = url or self.url
        if backend is None and url is not None:
            return kind(url, **options)
        options.setdefault("namespace", self.namespace)
        return kind(backend if backend is not None else self.backend(), **options)

    @staticmethod
    def _declared(client: Client) -> frozenset[str]:
        return client._session.backend.capabilities
