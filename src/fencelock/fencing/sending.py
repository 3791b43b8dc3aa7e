"""Hooks that send the token of a lease with each request, as the header that the middleware reads.

    httpx.Client(event_hooks={"request": [send_token(lease)]})
    httpx.AsyncClient(event_hooks={"request": [send_token_async(lease)]})
    requests.get(url, auth=send_token(lease))

The lease is asked first, without I/O: one that is over raises `LeaseLost`, and nothing is sent.

Not promised: that the lease lives until the request arrives. That is what the token is for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from fencelock.fencing.http import HEADER

if TYPE_CHECKING:
    from fencelock.lease import LeaseBase

__all__ = ["send_token", "send_token_async"]


def send_token(lease: LeaseBase) -> Callable[[Any], Any]:
    """Return a hook that adds the token of `lease` to a request: for `httpx.Client`, and for requests.

    It raises `LeaseLost` in place of sending if the lease is over: `lease.check()`, no I/O. httpx takes it
    as `event_hooks={"request": [hook]}`, requests as `auth=hook`.

    Example:
        >>> import types, fencelock
        >>> request = types.SimpleNamespace(headers={})
        >>> with fencelock.Client("memory://") as locks, locks.lock("document:1") as lease:
        ...     request = send_token(lease)(request)
        ...     request.headers["Fencing-Token"] == str(lease.token)
        True
    """

    def hook(request: Any) -> Any:
        lease.check()
        request.headers[HEADER] = str(lease.token)
        return request

    return hook


def send_token_async(lease: LeaseBase) -> Callable[[Any], Awaitable[Any]]:
    """Do the same as `send_token`, for `httpx.AsyncClient`."""
    hook = send_token(lease)

    async def hook_async(request: Any) -> Any:
        return hook(request)

    return hook_async
