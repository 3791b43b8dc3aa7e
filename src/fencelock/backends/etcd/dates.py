"""What time it is at etcd: no call tells it, but members answer HTTP on the same port, and date it.

A connection is made for one question. The clock is read when it stands, so how long that takes
is no part of the round trip. A member that serves gRPC only tells no time.
"""

from __future__ import annotations

from fencelock.backends.checkup import HTTP_GRAIN, http_time, timed
from fencelock.backends.etcd.address import Address
from fencelock.backends.etcd.failures import FAILURES
from fencelock.backends.ordered.address import tls_context
from fencelock.findings import Pulse
from fencelock.net.connecting import Connector, Target
from fencelock.net.exchange import Connection
from fencelock.net.failures import Disconnected
from fencelock.runtime import clock
from fencelock.runtime.base import Runtime

__all__ = ["pulse"]

LIMIT = 2.0
LONGEST_HEAD = 1 << 16


class Dates:
    """Asks for the version, by HTTP/1.1, and reads the date of the answer."""

    is_over = is_urgent = False

    def __init__(self) -> None:
        self._came = self._question = b""

    def ask(self, question: bytes) -> int:
        """Ask that."""
        self._question = question
        return 0

    def outgoing(self) -> bytes:
        """Return what is to be sent, once."""
        question, self._question = self._question, b""
        return question

    def feed(self, data: bytes) -> list[tuple[int, str]]:
        """Take in what has come; return the date, which may be missing, once the head is whole."""
        self._came += data
        head, end, _ = self._came.partition(b"\r\n\r\n")
        if not data or not self._came.startswith(b"HTTP/1."[: len(self._came)]) or len(head) > LONGEST_HEAD:
            raise Disconnected("it does not speak HTTP/1.1")
        if not end:
            return []
        lines = (line.partition(":") for line in head.decode("latin-1").split("\r\n"))
        return [(0, next((value.strip() for name, _, value in lines if name.lower() == "date"), ""))]


async def pulse(runtime: Runtime, address: Address, deadline: float) -> list[Pulse]:
    """Ask every member that answers."""
    connector = Connector(runtime)
    tls = tls_context(address.cacert, address.cert, address.key) if address.tls else None
    pulses: list[Pulse] = []
    for endpoint in address.endpoints:
        target = Target(endpoint, tls, address.server_name)
        connection: Connection[bytes, str] = Connection(runtime, connector, target, Dates())
        try:
            pulses.append(await _ask(connection, min(deadline, clock.now() + LIMIT)))
        except OSError as error:
            if endpoint == address.endpoints[-1] and not pulses:
                raise FAILURES.unreachable(endpoint, error, tls=address.tls) from error
        finally:
            connection.close()
    return pulses


async def _ask(connection: Connection[bytes, str], deadline: float) -> Pulse:
    await connection.open(deadline)

    async def told() -> float | None:
        question = f"GET /version HTTP/1.1\r\nHost: {connection.endpoint}\r\n\r\n".encode("ascii")
        try:
            return http_time(await connection.ask(question, deadline) or None)
        except Disconnected:
            return None

    return await timed(connection.endpoint, told, HTTP_GRAIN)
