"""What a client has at this moment: the one way in which tests look inside of it.

No test needs to know how a client keeps these. They are snapshots; another thread may change them meanwhile.
"""

from __future__ import annotations

from fencelock.aio import AsyncClient
from fencelock.client import Client
from fencelock.core.hold import Hold
from fencelock.core.ports import Request

__all__ = ["acquiring", "held", "kept", "pending_cleanups"]


def held(client: Client | AsyncClient) -> list[Hold]:
    """Return what the client holds."""
    return client._session.holds.all()


def acquiring(client: Client | AsyncClient) -> list[Request]:
    """Return the requests with which the client acquires locks, waiting or not."""
    return [acquisition.request for acquisition in list(client._session.acquiring.values())]


def pending_cleanups(client: Client | AsyncClient) -> list[Request]:
    """Return the requests that may still have a record in the store though the client wants none."""
    return [cleanup.request for cleanup in client._session.cleanups.all()]


def kept(client: Client | AsyncClient) -> list[str]:
    """Return what the client keeps of any lock: nothing, when all of them have been released."""
    session = client._session
    parts = ("holds", "cleanups", "reentry", "dropped", "acquiring")
    return [part for part in parts if len(getattr(session, part))]
