"""What goes wrong between a client and a server, in words for people. Never a credential."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from fencelock.errors import BackendUnavailable

__all__ = ["Disconnected", "Failures", "WrongProtocol"]


class Disconnected(Exception):
    """The connection ended before the answer was whole."""


class WrongProtocol(Disconnected):
    """The server speaks another protocol."""


@dataclass(frozen=True, slots=True)
class Failures:
    """The words of one backend."""

    backend: str
    wrong_protocol: str
    hint: str = ""
    """What else may be the reason when a server just closes the connection."""

    def unreachable(self, label: str, error: BaseException, *, tls: bool) -> BackendUnavailable:
        """There is no connection, or it broke."""
        lasting = False
        if isinstance(error, TimeoutError):
            return self.no_answer(label)
        if isinstance(error, ssl.SSLCertVerificationError):
            detail, lasting = f"its certificate is not accepted: {error.verify_message}", True
        elif isinstance(error, ssl.SSLError):
            lasting = not isinstance(error, ssl.SSLEOFError)  # else it may be going down
            reason = getattr(error, "reason", None) or error  # one of our own has none
            detail = f"no TLS connection ({reason}): does it speak TLS, does it want cert=…&key=…?"
        elif isinstance(error, ConnectionRefusedError):
            detail = "connection refused"
        elif isinstance(error, WrongProtocol):
            detail, lasting = self.wrong_protocol, True
        elif isinstance(error, OSError) and not isinstance(error, ConnectionError):
            detail = (error.strerror or str(error)).lower()
        else:
            wants = "a certificate (cert=…&key=…)" if tls else "TLS (tls=yes or cacert=…)"
            detail = f"it closed the connection: perhaps it wants {wants}{self.hint}"
        return self.unavailable(f"{label}: {detail}", transient=not lasting)

    def unavailable(self, detail: str, *, transient: bool = True) -> BackendUnavailable:
        """Return the error with these words."""
        return BackendUnavailable(backend=self.backend, detail=detail, transient=transient)

    def no_answer(self, label: str) -> BackendUnavailable:
        """There was no answer by the deadline."""
        return self.unavailable(f"{label}: no answer in time")

    def closed(self) -> BackendUnavailable:
        """The client was closed meanwhile."""
        return self.unavailable("the client is closed")
