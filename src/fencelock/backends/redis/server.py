"""How to reach one server: its address, credentials and TLS, from a URL.

redis-py opens the connection and does the handshake: name resolution, TLS, AUTH for ACL users,
SELECT. Then its part is over: the bare socket, or the bare transport under asyncio, is taken from it,
and commands go over that. Everything a wire needs to know is in `dial` and `dial_async`.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping
from inspect import signature
from typing import Any

from redis import connection as blocking
from redis.asyncio import connection as nonblocking
from redis.exceptions import RedisError

from fencelock.backends.bugs import BUGS, bug, told_as_bugs
from fencelock.backends.redis.failures import BACKEND, refused, unreachable
from fencelock.backends.url import hide_password, host_port, split
from fencelock.errors import ConfigurationError

__all__ = ["DEFAULT_PORT", "OPTIONS", "Server", "Stream", "options_of"]

DEFAULT_PORT = 6379
TLS_OPTIONS = frozenset(
    {
        "ssl_ca_certs",
        "ssl_ca_path",
        "ssl_cert_reqs",
        "ssl_certfile",
        "ssl_check_hostname",
        "ssl_ciphers",
        "ssl_keyfile",
        "ssl_password",
    }
)
FILES = frozenset({"ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile"})
VERIFY = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
OPTIONS = frozenset({"db", "username", "password"}) | TLS_OPTIONS
"""What a URL may say after the question mark about reaching a server; the names are redis-py's."""

# What redis-py would do by itself, and is not wanted: wait without a limit, try again, ask the server
# about maintenance, tell it the driver's version (redis-py 7.2 renamed that option).
SILENT: dict[str, Any] = (
    {"driver_info": None}
    if "driver_info" in signature(blocking.AbstractConnection.__init__).parameters
    else {"lib_name": None, "lib_version": None}
)
PLAIN = {"protocol": 2, "health_check_interval": 0, "socket_keepalive": True, **SILENT}


class TLSConnection(blocking.Connection):
    """A connection that speaks TLS as `context` says. redis-py's own makes a new context each time."""

    def __init__(self, context: ssl.SSLContext, **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]
        self._context = context

    def _connect(self) -> socket.socket:
        sock = super()._connect()  # type: ignore[no-untyped-call]
        try:
            return self._context.wrap_socket(sock, server_hostname=self.host)
        except BaseException:
            sock.close()
            raise


class AsyncTLSConnection(nonblocking.Connection):
    """The same under asyncio."""

    def __init__(self, context: ssl.SSLContext, **options: Any) -> None:
        super().__init__(**options)
        self._context = context

    def _connection_arguments(self) -> Mapping[str, Any]:
        return {**super()._connection_arguments(), "ssl": self._context}


class Stream:
    """A connection that asyncio opened, to be given a protocol of its own."""

    __slots__ = ("_streams", "transport")

    def __init__(self, streams: Any) -> None:
        self._streams = streams  # kept: a StreamWriter that is garbage closes its transport
        self.transport: asyncio.Transport = streams[1].transport

    def close(self) -> None:
        """Close it at once; what was not written yet is not written any more."""
        self.transport.abort()


