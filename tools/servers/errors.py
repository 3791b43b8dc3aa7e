"""The errors of this package; every message is one line, except for a log tail below it."""

from __future__ import annotations


class ServerError(Exception):
    """A server could not be installed, started, reached or stopped."""


class NotReady(ServerError):
    """The server runs and has not reached the wanted state yet; the message says what is missing."""


class PortClash(ServerError):
    """Somebody else took a port between our choosing it and our server binding it."""
