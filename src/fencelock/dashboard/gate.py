"""Who may come in. No I/O: names, headers and secrets in, a verdict out.

*Who.* With a token, or a user and a password, everything but the login page, its assets and /healthz demands
one of them: a browser by a session that the login page gives it, a program by `Authorization`. Without either
(only on loopback) whoever reaches the port is in, so a page elsewhere must not be able to use a browser for
it:

- `Host` must be a name of ours, or a name that somebody else points at 127.0.0.1 (DNS rebinding) would do;
- whatever changes something must not come from another origin: `Sec-Fetch-Site` and `Origin` say so, and a
  CSRF token that belongs to the session must be there, which other origins cannot read.

*Sessions.* The cookie is random, unreadable for scripts, and never sent from elsewhere (SameSite=Strict).
Those who logged in are kept in a table of bounded size. Those who need not, and the login form itself, have a
cookie that is signed and not kept: asking for pages costs no memory. The CSRF token is a keyed hash of the
cookie. The key is made at the start: after a restart every session and every token is stale.

*Guessing.* Secrets are compared in constant time. Each failure costs the address it came from, and all
addresses together, a part of an allowance that comes back with time; addresses forgotten first are those not
seen for longest. The address is that of the connection: `X-Forwarded-For` is anybody's word.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from fencelock.errors import ConfigurationError

__all__ = ["Gate", "Secrets", "Visitor", "is_loopback"]

LIFE = 12 * 3600.0
"""Seconds that a session lasts."""
SESSIONS = 1000
ADDRESSES = 4096
FAILURES, EACH = 5, 12.0
"""So many failures of one address at once, and seconds until another is allowed."""
ALL_FAILURES, EACH_OF_ALL = 50, 1.0
SHORTEST = 8
LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True, repr=False)
class Secrets:
    """What opens the gate; nothing at all leaves it open."""

    token: str = ""
    user: str = ""
    password: str = ""

    def check(self) -> None:
        """Raise unless they make sense."""
        if bool(self.user) != bool(self.password):
            raise ConfigurationError("a user needs a password, and a password a user: give both, or a token")
        for what in ("token", "password"):
            if 0 < len(getattr(self, what)) < SHORTEST:
                raise ConfigurationError(
                    f"the {what} is too short to be safe: give at least {SHORTEST} characters"
                )

    @property
    def are_there(self) -> bool:
        """Whether anything is demanded."""
        return bool(self.token or self.user)

    @property
    def mode(self) -> str:
        """What the login page asks for: `token`, `password` or `either`; `open` for nothing."""
        if self.token and self.user:
            return "either"
        return "token" if self.token else "password" if self.user else "open"

    def opened_by(self, *, token: str = "", user: str = "", password: str = "") -> str | None:
        """Return who that is, or `None`."""
        by_token = bool(self.token) & _same(token, self.token)
        by_password = bool(self.user) & _same(user, self.user) & _same(password, self.password)
        return "token" if by_token else self.user if by_password else None


class Visitor(NamedTuple):
    """Somebody who is in."""

    user: str | None
    """Who logged in; `None` where nobody need."""
    cookie: str = ""
    """The session; empty for a program with `Authorization`."""
    is_new: bool = False
    """The cookie must be set."""


class Allowance:
    """So many at once, and another one in each `seconds`."""

    __slots__ = ("_at", "_left", "_most", "_seconds")

    def __init__(self, most: int, seconds: float, now: float) -> None:
        self._most, self._seconds = float(most), seconds
        self._left, self._at = float(most), now

    def wait(self, now: float) -> float:
        """Return the seconds until one is allowed; 0 for now."""
        self._left = min(self._most, self._left + (now - self._at) / self._seconds)
        self._at = now
        return 0.0 if self._left >= 1.0 else (1.0 - self._left) * self._seconds

    def spend(self, now: float) -> None:
        """Take one."""
        self.wait(now)
        self._left = max(0.0, self._left - 1.0)


class Gate:
    """Decides on requests by what they carry."""

    def __init__(
        self, demanded: Secrets, now: Callable[[], float], *, names: Iterable[str] = (), strict: bool = True
    ) -> None:
        """Demand these secrets. `names` are hosts to be called by, besides this machine's own.

        With `strict` any other name is refused; it always is where no secret is demanded.
        """
        demanded.check()
        self.secrets = demanded
        self._now = now
        self._key = secrets.token_bytes(32)
        self._names = LOCAL | {_bare(name) for name in names}
        self._is_strict = strict or not demanded.are_there
        self._sessions: OrderedDict[str, tuple[float, str]] = OrderedDict()
        self._addresses: OrderedDict[str, Allowance] = OrderedDict()
        self._all = Allowance(ALL_FAILURES, EACH_OF_ALL, now())

    # Where from -------------------------------------------------------------------------

    def knows_host(self, host: str) -> bool:
        """Whether the header `Host` names us."""
        return not self._is_strict or _bare(host) in self._names

    def is_ours(self, headers: Mapping[str, str]) -> bool:
        """Whether a request comes from a page of ours, or from no page at all."""
        if headers.get("sec-fetch-site", "none") not in {"same-origin", "none"}:
            return False
        origin = headers.get("origin")
        return origin is None or origin.partition("://")[2].lower() == headers.get("host", "").lower()

    # Who --------------------------------------------------------------------------------

    def visitor(self, cookie: str, authorization: str) -> Visitor | None:
        """Return who this is, or `None` for somebody who must log in. Guessing is `try_secrets`."""
        if not self.secrets.are_there:
            return Visitor(None, cookie) if self._is_signed(cookie) else Visitor(None, self._signed(), True)
        if authorization:
            return None
        expires, user = self._sessions.get(cookie, (0.0, ""))
        return Visitor(user, cookie) if self._now() < expires else None

    def wait(self, address: str) -> float:
        """Return the seconds until this address may try a secret; 0 for now."""
        own = self._addresses.get(_network(address))
        return max(self._all.wait(self._now()), own.wait(self._now()) if own else 0.0)

    def try_secrets(self, address: str, **given: str) -> str | None:
        """Return who these secrets belong to; a failure is remembered against the address."""
        user = self.secrets.opened_by(**given)
        if user is None:
            network, now = _network(address), self._now()
            own = self._addresses.pop(network, None) or Allowance(FAILURES, EACH, now)
            self._addresses[network] = own
            if len(self._addresses) > ADDRESSES:
                self._addresses.popitem(last=False)
            own.spend(now)
            self._all.spend(now)
        return user

    def try_authorization(self, address: str, authorization: str) -> Visitor | None:
        """The same for what a program sends."""
        user = self.try_secrets(address, **_given(authorization))
        return None if user is None else Visitor(user)

    def begin(self, user: str) -> Visitor:
        """Return the session of somebody who has logged in."""
        cookie = secrets.token_urlsafe(32)
        self._sessions[cookie] = self._now() + LIFE, user
        if len(self._sessions) > SESSIONS:
            self._sessions.popitem(last=False)
        return Visitor(user, cookie, True)

    def end(self, cookie: str) -> None:
        """Forget a session."""
        self._sessions.pop(cookie, None)

    def lasts(self, visitor: Visitor) -> bool:
        """Whether somebody who was in still is."""
        if not self.secrets.are_there or not visitor.cookie:
            return True
        return self._now() < self._sessions.get(visitor.cookie, (0.0, ""))[0]

    # CSRF -------------------------------------------------------------------------------

    def csrf(self, cookie: str) -> str:
        """Return the token that proves that somebody could read a page of this session."""
        return self._hashed("csrf", cookie)

    def is_csrf(self, cookie: str, token: str) -> bool:
        """Whether it is that token."""
        return bool(cookie) and _same(token, self.csrf(cookie))

    def form(self, cookie: str) -> Visitor:
        """Return the cookie of the login form: the one that is there, if it is good."""
        return Visitor(None, cookie) if self._is_signed(cookie) else Visitor(None, self._signed(), True)

    def is_form(self, cookie: str, token: str) -> bool:
        """Whether a form that was sent is one of ours, and fresh."""
        return self._is_signed(cookie) and self.is_csrf(cookie, token)

    def _signed(self) -> str:
        body = f"{int(self._now() + LIFE)}.{secrets.token_urlsafe(16)}"
        return f"{body}.{self._hashed('cookie', body)}"

    def _is_signed(self, cookie: str) -> bool:
        body, _, sign = cookie.rpartition(".")
        if not _same(sign, self._hashed("cookie", body)):
            return False
        return self._now() < int(body.partition(".")[0])

    def _hashed(self, use: str, text: str) -> str:
        return hmac.new(self._key, f"{use}:{text}".encode(), hashlib.sha256).hexdigest()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _same(given: str, wanted: str) -> bool:
    # Of hashes: the time tells not even the length.
    made = [hashlib.sha256(text.encode(errors="surrogatepass")).digest() for text in (given, wanted)]
    return hmac.compare_digest(*made)


def _bare(host: str) -> str:
    """Return a host without its port, and without brackets."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host


def _network(address: str) -> str:
    """Return what counts as one address: of IPv6 the 64 bits that one customer has."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    return str(ipaddress.ip_network((ip, 64), strict=False)) if ip.version == 6 else str(ip)


def _given(authorization: str) -> dict[str, str]:
    scheme, _, rest = authorization.strip().partition(" ")
    if scheme.lower() == "bearer":
        return {"token": rest.strip()}
    if scheme.lower() != "basic":
        return {}
    try:
        user, _, password = base64.b64decode(rest, validate=True).decode().partition(":")
    except ValueError:
        return {}
    return {"user": user, "password": password}
