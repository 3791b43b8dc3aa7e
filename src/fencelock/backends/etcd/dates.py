"""What time it is at etcd: no call tells it, but members answer HTTP on the same port, and date it.

A connection is made for one question. The clock is read when it stands, so how long that takes
is no part of the round trip. A member that serves gRPC only tells no time.
"""

from __future__ import annotations

import contextlib
import http.client
import socket

from fencelock.backends.checkup import HTTP_GRAIN, http_time, timed
from fencelock.backends.etcd.address import Address
from fencelock.backends.etcd.failures import unreachable
from fencelock.backends.ordered.address import tls_context
from fencelock.findings import Pulse
from fencelock.runtime.blocking import run

__all__ = ["pulse"]

LIMIT = 2.0


def pulse(address: Address) -> list[Pulse]:
    """Ask every member that answers. Blocks, for a few seconds at most."""
    pulses: list[Pulse] = []
    for endpoint in address.endpoints:
        try:
            pulses.append(_ask(address, endpoint))
        except OSError as error:
            if endpoint == address.endpoints[-1] and not pulses:
                raise unreachable(endpoint, error, tls=address.tls) from error
    return pulses


def _ask(address: Address, endpoint: str) -> Pulse:
    host, _, port = endpoint.rpartition(":")
    host = host.strip("[]")
    with contextlib.ExitStack() as stack:
        sock = stack.enter_context(socket.create_connection((host, int(port)), LIMIT))
        if address.tls:
            context = tls_context(address.cacert, address.cert, address.key)
            sock = stack.enter_context(context.wrap_socket(sock, server_hostname=address.server_name or host))
        asked = http.client.HTTPConnection(host, int(port))
        asked.sock = sock

        async def told() -> float | None:
            try:
                asked.request("GET", "/version")
                return http_time(asked.getresponse().getheader("Date"))
            except http.client.HTTPException:
                return None

        return run(timed(endpoint, told, HTTP_GRAIN))