class Server:
    """How to reach one server. Does not change."""

    def __init__(self, *, tls: bool = False, path: str | None = None, **options: Any) -> None:
        """`options` are redis-py's: host, port, db, username, password, ssl_…."""
        self.tls = tls
        self.path = path
        self.options = options
        self.host: str = options.get("host", "localhost")
        self.port: int = options.get("port", DEFAULT_PORT)
        self._context: ssl.SSLContext | None = None

    @property
    def label(self) -> str:
        """Its address, for people to read. Never a credential."""
        if self.path is not None:
            return self.path
        return host_port(self.host, self.port)

    def at(self, host: str, port: int) -> Server:
        """The same credentials at another address: what Sentinel and Cluster tell of."""
        other = Server(tls=self.tls, **{**self.options, "host": host, "port": port})
        other._context = self._context
        return other

    def dial(self, timeout: float) -> socket.socket:
        """Connect, within `timeout` seconds, and return the socket. It blocks, and has no time limit."""
        connection = self._connection(blocking, timeout)
        try:
            connection.connect()
        except (RedisError, OSError, ValueError) as error:
            connection.disconnect()
            raise self._failure(error) from error
        except BUGS as error:
            connection.disconnect()
            raise bug(BACKEND, "redis", error) from error
        sock: socket.socket = connection._sock
        connection._sock = None  # else it would be shut down when the connection object is garbage
        # Its parser refers to itself. Left to the collector, it would end at a time of that one's choosing,
        # and a Ctrl-C that comes meanwhile be raised inside its destructor, where Python drops it.
        vars(connection._parser).clear()
        sock.settimeout(None)
        return sock

    async def dial_async(self, timeout: float) -> Stream:
        """Connect, within `timeout` seconds, and return the transport."""
        connection = self._connection(nonblocking, timeout)
        try:
            async with asyncio.timeout(timeout):
                await connection.connect()
        except (RedisError, OSError, ValueError, asyncio.IncompleteReadError) as error:
            _hang_up(connection)
            raise self._failure(error) from error
        except BUGS as error:
            _hang_up(connection)
            raise bug(BACKEND, "redis", error) from error
        except BaseException:
            _hang_up(connection)
            raise
        streams = connection._reader, connection._writer
        connection._reader = connection._writer = None  # as above
        return Stream(streams)

    @told_as_bugs(BACKEND, "redis")
    def _connection(self, module: Any, timeout: float) -> Any:
        reach = {key: value for key, value in self.options.items() if key not in TLS_OPTIONS}
        options = {**PLAIN, **reach, "socket_timeout": timeout, "socket_connect_timeout": timeout}
        if self.path is not None:
            options.pop("socket_keepalive")
            return module.UnixDomainSocketConnection(path=self.path, **options)
        options["host"] = self.host
        if not self.tls:
            return module.Connection(**options)
        kind = TLSConnection if module is blocking else AsyncTLSConnection
        return kind(self._tls_context(), **options)

    def _tls_context(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = tls_context(self.options)
        return self._context

    def _failure(self, error: Exception) -> Exception:
        if isinstance(error, RedisError):
            return refused(self.label, error, tls=self.tls)
        return unreachable(self.label, error, tls=self.tls)

    def __repr__(self) -> str:
        return f"<Server {self.label}>"


def _hang_up(connection: Any) -> None:
    """Close an asyncio connection without waiting. redis-py 5.0 has no call for it."""
    if connection._writer is not None:
        connection._writer.close()
        connection._reader = connection._writer = None


def tls_context(options: Mapping[str, Any]) -> ssl.SSLContext:
    """Return what the `ssl_…` options ask for: by default, a certificate that a known authority signed."""
    try:
        context = ssl.create_default_context(
            cafile=options.get("ssl_ca_certs"), capath=options.get("ssl_ca_path")
        )
        if "ssl_certfile" in options:
            context.load_cert_chain(
                options["ssl_certfile"], options.get("ssl_keyfile"), options.get("ssl_password")
            )
        if "ssl_ciphers" in options:
            context.set_ciphers(options["ssl_ciphers"])
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        named = ", ".join(f"{key}={options[key]}" for key in sorted(FILES & set(options))) or "ssl options"
        raise ConfigurationError(f"{named}: cannot be used: {error}") from error
    verify = options.get("ssl_cert_reqs", "required")
    context.check_hostname = verify == "required" and options.get("ssl_check_hostname", True)
    context.verify_mode = VERIFY[verify]
    return context


def options_of(url: str, known: frozenset[str]) -> dict[str, Any]:
    """Return what the URL says about reaching its servers, except where they are."""
    parts, shown = split(url), hide_password(url)
    given = parts.options
    unknown = sorted(set(given) - known)
    if unknown:
        raise ConfigurationError(
            f"unknown option {', '.join(unknown)} in {shown!r}: {parts.scheme}:// knows "
            f"{', '.join(sorted({*known, 'namespace'}))}"
        )
    options: dict[str, Any] = {key: value for key, value in given.items() if key in OPTIONS}
    if parts.fragment:
        raise ConfigurationError(f"{shown!r} has a '#': write it as %23")
    if parts.user:
        options["username"] = parts.user
    if parts.password:
        options["password"] = parts.password
    if "ssl_check_hostname" in options:
        options["ssl_check_hostname"] = _yes_or_no(options["ssl_check_hostname"], shown)
    if options.get("ssl_cert_reqs", "required") not in VERIFY:
        raise ConfigurationError(
            f"ssl_cert_reqs={options['ssl_cert_reqs']} in {shown!r}: write required, optional or none"
        )
    if "db" in options:
        options["db"] = database(options["db"], shown)
    return options


def database(text: str, shown: str) -> int:
    """Return the number of a database."""
    if not (text.isascii() and text.isdigit()):
        raise ConfigurationError(f"database {text!r} in {shown!r} is not a number: write …/0")
    return int(text)


def _yes_or_no(text: str, shown: str) -> bool:
    if text.lower() not in {"yes", "no", "true", "false"}:
        raise ConfigurationError(f"ssl_check_hostname={text} in {shown!r}: write yes or no")
    return text.lower() in {"yes", "true"}
