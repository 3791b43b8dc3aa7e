"""Looking up host names by a deadline, which `getaddrinfo` does not know.

A name is looked up on a thread of its own, while the caller waits for as long as it may. Other callers that
need the same name wait for the same thread, so there is at most one thread for each name. One that no caller
waits for any more ends by itself. Numeric addresses need no thread.
"""

from __future__ import annotations

import socket
import threading
from typing import Any, NamedTuple

from fencelock.runtime import clock
from fencelock.runtime.base import Runtime, Signal
from fencelock.runtime.threads import launch

__all__ = ["Lookups", "Resolved"]


class Resolved(NamedTuple):
    """One address of a server, as sockets want it."""

    family: int
    address: Any


class Lookup:
    """A lookup that is under way."""

    def __init__(self) -> None:
        self.found: list[Resolved] | None = None
        self.error: OSError | None = None
        self.signals: list[Signal] = []


class Lookups:
    """The lookups of one client."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._pending: dict[tuple[str, int], Lookup] = {}

    async def find(self, host: str, port: int, deadline: float) -> list[Resolved]:
        """Return the addresses of a host. Raises `OSError`."""
        try:
            return _resolve(host, port, socket.AI_NUMERICHOST)
        except (socket.gaierror, UnicodeError):  # it is a name
            lookup = self._begin(host, port)
        signal = self._runtime.signal()
        lookup.signals.append(signal)
        while lookup.found is None:  # looked at after the signal can be given
            if lookup.error is not None:
                raise lookup.error
            left = deadline - clock.now()
            if left <= 0:
                raise TimeoutError(f"no address for {host} in time")
            await signal.wait(left)
        return lookup.found

    def _begin(self, host: str, port: int) -> Lookup:
        lookup = self._pending.get((host, port))
        if lookup is None:
            lookup = self._pending[host, port] = Lookup()
            try:
                name = "fencelock-lookup"
                launch(
                    threading.Thread(target=self._look_up, args=(host, port, lookup), name=name, daemon=True)
                )
            except BaseException:
                self._pending.pop((host, port), None)
                raise
        return lookup

    def _look_up(self, host: str, port: int, lookup: Lookup) -> None:
        try:
            lookup.found = _resolve(host, port, 0)
        except OSError as error:
            lookup.error = error
        except UnicodeError:  # IDNA does not know it
            lookup.error = OSError(f"{host!r} is not a host name")
        self._pending.pop((host, port), None)
        for signal in list(lookup.signals):
            signal.notify()


def _resolve(host: str, port: int, flags: int) -> list[Resolved]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [Resolved(family, address) for family, _, _, _, address in found]
